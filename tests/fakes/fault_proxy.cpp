#include "fakes/fault_proxy.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <deque>
#include <list>
#include <stdexcept>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "fakes/servers.hpp"

namespace kiln::fakes {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = NetworkFault::Kind;

constexpr std::size_t buffer_bytes = 256 << 10;
constexpr std::chrono::milliseconds drip_interval{10};

sockaddr_in proxy_address(std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

base::FileHandle proxy_socket() {
  return base::FileHandle(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Part of an answer, and when it may be sent.
struct Part {
  Clock::time_point due;
  std::string bytes;
};

struct Connection {
  base::FileHandle client;
  base::FileHandle server;
  std::string to_server = {};
  std::deque<Part> to_client = {};
  std::size_t queued = 0;
  /// The bytes sent to the client since the fault was set.
  std::size_t answered = 0;
  /// Times that the client sent after an answer, or at the beginning.
  std::size_t round_trips = 0;
  bool awaits_request = true;
  bool client_finished = false;
  bool server_finished = false;
  bool finished = false;
  Clock::time_point next_drip = {};

  void close_with_reset() {
    const linger none = {1, 0};
    setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    finished = true;
  }
};

/// The result of recv() on a socket that does not block: nothing if it has nothing yet, an empty text at its end or
/// after an error.
std::optional<std::string> receive(int socket) {
  std::string bytes(16 << 10, '\0');
  const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

/// Sends what the socket takes and removes it; false after an error.
bool send_some(int socket, std::string& bytes, std::size_t most) {
  const ssize_t sent = send(socket, bytes.data(), std::min(bytes.size(), most), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  bytes.erase(0, static_cast<std::size_t>(sent));
  return true;
}

}  // namespace

class FaultProxy::Loop {
 public:
  explicit Loop(std::uint16_t server_port) : server_port_(server_port) {
    if (wake_.get() < 0) throw std::runtime_error("cannot make an eventfd");
    listen();
  }

  std::uint16_t port() const noexcept { return port_; }
  std::size_t connections() const noexcept { return accepted_.load(); }
  std::size_t take_round_trips() noexcept { return round_trips_.exchange(0); }

  void set(NetworkFault fault) {
    const base::MutexLock lock(mutex_);
    wanted_ = std::move(fault);
    const std::uint64_t generation = ++wanted_generation_;
    wake();
    while (generation_ < generation) applied_.wait(mutex_);
  }

  void stop() {
    ends_.store(true);
    wake();
  }

  void run() {
    while (!ends_.load()) {
      apply();
      step();
    }
  }

 private:
  void wake() const { static_cast<void>(eventfd_write(wake_.get(), 1)); }

  void listen() {
    listener_ = proxy_socket();
    const int yes = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in address = proxy_address(port_);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 128) != 0)
      throw std::runtime_error("the fault proxy cannot listen");
  }

  void apply() {
    const base::MutexLock lock(mutex_);
    if (generation_ == wanted_generation_) return;
    fault_ = wanted_;
    if (fault_.kind == Kind::refuse)
      listener_ = base::FileHandle();
    else if (!listener_)
      listen();
    for (Connection& connection : connections_) {
      connection.answered = 0;
      if (resets_at_once()) connection.close_with_reset();
    }
    connections_.remove_if([](const Connection& connection) { return connection.finished; });
    generation_ = wanted_generation_;
    applied_.notify_all();
  }

  bool resets_at_once() const {
    return fault_.kind == Kind::refuse || (fault_.kind == Kind::reset && fault_.after == 0);
  }
  bool forwards() const { return fault_.kind != Kind::garbage && fault_.kind != Kind::endless; }

  /// When the next bytes may be sent to the client; nothing if there are none.
  std::optional<Clock::time_point> send_time(const Connection& connection) const {
    if (connection.to_client.empty() || fault_.kind == Kind::half_open) return std::nullopt;
    const Clock::time_point due = connection.to_client.front().due;
    return fault_.kind == Kind::drip ? std::max(due, connection.next_drip) : due;
  }

  void step() {
    std::vector<pollfd> items = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    int timeout = -1;
    const auto now = Clock::now();
    for (const Connection& connection : connections_) {
      short client = 0;
      short server = 0;
      if (fault_.kind != Kind::half_open) {
        if (!connection.client_finished && connection.to_server.size() < buffer_bytes) client |= POLLIN;
        if (!connection.server_finished && connection.queued < buffer_bytes) server |= POLLIN;
        if (!connection.to_server.empty()) server |= POLLOUT;
      }
      if (const auto due = send_time(connection)) {
        if (*due <= now)
          client |= POLLOUT;
        else
          timeout =
              std::min<int>(timeout < 0 ? INT_MAX : timeout,
                            static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*due - now).count()));
      }
      items.push_back({connection.client.get(), client, 0});
      // Errors are reported even if no event is asked for.
      items.push_back(
          {connection.server_finished || fault_.kind == Kind::half_open ? -1 : connection.server.get(), server, 0});
    }
    if (poll(items.data(), items.size(), timeout) < 0) return;
    if (items[0].revents != 0) {
      eventfd_t ignored = 0;
      eventfd_read(wake_.get(), &ignored);
    }
    std::size_t index = 2;
    for (Connection& connection : connections_) {
      const short client = items[index].revents;
      const short server = items[index + 1].revents;
      index += 2;
      if (server != 0) serve_server(connection, server);
      if (client != 0) serve_client(connection, client);
    }
    connections_.remove_if([](const Connection& connection) { return connection.finished; });
    if (items[1].revents != 0) accept_client();
  }

  void accept_client() {
    base::FileHandle client(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) return;
    ++accepted_;
    Connection connection{std::move(client), proxy_socket()};
    const int yes = 1;
    setsockopt(connection.client.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(connection.server.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const sockaddr_in address = proxy_address(server_port_);
    if (resets_at_once())
      connection.close_with_reset();
    else if (connect(connection.server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
             errno == EINPROGRESS)
      connections_.push_back(std::move(connection));
  }

  void answer(Connection& connection, std::string bytes) const {
    connection.queued += bytes.size();
    connection.to_client.push_back({Clock::now() + fault_.delay, std::move(bytes)});
  }

  void serve_server(Connection& connection, short events) {
    if ((events & POLLOUT) != 0 && !send_some(connection.server.get(), connection.to_server, SIZE_MAX))
      connection.server_finished = true;
    if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    auto bytes = receive(connection.server.get());
    if (!bytes) return;
    if (bytes->empty())
      connection.server_finished = true;
    else if (forwards())
      answer(connection, *std::move(bytes));
    if (connection.server_finished && connection.to_client.empty()) connection.finished = true;
  }

  void serve_client(Connection& connection, short events) {
    if ((events & POLLOUT) != 0) send_answer(connection);
    if (connection.finished || (events & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    if (fault_.kind == Kind::half_open) {
      connection.finished = true;
      return;
    }
    const auto bytes = receive(connection.client.get());
    if (!bytes) return;
    // Clients that only stop sending are not worth a fault of their own.
    if (!bytes->empty() && std::exchange(connection.awaits_request, false))
      round_trips_ = std::max<std::size_t>(round_trips_, ++connection.round_trips);
    if (bytes->empty())
      connection.finished = true;
    else if (forwards())
      connection.to_server += *bytes;
    else if (fault_.kind == Kind::garbage || connection.to_client.empty())
      answer(connection, fault_.text);
  }

  void send_answer(Connection& connection) {
    const auto due = send_time(connection);
    if (!due || *due > Clock::now()) return;
    const bool has_end = fault_.kind == Kind::reset || fault_.kind == Kind::truncate;
    const std::size_t most = fault_.kind == Kind::drip ? 1
                             : has_end                 ? fault_.after - std::min(fault_.after, connection.answered)
                                                       : SIZE_MAX;
    std::string& bytes = connection.to_client.front().bytes;
    const std::size_t before = bytes.size();
    if (most > 0 && !send_some(connection.client.get(), bytes, most)) {
      connection.finished = true;
      return;
    }
    connection.awaits_request = connection.awaits_request || bytes.size() < before;
    connection.answered += before - bytes.size();
    connection.queued -= before - bytes.size();
    connection.next_drip = Clock::now() + drip_interval;
    if (bytes.empty()) connection.to_client.pop_front();
    if (has_end && connection.answered >= fault_.after) {
      if (fault_.kind == Kind::reset) connection.close_with_reset();
      connection.finished = true;
    }
    if (!connection.to_client.empty()) return;
    if (fault_.kind == Kind::endless)
      answer(connection, std::string(64 << 10, 'x'));
    else if (connection.server_finished)
      connection.finished = true;
  }

  const std::uint16_t server_port_;
  const std::uint16_t port_ = free_port();
  const base::FileHandle wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> ends_{false};
  std::atomic<std::size_t> accepted_{0};
  std::atomic<std::size_t> round_trips_{0};

  base::Mutex mutex_;
  base::Condition applied_;
  NetworkFault wanted_ KILN_GUARDED_BY(mutex_);
  std::uint64_t wanted_generation_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t generation_ KILN_GUARDED_BY(mutex_) = 0;

  // Of the thread.
  base::FileHandle listener_;
  NetworkFault fault_;
  std::list<Connection> connections_;
};

FaultProxy::FaultProxy(std::uint16_t server_port) : loop_(std::make_unique<Loop>(server_port)) {
  thread_ = std::thread([loop = loop_.get()] { loop->run(); });
}

FaultProxy::~FaultProxy() {
  loop_->stop();
  thread_.join();
}

std::uint16_t FaultProxy::port() const noexcept { return loop_->port(); }
void FaultProxy::set(NetworkFault fault) { loop_->set(std::move(fault)); }
std::size_t FaultProxy::connections() const { return loop_->connections(); }
std::size_t FaultProxy::take_round_trips() { return loop_->take_round_trips(); }

}  // namespace kiln::fakes
