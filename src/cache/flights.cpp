#include "cache/flights.hpp"

#include <exception>
#include <string>
#include <utility>

namespace kiln::cache {
namespace {

Flights::Outcome guarded(const std::function<Flights::Outcome()>& fly) {
  try {
    return fly();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "this process ran out of memory");
  } catch (const std::exception& exception) {
    return Error(ErrorCode::device_failed, std::string("the backend threw an exception: ") + exception.what());
  }
}

}  // namespace

Flights::Landed Flights::fly(const Digest& key, const std::function<Program()>& landed_before,
                             const std::function<Outcome()>& fly) {
  std::promise<Outcome> promise;
  std::shared_future<Outcome> theirs;
  {
    const base::MutexLock lock(mutex_);
    const auto found = in_the_air_.find(key);
    if (found != in_the_air_.end()) {
      theirs = found->second;
    } else if (Program program = landed_before()) {
      return {std::optional(std::move(program)), false};
    } else {
      in_the_air_.emplace(key, promise.get_future().share());
    }
  }
  if (theirs.valid()) return {theirs.get(), true};

  Outcome outcome = guarded(fly);
  promise.set_value(outcome);
  const base::MutexLock lock(mutex_);
  in_the_air_.erase(key);
  return {std::move(outcome), false};
}

}  // namespace kiln::cache
