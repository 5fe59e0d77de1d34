#pragma once

#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace kiln::base {

/// A flag that poll() can wait for. Without a free descriptor, nobody notices that it is set.
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
  void set() const noexcept {
    if (descriptor_ >= 0) static_cast<void>(::eventfd_write(descriptor_, 1));
  }

 private:
  const int descriptor_;
};

}  // namespace kiln::base
