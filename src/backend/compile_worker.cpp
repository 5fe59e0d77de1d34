#include "backend/compile_worker.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "backend/probe.hpp"
#include "base/try.hpp"

namespace kiln::backend {
namespace {

constexpr std::size_t max_output = 16'384;
/// How long a helper may take to greet.
constexpr auto greeting_limit = std::chrono::seconds(5);

/// The milliseconds for poll(): -1 without a deadline.
int milliseconds_to(CompileWorker::Deadline deadline) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace

Result<std::unique_ptr<CompileWorker>> CompileWorker::start(const std::string& helper, const std::string& compiler,
                                                            const std::string& library) {
  const auto cannot = [&helper] {
    return Error(ErrorCode::io, fmt::format("cannot start {}: {}", helper, reason(errno)));
  };
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return cannot();
  base::FileHandle own = past_standard_streams(ends[0]);
  const base::FileHandle theirs = past_standard_streams(ends[1]);
  base::FileHandle output = past_standard_streams(memfd_create("kiln-compiler-output", MFD_CLOEXEC));
  if (!own || !theirs || !output || fcntl(own.get(), F_SETFL, O_NONBLOCK) != 0) return cannot();
  auto process =
      KILN_TRY(ChildProcess::start(helper, {"compile", compiler, library},
                                   {.input = theirs.get(), .output = output.get(), .error = output.get()}));
  return std::make_unique<CompileWorker>(std::move(process), std::move(own), std::move(output));
}

std::variant<std::string, CompileWorker::Failed> CompileWorker::compile(const std::string& call,
                                                                        Deadline deadline) {
  // The process shares the position in this file.
  static_cast<void>(ftruncate(output_.get(), 0));
  static_cast<void>(lseek(output_.get(), 0, SEEK_SET));
  const MessageSize size = call.size();
  std::string sending(reinterpret_cast<const char*>(&size), sizeof size);
  sending += call;
  std::size_t sent = 0;
  std::string received;
  const auto greeting_deadline = std::chrono::steady_clock::now() + greeting_limit;
  for (;;) {
    const Deadline until =
        !greeted_ ? Deadline(std::min(greeting_deadline, deadline.value_or(greeting_deadline))) : deadline;
    // Poll the process too: a child that another thread has forked may keep the other end of the socket open.
    std::array<pollfd, 2> waiting = {
        {{socket_.get(), static_cast<short>(POLLIN | (sent < sending.size() ? POLLOUT : 0)), 0},
         {process_.handle(), POLLIN, 0}}};
    const int ready = poll(waiting.data(), waiting.size(), milliseconds_to(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return fail({});
    if (ready == 0) {
      if (until && std::chrono::steady_clock::now() >= *until)
        return fail({.timed_out = greeted_, .is_foreign = !greeted_});
      continue;
    }
    if ((waiting[0].revents & POLLOUT) != 0) {
      const ssize_t written =
          send(socket_.get(), sending.data() + sent, sending.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written > 0) sent += static_cast<std::size_t>(written);
    }
    bool ended = waiting[1].revents != 0;
    if ((waiting[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      std::array<char, 65'536> part;
      const ssize_t got = recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
      if (got > 0) {
        received.append(part.data(), static_cast<std::size_t>(got));
        // There may be more, also of a process that has ended.
        ended = false;
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended = true;
      }
    }
    if (!greeted_) {
      const std::string_view greeting = helper_greeting();
      if (!greeting.starts_with(std::string_view(received).substr(0, greeting.size())))
        return fail({.is_foreign = true});
      if (received.starts_with(greeting)) {
        greeted_ = true;
        received.erase(0, greeting.size());
      }
    }
    MessageSize expected = 0;
    if (greeted_ && received.size() >= sizeof expected) {
      std::memcpy(&expected, received.data(), sizeof expected);
      if (expected > max_message || received.size() - sizeof expected > expected) return fail({.is_foreign = true});
      if (received.size() == sizeof expected + expected) return received.substr(sizeof expected);
    }
    if (ended) {
      Failed failed = fail({});
      // A helper that was killed before its greeting may be a good one.
      failed.is_foreign = !greeted_ && !(failed.end && failed.end->signal == SIGKILL);
      return failed;
    }
  }
}

CompileWorker::Failed CompileWorker::fail(Failed how) {
  how.end = process_.end();
  how.output = last_output();
  return how;
}

std::string CompileWorker::last_output() const {
  const off_t size = lseek(output_.get(), 0, SEEK_END);
  if (size <= 0) return {};
  std::string text(std::min(static_cast<std::size_t>(size), max_output), '\0');
  const ssize_t got = pread(output_.get(), text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

void CompileWorker::leave_to_parent() noexcept {
  process_.leave_to_parent();
  socket_.close();
  output_.close();
}

}  // namespace kiln::backend
