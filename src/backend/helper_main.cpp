// kiln-helper: loads GPU drivers and compilers in a separate process, so that a crash or hang cannot affect the
// application. Started by Kiln, not by users.
//
//   kiln-helper devices API             the devices of an API, as JSON
//   kiln-helper compile nvrtc LIBRARY   compiles what it is sent
//
// It first writes a greeting with its version. `devices` then writes one line with the answer to standard output;
// output of drivers to standard output is redirected to standard error. `compile` reads calls from the socket that
// is its standard input, and writes the replies to it.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/api.hpp"
#include "backend/compile_worker.hpp"
#include "backend/cuda/rtc.hpp"
#include "backend/device_info.hpp"
#include "backend/probe.hpp"

namespace kiln::backend {
namespace {

constexpr int ok = 0;
constexpr int failed = 1;
constexpr int misused = 2;

/// Makes a driver's crash end this process at once, without a sanitizer report or a core file.
void crash_silently() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) std::signal(signal, SIG_DFL);
  rlimit limit = {};
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &limit);
}

/// Ends this process with the thread that started it.
void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

/// The parent handles interrupts from the terminal.
void ignore_interrupts() {
  for (const int signal : {SIGINT, SIGQUIT}) std::signal(signal, SIG_IGN);
}

/// Whether the pipe has a reader. It has none if the parent ended before die_with_parent().
bool is_read(int descriptor) {
  pollfd output = {descriptor, 0, 0};
  return poll(&output, 1, 0) <= 0 || (output.revents & POLLERR) == 0;
}

/// Duplicates standard output for the answer, then redirects it to standard error for the drivers. Returns -1 if
/// standard output is closed.
int take_standard_output() {
  const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  // Open closed standard streams, so that no file of a driver gets the number of one.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return output;
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

int list_devices_of(std::string_view name, int output) {
  const Api* api = find_api(name);
  if (api == nullptr) return misused;
  return write_all(output, to_json_line(api->list({})) + "\n") ? ok : failed;
}

/// Ends this process when its parent has ended. The socket alone does not tell: a process that the parent forked
/// may keep its other end open.
void end_with_parent(int socket, pid_t parent) {
  for (;;) {
    pollfd other_end = {socket, POLLRDHUP, 0};
    constexpr int milliseconds = 200;
    if (poll(&other_end, 1, milliseconds) > 0 || getppid() != parent) _exit(ok);
  }
}

bool read_all(int descriptor, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t got = read(descriptor, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<std::string> read_message(int socket) {
  MessageSize size = 0;
  if (!read_all(socket, reinterpret_cast<char*>(&size), sizeof size) || size > max_message) return std::nullopt;
  std::string message(size, '\0');
  return read_all(socket, message.data(), message.size()) ? std::optional(std::move(message)) : std::nullopt;
}

bool write_message(int socket, const std::string& message) {
  const MessageSize size = message.size();
  return write_all(socket, {reinterpret_cast<const char*>(&size), sizeof size}) && write_all(socket, message);
}

/// If memory runs out, the system should end this process and not the application.
void be_first_out_of_memory() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  static_cast<void>(write_all(file, "500"));
  close(file);
}

int compile_calls(const std::string& library) {
  const pid_t parent = getppid();
  const int socket = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (socket < 0) return failed;
  // Before the greeting: a helper that ends without one is not used.
  std::thread(end_with_parent, socket, parent).detach();
  if (!write_all(socket, helper_greeting())) return failed;
  // Compilers must not read from it.
  if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
  be_first_out_of_memory();
  while (const auto message = read_message(socket)) {
    const auto call = cuda::RtcCall::from_bytes(*message);
    if (!call || !write_message(socket, cuda::Rtc::reply_to(library, *call).to_bytes())) return failed;
  }
  return ok;
}

int run(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "compile" && std::string_view(argv[2]) == "nvrtc")
    return compile_calls(argv[3]);
  die_with_parent();
  const int output = take_standard_output();
  if (!write_all(output, helper_greeting()) || !is_read(output)) return failed;
  if (argc == 3 && std::string_view(argv[1]) == "devices") return list_devices_of(argv[2], output);
  return misused;
}

}  // namespace
}  // namespace kiln::backend

int main(int argc, char** argv) {
  using namespace kiln::backend;
  crash_silently();
  ignore_interrupts();
  int status = failed;
  try {
    status = run(argc, argv);
  } catch (...) {
    // The parent reports the missing answer.
  }
  if (status == misused)
    std::fputs(
        "usage: kiln-helper devices cuda|hip|vulkan|opengl|opencl\n       kiln-helper compile nvrtc LIBRARY\n",
        stderr);
  // Skip exit handlers: some drivers crash in theirs.
  _exit(status);
}
