#pragma once

#include <atomic>

#include <sys/eventfd.h>
#include <unistd.h>

namespace kiln::base {

/// A flag that poll() can wait for. Without a free descriptor, only is_set() tells that it is set.
class Event {
 public:
  Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  /// Becomes readable with set(). -1: there was no free descriptor.
  int descriptor() const noexcept { return descriptor_; }
  bool is_set() const noexcept { return is_set_; }
  void set() const noexcept {
    is_set_ = true;
    if (descriptor_ >= 0) static_cast<void>(::eventfd_write(descriptor_, 1));
  }

 private:
  const int descriptor_;
  mutable std::atomic<bool> is_set_{false};
};

}  // namespace kiln::base
