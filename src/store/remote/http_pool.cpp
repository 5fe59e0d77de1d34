#include "store/remote/http_pool.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <poll.h>

#include "base/try.hpp"

namespace kiln::store {
namespace {

using Clock = std::chrono::steady_clock;

/// Of all pauses before an answer. A signature of S3 is valid for a few minutes.
constexpr std::chrono::seconds max_pause{60};

bool is_overloaded(const HttpAnswer& answer) { return answer.status == 429 || answer.status == 503; }

/// False if the call was cancelled first.
bool pause_for(std::chrono::milliseconds time, int cancelled) {
  const auto end = Clock::now() + time;
  for (;;) {
    pollfd wait = {cancelled, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    // A signal may end the wait too early.
    if (const int ready = poll(&wait, 1, std::max(0, static_cast<int>(left.count()))); ready >= 0)
      return ready == 0;
  }
}

}  // namespace

HttpPool::~HttpPool() {
  if (getpid() == process_) return;
  // In a forked child. Closing the connections would end the parent's TLS sessions. At the fork, another thread may
  // have held the mutex and been changing the list, so the list is neither locked nor read, only leaked.
  static_cast<void>(std::make_unique<decltype(idle_)>(std::move(idle_)).release());
}

Result<void> HttpPool::check_process() const {
  if (getpid() == process_) return {};
  return Error(ErrorCode::unsupported, "the store belongs to the process that forked this one; open another one");
}

Result<HttpAnswer> HttpPool::exchange(const HttpRequest& request, const CallLimit& limit) {
  for (std::chrono::seconds paused{0};;) {
    auto connection = KILN_TRY(take());
    auto answer = connection->exchange(request, limit);
    keep(std::move(connection));
    if (!answer || !is_overloaded(*answer) || answer->retry_after.count() == 0) return answer;
    paused += answer->retry_after;
    if (paused > max_pause || limit.deadline - Clock::now() <= answer->retry_after) return answer;
    if (!pause_for(answer->retry_after, limit.cancelled))
      return Error(ErrorCode::cancelled, "the request was cancelled");
  }
}

Result<std::unique_ptr<HttpConnection>> HttpPool::take() {
  KILN_TRY(check_process());
  {
    const base::MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  auto connection = HttpConnection::create();
  if (connection == nullptr) return Error(ErrorCode::io, "there is no memory left");
  return connection;
}

void HttpPool::keep(std::unique_ptr<HttpConnection> connection) {
  const base::MutexLock lock(mutex_);
  if (idle_.size() < max_idle_connections) idle_.push_back(std::move(connection));
}

}  // namespace kiln::store
