#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "fakes/temporary_folder.hpp"

namespace kiln::fakes {

/// Whether a program is in $PATH or /usr/sbin; "python3-botocore" asks for the module that S3Server needs. Tests
/// that need a server skip themselves without it:
///
///     if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
bool is_installed(const std::string& program);

/// Whether nginx's module dav_ext is installed.
bool is_dav_ext_installed();

/// A port of 127.0.0.1 and ::1 that nobody listens on. The system does not give it to clients, so that it stays
/// free while a server is stopped.
std::uint16_t free_port();

/// Where a server listens on this machine.
enum class Address { ipv4, ipv6, unix_socket };

/// A real server on loopback with a temporary folder. It runs until the object, or the thread that started it,
/// ends. Constructors return once it accepts connections, and throw std::runtime_error with its log if it does not
/// start. Not thread-safe.
class Server {
 public:
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  virtual ~Server();

  /// The port, which stays the same; 0 if the server listens on a Unix socket.
  std::uint16_t port() const noexcept { return port_; }
  /// The path of the Unix socket; empty if the server listens on a port.
  const std::filesystem::path& unix_socket() const noexcept { return unix_socket_; }
  /// The server's files.
  const std::filesystem::path& folder() const noexcept { return folder_.path(); }
  /// The certificate of a server with TLS, which is its own authority: the value of the URL option `ca`.
  std::filesystem::path certificate() const { return folder() / "certificate.pem"; }
  /// All that the server has written to its log.
  std::string log() const;

  /// Starts a stopped server on the same address.
  void start();
  /// Ends the server as its administrator does (SIGTERM), and waits for its end.
  void stop() { end(SIGTERM); }
  /// Ends the server at once (SIGKILL), and waits for its end.
  void kill() { end(SIGKILL); }
  /// Stops the server from running (SIGSTOP). The system still accepts connections for it, which get no answer.
  void pause();
  /// Ends a pause.
  void resume();

 protected:
  Server(Address address, bool tls);

  /// The program and its arguments. It must write to its standard output, and stay in the foreground as one
  /// process.
  void set_command(std::vector<std::string> command) { command_ = std::move(command); }
  /// Where the server is in URLs, as in "[::1]:8080"; "localhost" for a Unix socket.
  std::string authority() const;
  std::filesystem::path private_key() const { return folder() / "private_key.pem"; }

 private:
  bool accepts_connections() const;
  void end(int signal);

  TemporaryFolder folder_;
  const Address address_;
  std::uint16_t port_ = 0;
  std::filesystem::path unix_socket_;
  std::vector<std::string> command_;
  pid_t process_ = -1;
};

/// Redis without files on disk.
class RedisServer : public Server {
 public:
  struct Options {
    Address address = Address::ipv4;
    bool tls = false;
    /// Of the user "default"; empty: none is needed. [a-z0-9-] only.
    std::string password = {};
    /// More arguments of redis-server, as in {"--maxmemory", "2mb"}.
    std::vector<std::string> arguments = {};
  };

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(const Options& options);

  /// The URL of a store, with the password. `options` are those of the URL, as in "mode=ro&timeout=1s".
  std::string url(const std::string& options = {}) const;

 private:
  const Options options_;
};

/// nginx that stores what is PUT under /cache/, and serves it.
class NginxServer : public Server {
 public:
  struct Options {
    Address address = Address::ipv4;
    bool tls = false;
    /// PUT and DELETE are answered with 403.
    bool read_only = false;
    /// Folders can be listed (PROPFIND), which needs is_dav_ext_installed().
    bool lists = false;
    /// log() has a line "METHOD PATH STATUS" for each request.
    bool logs_requests = false;
    /// Basic authentication; empty: none. [a-z0-9-] only.
    std::string user = {};
    std::string password = {};
    /// Longer bodies are answered with 413.
    std::string max_body = "1g";
    /// More directives of the server block, as in "location /moved/ { return 302 /cache/; }".
    std::string directives = {};
  };

  NginxServer() : NginxServer(Options{}) {}
  explicit NginxServer(const Options& options);

  /// The URL of a store in /cache, with the credentials. `options` are those of the URL, as in
  /// "mode=ro&timeout=1s".
  std::string url(const std::string& options = {}) const;
  /// The folder of the objects of that store.
  std::filesystem::path objects() const { return folder() / "data" / "cache"; }

 private:
  const Options options_;
};

/// Sets variables of the environment, and removes all others of AWS, until its end.
class AwsEnvironment {
 public:
  explicit AwsEnvironment(const std::vector<std::pair<std::string, std::string>>& variables);
  ~AwsEnvironment();
  AwsEnvironment(const AwsEnvironment&) = delete;
  AwsEnvironment& operator=(const AwsEnvironment&) = delete;
};

/// tests/fakes/s3_server.py, which checks signatures with botocore. Until the end of the object, the environment
/// names credentials().
class S3Server : public Server {
 public:
  struct Options {
    bool tls = false;
    std::string access_key = "AKIAKILNTEST";
    std::string secret_key = "secret-word/+=";
    /// Of temporary credentials; empty: none.
    std::string token = {};
    std::string region = "eu-central-1";
  };
  static constexpr const char* bucket = "kiln-tests";

  S3Server() : S3Server(Options{}) {}
  explicit S3Server(const Options& options);

  /// The URL of a store in the folder "cache" of the bucket. `options` are those of the URL.
  std::string url(const std::string& options = {}) const;
  /// As in "https://127.0.0.1:9000".
  std::string endpoint() const;
  /// The value of AWS_SHARED_CREDENTIALS_FILE: the profile "default" is right, "wrong" has the wrong secret
  /// "wrong-password-5520".
  std::filesystem::path credentials() const { return folder() / "credentials"; }
  /// From the next request on. The members of the JSON object are those of Behaviour in s3_server.py.
  void behave(const std::string& json) const;
  /// A line "METHOD PATH STATUS" for each answer, which is there before the client has the answer.
  std::string requests() const;
  /// Stores an object without a request. [a-z0-9./-] only.
  void store(const std::string& key, const std::string& text) const;

 private:
  const Options options_;
  const AwsEnvironment environment_;
};

}  // namespace kiln::fakes
