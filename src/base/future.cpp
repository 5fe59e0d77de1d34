#include <kiln/future.hpp>

#include <atomic>

namespace kiln {

Future<void> when_all(std::span<const Pending> pending) {
  struct Join {
    Join(Promise<void> told, std::span<const Pending> joined)
        : promise(std::move(told)), pending(joined.begin(), joined.end()), left(joined.size() + 1) {}
    Promise<void> promise;
    std::vector<Pending> pending;
    /// One more than the number of futures, so that the promise is not set before when_all() has registered all
    /// callbacks.
    std::atomic<std::size_t> left;
  };
  // Continuations of the joined future run where those of the first pending one run.
  std::shared_ptr<const detail::Continue> where;
  for (const Pending& each : pending)
    if (where == nullptr && each.state_ != nullptr) where = each.state_->where();
  auto join = std::make_shared<Join>(Promise<void>(std::move(where)), pending);
  const auto arrive = [](Join& joined) {
    if (joined.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (const Pending& each : joined.pending)
      if (const Error* error = each.error(); error != nullptr) {
        joined.promise.set(*error);
        return;
      }
    joined.promise.set({});
  };
  for (const Pending& each : pending) each.when_ready([join, arrive] { arrive(*join); });
  arrive(*join);
  return join->promise.future();
}

}  // namespace kiln
