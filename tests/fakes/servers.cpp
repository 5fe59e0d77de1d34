#include "fakes/servers.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.hpp"
#include "fakes/files.hpp"

namespace kiln::fakes {
namespace {

constexpr auto patience = std::chrono::seconds(20);
constexpr const char* dav_ext = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

std::filesystem::path program_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path != nullptr ? path : "") + ":/usr/sbin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const auto file = std::filesystem::path(folder) / program; access(file.c_str(), X_OK) == 0) return file;
  return {};
}

/// Runs `command` with `output` as its standard output and error. The process ends with the calling thread.
pid_t run(const std::vector<std::string>& command, const std::filesystem::path& output) {
  const std::filesystem::path program = program_path(command.front());
  if (program.empty()) throw std::runtime_error(command.front() + " is not installed");
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const base::FileHandle log(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const base::FileHandle nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("cannot fork");
  if (process > 0) return process;
  // Calls that are safe after a fork of a process with threads only.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent || dup2(nothing.get(), 0) < 0 || dup2(log.get(), 1) < 0 || dup2(log.get(), 2) < 0)
    _exit(127);
  // The server must not keep the test's sockets open.
  syscall(SYS_close_range, 3U, ~0U, 0U);
  execv(program.c_str(), arguments.data());
  _exit(127);
}

/// Whether the process ends within `time`.
bool ends_within(pid_t process, std::chrono::milliseconds time) {
  const base::FileHandle handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0U)));
  if (handle.get() < 0) throw std::runtime_error("cannot watch a server: pidfd_open failed");
  pollfd wait = {handle.get(), POLLIN, 0};
  return poll(&wait, 1, static_cast<int>(time.count())) > 0;
}

void reap(pid_t process) {
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

/// Runs a command to its end; throws if it fails.
void run_to_end(const std::vector<std::string>& command, const std::filesystem::path& output) {
  const pid_t process = run(command, output);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw std::runtime_error(command.front() + " failed: " + read_file(output));
}

/// Empty if there is none.
const std::string& python_with_botocore() {
  static const std::string found = [] {
    const TemporaryFolder folder;
    for (const char* python : {"/usr/bin/python3", "python3"}) try {
        run_to_end({python, "-c", "import botocore.auth"}, folder.path() / "log");
        return std::string(python);
      } catch (const std::runtime_error&) {
        // The next one may have it.
      }
    return std::string();
  }();
  return found;
}

/// The variables of AWS that Kiln reads.
constexpr const char* aws_variables[] = {
    "AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",     "AWS_PROFILE",           "AWS_REGION",        "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr_in6 loopback6(std::uint16_t port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  return address;
}

template <class SocketAddress>
bool connects(const SocketAddress& address, int family) {
  const base::FileHandle socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

template <class SocketAddress>
bool can_bind(const SocketAddress& address, int family) {
  const base::FileHandle socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno != EADDRINUSE;
}

}  // namespace

bool is_installed(const std::string& program) {
  if (program == "python3-botocore") return !python_with_botocore().empty();
  return !program_path(program).empty();
}

bool is_dav_ext_installed() { return access(dav_ext, R_OK) == 0; }

std::uint16_t free_port() {
  // Below the ports that Linux gives to clients, which begin at 32768.
  static thread_local std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> ports(15000, 32000);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto port = static_cast<std::uint16_t>(ports(random));
    if (can_bind(loopback(port), AF_INET) && can_bind(loopback6(port), AF_INET6)) return port;
  }
  throw std::runtime_error("no port is free");
}

Server::Server(Address address, bool tls) : address_(address) {
  if (address == Address::unix_socket)
    unix_socket_ = folder() / "socket";
  else
    port_ = free_port();
  if (tls)
    run_to_end({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", private_key(), "-out", certificate(), "-days", "2", "-subj", "/CN=localhost", "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"},
               folder() / "openssl.log");
}

Server::~Server() { end(SIGKILL); }

std::string Server::authority() const {
  switch (address_) {
    case Address::ipv4: return fmt::format("127.0.0.1:{}", port_);
    case Address::ipv6: return fmt::format("[::1]:{}", port_);
    case Address::unix_socket: break;
  }
  return "localhost";
}

std::string Server::log() const { return read_file(folder() / "log"); }

bool Server::accepts_connections() const {
  if (address_ == Address::ipv4) return connects(loopback(port_), AF_INET);
  if (address_ == Address::ipv6) return connects(loopback6(port_), AF_INET6);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = unix_socket_.string();
  if (path.size() >= sizeof address.sun_path)
    throw std::runtime_error("the path of a Unix socket is too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return connects(address, AF_UNIX);
}

void Server::start() {
  if (process_ > 0) return;
  // nginx does not start if the socket of a killed server is left.
  if (!unix_socket_.empty()) std::filesystem::remove(unix_socket_);
  process_ = run(command_, folder() / "log");
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!accepts_connections()) {
    const bool ended = ends_within(process_, std::chrono::milliseconds(2));
    if (!ended && std::chrono::steady_clock::now() < deadline) continue;
    end(SIGKILL);
    throw std::runtime_error(command_.front() + " does not start: " + log());
  }
}

void Server::end(int signal) {
  if (process_ <= 0) return;
  ::kill(process_, signal);
  ::kill(process_, SIGCONT);
  if (!ends_within(process_, patience)) ::kill(process_, SIGKILL);
  reap(process_);
  process_ = -1;
}

void Server::pause() {
  if (process_ <= 0) return;
  ::kill(process_, SIGSTOP);
  // The signal takes effect some time after kill() returned.
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(process_), &info, WSTOPPED) < 0 && errno == EINTR) {
  }
}

void Server::resume() {
  if (process_ > 0) ::kill(process_, SIGCONT);
}

RedisServer::RedisServer(const Options& options) : Server(options.address, options.tls), options_(options) {
  const std::string port = std::to_string(this->port());
  std::vector<std::string> command = {
      "redis-server", "--save",      "",  "--appendonly", "no", "--dir", folder(), "--logfile", "", "--daemonize",
      "no",           "--databases", "16"};
  const auto add = [&command](std::vector<std::string> arguments) {
    command.insert(command.end(), arguments.begin(), arguments.end());
  };
  if (options.address == Address::unix_socket)
    add({"--port", "0", "--unixsocket", unix_socket()});
  else if (options.tls)
    add({"--port", "0", "--tls-port", port, "--tls-cert-file", certificate(), "--tls-key-file", private_key(),
         "--tls-ca-cert-file", certificate(), "--tls-auth-clients", "no"});
  else
    add({"--port", port});
  if (options.address != Address::unix_socket)
    add({"--bind", options.address == Address::ipv6 ? "::1" : "127.0.0.1"});
  if (!options.password.empty()) add({"--requirepass", options.password});
  add(options.arguments);
  set_command(std::move(command));
  start();
}

std::string RedisServer::url(const std::string& options) const {
  const std::string credentials = options_.password.empty() ? "" : ":" + options_.password + "@";
  std::string url = options_.address == Address::unix_socket
                        ? fmt::format("redis+unix://{}{}", credentials, unix_socket().string())
                        : fmt::format("{}://{}{}/0", options_.tls ? "rediss" : "redis", credentials, authority());
  std::string all = options_.tls ? "ca=" + certificate().string() : "";
  if (!options.empty()) all += (all.empty() ? "" : "&") + options;
  return all.empty() ? url : url + "?" + all;
}

NginxServer::NginxServer(const Options& options) : Server(options.address, options.tls), options_(options) {
  std::filesystem::create_directories(objects());
  const std::string here = folder().string();
  std::string listen = options.address == Address::unix_socket ? "unix:" + unix_socket().string() : authority();
  std::string more = options.directives;
  if (options.tls) {
    listen += " ssl";
    more += fmt::format("ssl_certificate {}; ssl_certificate_key {};\n", certificate().string(),
                        private_key().string());
  }
  if (!options.user.empty()) {
    run_to_end({"openssl", "passwd", "-5", options.password}, folder() / "hash");
    write_file(folder() / "users", options.user + ":" + read_file(folder() / "hash"));
    more += fmt::format("auth_basic cache; auth_basic_user_file {}/users;\n", here);
  }
  std::string temporary_folders;
  for (const char* module : {"client_body", "proxy", "fastcgi", "scgi", "uwsgi"})
    temporary_folders += fmt::format("  {}_temp_path {}/temporary/{};\n", module, here, module);
  std::filesystem::create_directories(folder() / "temporary");
  // One process, so that signals reach all of the server.
  write_file(
      folder() / "nginx.conf",
      fmt::format("{6}daemon off; master_process off; pid {0}/pid; error_log stderr;\n"
                  "events {{ worker_connections 512; }}\n"
                  "http {{\n"
                  "  {7} client_max_body_size {1};\n"
                  "{2}"
                  "  server {{\n"
                  "    listen {3}; root {0}/data;\n"
                  "    {4}"
                  "    location /cache/ {{\n"
                  "      dav_methods PUT DELETE; create_full_put_path on; dav_access user:rw;\n"
                  "      {5} {8}\n"
                  "    }}\n"
                  "  }}\n"
                  "}}\n",
                  here, options.max_body, temporary_folders, listen, more,
                  options.read_only ? "limit_except GET PROPFIND { deny all; }" : "",
                  options.lists ? fmt::format("load_module {};\n", dav_ext) : "",
                  options.logs_requests
                      ? "log_format requests '$request_method $uri $status'; access_log /dev/stdout requests;"
                      : "access_log off;",
                  options.lists ? "dav_ext_methods PROPFIND;" : ""));
  set_command({"nginx", "-p", here, "-c", folder() / "nginx.conf", "-e", "stderr"});
  start();
}

std::string NginxServer::url(const std::string& options) const {
  const std::string credentials = options_.user.empty() ? "" : options_.user + ":" + options_.password + "@";
  std::string all = options_.tls ? "ca=" + certificate().string() : "";
  if (options_.address == Address::unix_socket)
    all += (all.empty() ? "unix_socket=" : "&unix_socket=") + unix_socket().string();
  if (!options.empty()) all += (all.empty() ? "" : "&") + options;
  return fmt::format("{}://{}{}/cache{}{}", options_.tls ? "https" : "http", credentials, authority(),
                     all.empty() ? "" : "?", all);
}

S3Server::S3Server(const Options& options)
    : Server(Address::ipv4, options.tls),
      options_(options),
      environment_({{"AWS_SHARED_CREDENTIALS_FILE", credentials()}}) {
  std::filesystem::create_directories(folder() / "objects");
  const auto profile = [&](const char* name, const std::string& secret) {
    return fmt::format("[{}]\naws_access_key_id = {}\naws_secret_access_key = {}\naws_session_token = {}\n", name,
                       options.access_key, secret, options.token);
  };
  write_file(credentials(), profile("default", options.secret_key) + profile("wrong", "wrong-password-5520"));
  std::vector<std::string> command = {python_with_botocore(),
                                      KILN_S3_SERVER,
                                      "--port",
                                      std::to_string(port()),
                                      "--folder",
                                      folder(),
                                      "--bucket",
                                      bucket,
                                      "--region",
                                      options.region,
                                      "--access-key",
                                      options.access_key,
                                      "--secret-key",
                                      options.secret_key};
  if (!options.token.empty()) command.insert(command.end(), {"--token", options.token});
  if (options.tls)
    command.insert(command.end(),
                   {"--certificate", certificate().string(), "--private-key", private_key().string()});
  set_command(std::move(command));
  start();
}

std::string S3Server::endpoint() const { return (options_.tls ? "https://" : "http://") + authority(); }

std::string S3Server::url(const std::string& options) const {
  std::string url = fmt::format("s3://{}/cache?endpoint={}&region={}", bucket, endpoint(), options_.region);
  if (options_.tls) url += "&ca=" + certificate().string();
  return options.empty() ? url : url + "&" + options;
}

void S3Server::behave(const std::string& json) const {
  const auto file = folder() / "behaviour.json";
  write_file(folder() / "next", json);
  std::filesystem::rename(folder() / "next", file);
}

std::string S3Server::requests() const {
  const auto file = folder() / "requests";
  return std::filesystem::exists(file) ? read_file(file) : "";
}

void S3Server::store(const std::string& key, const std::string& text) const {
  std::string name = key;
  for (std::size_t at; (at = name.find('/')) != std::string::npos;) name.replace(at, 1, "%2F");
  write_file(folder() / "objects" / name, text);
}

AwsEnvironment::AwsEnvironment(const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const char* name : aws_variables) ::unsetenv(name);
  // No test reads the files of the person who runs it.
  for (const char* name : {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"}) ::setenv(name, "/does/not/exist", 1);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

AwsEnvironment::~AwsEnvironment() {
  for (const char* name : aws_variables) ::unsetenv(name);
}

}  // namespace kiln::fakes
