#pragma once

#include <memory>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include <kiln/result.hpp>

#include "base/mutex.hpp"
#include "store/remote/http_connection.hpp"

namespace kiln::store {

/// How many requests a store of HTTP serves at once without making new connections.
inline constexpr std::size_t max_idle_connections = 32;

/// The connections of a store, which stay open between requests. Thread-safe. A child of the process cannot use
/// them: its calls fail with unsupported, and destroying the object there leaves the connections as they are.
class HttpPool {
 public:
  HttpPool() = default;
  HttpPool(const HttpPool&) = delete;
  HttpPool& operator=(const HttpPool&) = delete;
  ~HttpPool();

  /// Fails with unsupported in a child of the process. Takes no lock: another thread may have held any at the fork.
  Result<void> check_process() const;

  /// HttpConnection::exchange() on any connection. If the server is overloaded (429, 503) and says for how long
  /// (Retry-After), waits and tries again, unless that exceeds the limit or a minute.
  Result<HttpAnswer> exchange(const HttpRequest& request, const CallLimit& limit);

 private:
  Result<std::unique_ptr<HttpConnection>> take();
  void keep(std::unique_ptr<HttpConnection> connection);

  const pid_t process_ = getpid();
  base::Mutex mutex_;
  std::vector<std::unique_ptr<HttpConnection>> idle_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::store
