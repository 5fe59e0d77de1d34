#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace kiln::backend {

/// What a stream of the caller's own holds: see Stream::hold(). `Fence` marks a place in the work of a stream; it
/// has `bool passed()`, which does not wait, and `void wait()`. Used by one thread at a time.
template <class Fence>
class Held {
 public:
  Held() = default;
  /// Waits for the fences that the stream has not passed.
  ~Held() {
    for (auto& [fence, thing] : things_) fence->wait();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  /// Holds `thing` until the stream has passed `fence`. If that is null, until this object is destroyed. Lets go of
  /// what the stream has passed.
  void add(std::unique_ptr<Fence> fence, std::shared_ptr<const void> thing) {
    while (!things_.empty() && things_.front().fence->passed()) things_.pop_front();
    if (fence != nullptr)
      things_.push_back({std::move(fence), std::move(thing)});
    else
      to_the_end_.push_back(std::move(thing));
  }

 private:
  struct Thing {
    std::unique_ptr<Fence> fence;
    std::shared_ptr<const void> thing;
  };
  std::vector<std::shared_ptr<const void>> to_the_end_;
  std::deque<Thing> things_;
};

}  // namespace kiln::backend
