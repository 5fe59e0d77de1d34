// kiln-helper: loads GPU drivers in a separate process, so that a crash or hang cannot affect the application.
// Started by Kiln, not by users.
//
//   kiln-helper devices API    the devices of an API, as JSON
//
// It writes a greeting with its version, then one line with the answer, to standard output. Output of drivers to
// standard output is redirected to standard error.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/api.hpp"
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

/// Ends this process when its parent ends. Ignores interrupts from the terminal: the parent handles them.
void die_with_parent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
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

int run(int argc, char** argv, int output) {
  if (!write_all(output, helper_greeting()) || !is_read(output)) return failed;
  if (argc == 3 && std::string_view(argv[1]) == "devices") return list_devices_of(argv[2], output);
  return misused;
}

}  // namespace
}  // namespace kiln::backend

int main(int argc, char** argv) {
  using namespace kiln::backend;
  crash_silently();
  die_with_parent();
  int status = failed;
  try {
    status = run(argc, argv, take_standard_output());
  } catch (...) {
    // The parent reports the missing answer.
  }
  if (status == misused) std::fputs("usage: kiln-helper devices cuda|hip|vulkan|opengl|opencl\n", stderr);
  // Skip exit handlers: some drivers crash in theirs.
  _exit(status);
}
