#include "cache/recorder.hpp"

#include <fmt/format.h>

namespace kiln::cache {

void Recorder::note(const Request& request, std::chrono::nanoseconds compile_time) {
  if (path().empty() || has_failed_) return;
  {
    const base::MutexLock lock(mutex_);
    if (!noted_.insert(request.key().digest).second) return;
  }
  if (writer_.try_write([this, request, compile_time] { record(request, compile_time); })) return;
  const base::MutexLock lock(mutex_);
  noted_.erase(request.key().digest);
}

void Recorder::record(const Request& request, std::chrono::nanoseconds compile_time) {
  if (has_failed_) return;
  const auto added = file_.add(request, api_, compile_time);
  if (added) return;
  if (added.error().code() == ErrorCode::outdated) return log_.debug(added.error().message());
  if (!has_failed_.exchange(true))
    log_.warning(fmt::format("requests are no longer recorded: {}", added.error().message()));
}

}  // namespace kiln::cache
