#include "stop_request.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <poll.h>

namespace kiln::cli {
namespace {

std::atomic<const base::Event*> interrupted{nullptr};

void on_interrupt(int /*signal*/) {
  const int before = errno;
  if (const base::Event* event = interrupted) event->set();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  errno = before;
}

}  // namespace

StopRequest::StopRequest() {
  interrupted = &event_;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    // A command in the background of a script ignores Ctrl-C.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

StopRequest::~StopRequest() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == on_interrupt) std::signal(signal, SIG_DFL);
  }
  interrupted = nullptr;
}

bool StopRequest::happened() const {
  pollfd wait = {event_.descriptor(), POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace kiln::cli
