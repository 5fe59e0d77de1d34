#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <curl/curl.h>
#include <sys/types.h>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/remote/resp.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {

/// What a connection needs to know of the store's URL.
struct RedisAddress {
  /// For messages.
  std::string name;
  std::string curl_url;
  /// Empty: a TCP connection.
  std::string unix_socket;
  /// Empty: the system's.
  std::string certificates;
  std::string user;
  std::string password;
  /// Null: none.
  std::unique_ptr<SecretFile> password_file;
  std::string database;
};

struct RedisCredentials {
  std::string user;
  std::string password;
};

/// "the store NAME WHY".
Error redis_error(const RedisAddress& server, ErrorCode code, std::string_view why);

/// The type of answer that a command has.
struct ExpectedAnswer {
  RespAnswer::Kind kind;
  /// Null is an answer too.
  bool or_null = false;
};

/// A connection made by libcurl, which resolves names, tries all addresses and handles TLS. The Redis protocol is
/// ours. For one thread at a time.
class RedisConnection {
 public:
  static Result<std::unique_ptr<RedisConnection>> open(const RedisAddress& server, const CallLimit& limit);

  explicit RedisConnection(const RedisAddress& server);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  /// Sends commands and passes on their answers in the same order, one for each element of `expected`. An answer
  /// may be an error of the server. Fails if the connection cannot be used further; then answers are missing.
  using Receive = std::function<void(Result<RespAnswer>)>;
  Result<void> call(std::string_view commands, std::span<const ExpectedAnswer> expected, const Receive& receive,
                    const CallLimit& limit);
  /// The same for one command.
  Result<RespAnswer> call(std::string_view command, const ExpectedAnswer& expected, const CallLimit& limit);
  /// Whether the last call received valid answers, and nothing after them.
  bool is_reusable() const noexcept { return reusable_; }
  /// Whether the last call failed because the server had closed the connection.
  bool was_closed() const noexcept { return closed_; }
  /// Whether the server closed the connection, or sent bytes that nobody asked for.
  bool is_stale() const;

 private:
  struct FreeEasy {
    void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
  };
  struct FreeMulti {
    void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
  };

  Result<void> connect(const CallLimit& limit);
  Result<void> greet(const CallLimit& limit);
  bool set_options(const CallLimit& limit);
  Result<void> wait_until_connected(const CallLimit& limit);
  Result<void> wait_for(short events, const CallLimit& limit) const;
  Result<void> send(std::string_view bytes, const CallLimit& limit);
  /// An error of the server is an answer, too.
  Result<RespAnswer> receive(const CallLimit& limit);

  const RedisAddress& server_;
  const pid_t owner_;
  RedisCredentials credentials_;
  std::unique_ptr<CURLM, FreeMulti> multi_;
  std::unique_ptr<CURL, FreeEasy> easy_;
  std::array<char, CURL_ERROR_SIZE> curl_error_ = {};
  int socket_ = -1;
  bool reusable_ = false;
  bool closed_ = false;
  std::array<std::byte, std::size_t{64} << 10> buffer_ = {};
  /// The part of the buffer that was received and not read.
  std::span<const std::byte> unread_ = {};
};

}  // namespace kiln::store
