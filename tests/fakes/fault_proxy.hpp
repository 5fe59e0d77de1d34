#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace kiln::fakes {

/// What a FaultProxy does to connections. A value.
struct NetworkFault {
  enum class Kind { none, delay, reset, truncate, half_open, drip, garbage, endless, refuse };

  Kind kind = Kind::none;
  std::chrono::milliseconds delay = {};
  /// The bytes of answers that pass before the fault.
  std::size_t after = 0;
  std::string text = {};

  static NetworkFault none() { return {}; }
  /// Each part of an answer arrives this much later.
  static NetworkFault delay_answers(std::chrono::milliseconds time) { return {.kind = Kind::delay, .delay = time}; }
  /// Connections are reset (RST) when they are accepted.
  static NetworkFault reset_at_accept() { return reset_after(0); }
  static NetworkFault reset_after(std::size_t bytes) { return {.kind = Kind::reset, .after = bytes}; }
  /// Connections end (FIN) in the middle of an answer.
  static NetworkFault truncate_after(std::size_t bytes) { return {.kind = Kind::truncate, .after = bytes}; }
  /// Connections are accepted, and nothing is read from them or written to them.
  static NetworkFault half_open() { return {.kind = Kind::half_open}; }
  /// Answers arrive at one byte per 10 ms.
  static NetworkFault drip() { return {.kind = Kind::drip}; }
  /// Answers each part of a request with `text`; the server does not receive it.
  static NetworkFault garbage(std::string text = std::string("\xff\0\x16garbage\r\n\x80\r\n\r\n", 17)) {
    return {.kind = Kind::garbage, .text = std::move(text)};
  }
  /// Answers a request with `head`, and with bytes without end after it.
  static NetworkFault endless(std::string head) { return {.kind = Kind::endless, .text = std::move(head)}; }
  /// Nothing listens on the port.
  static NetworkFault refuse() { return {.kind = Kind::refuse}; }
};

/// A TCP proxy between a client and a server, both on 127.0.0.1, that damages connections on demand. Its thread
/// ends with the object, and so do all connections.
class FaultProxy {
 public:
  explicit FaultProxy(std::uint16_t server_port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  /// The port that clients connect to; the same for the lifetime.
  std::uint16_t port() const noexcept;
  /// Replaces the fault, for connections that exist and for later ones. It is in effect when the function returns.
  void set(NetworkFault fault);
  /// The number of connections accepted until now.
  std::size_t connections() const;
  /// The most round trips that a connection has made, of those that made one since the last call: how often its
  /// client sent something after an answer, or at the beginning. Exact if answers are delayed.
  std::size_t take_round_trips();

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace kiln::fakes
