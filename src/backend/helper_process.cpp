#include "backend/helper_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <fmt/format.h>

#include "backend/probe.hpp"
#include "base/try.hpp"

namespace kiln::backend {
namespace {

/// Larger than any list of devices.
constexpr std::size_t max_answer = std::size_t{1} << 20;

/// Appends the available bytes to `text`. Returns whether more may follow.
bool drain(int descriptor, std::string& text) {
  for (;;) {
    std::array<char, 4096> part;
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > max_answer) return false;
  }
}

/// The first line of a text, at most 60 printable characters, for an error message.
std::string first_line(std::string_view text) {
  std::string line(text.substr(0, std::min<std::size_t>(text.find('\n'), 60)));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace

/// The part of an answer that has been read.
struct HelperProcess::Reading {
  std::string text = {};
  bool timed_out = false;

  /// Whether the text matches the greeting as far as it has been read.
  bool may_be_greeted() const { return helper_greeting().starts_with(text.substr(0, helper_greeting().size())); }
  bool greeted() const { return text.starts_with(helper_greeting()); }
  std::optional<std::string> line() const {
    if (!greeted()) return std::nullopt;
    const std::size_t begin = helper_greeting().size();
    const std::size_t end = text.find('\n', begin);
    return end != std::string::npos ? std::optional(text.substr(begin, end - begin)) : std::nullopt;
  }
  bool complete() const { return !may_be_greeted() || line(); }
};

Result<HelperProcess> HelperProcess::start(const std::string& helper, const std::vector<std::string>& arguments) {
  const auto cannot = [&helper](int error) {
    return Error(ErrorCode::io, fmt::format("cannot start {}: {}", helper, reason(error)));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return cannot(errno);
  base::FileHandle reading = past_standard_streams(ends[0]);
  const base::FileHandle writing = past_standard_streams(ends[1]);
  if (!reading || !writing || fcntl(reading.get(), F_SETFL, O_NONBLOCK) != 0) return cannot(errno);
  auto process = KILN_TRY(ChildProcess::start(helper, arguments, {.output = writing.get()}));
  return HelperProcess(helper, std::move(reading), std::move(process));
}

Result<HelperAnswer> HelperProcess::answer(Deadline deadline) {
  const Reading reading = read(deadline);
  const auto end = process_.end();
  if (reading.greeted()) return HelperAnswer{.line = reading.line(), .timed_out = reading.timed_out, .end = end};
  if (reading.text.empty())
    return Error(
        ErrorCode::io,
        fmt::format("{} {}", helper_, reading.timed_out ? "did not answer in time" : "exited without an answer"));
  return Error(ErrorCode::io,
               fmt::format("{} is not the helper of this version of Kiln: it says \"{}\", not \"{}\"", helper_,
                           first_line(reading.text), first_line(helper_greeting())));
}

/// Reads until the answer is complete, the process has ended, or the deadline has passed.
HelperProcess::Reading HelperProcess::read(Deadline deadline) const {
  Reading reading;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // Also poll the process: a child that another thread has forked may keep the pipe open.
    std::array<pollfd, 2> waiting = {{{reading_.get(), POLLIN, 0}, {process_.handle(), POLLIN, 0}}};
    const int ready =
        poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      reading.timed_out = true;
      return reading;
    }
    const bool ended = waiting[1].revents != 0;
    const bool more = drain(reading_.get(), reading.text);
    if (reading.complete() || ended || !more) return reading;
  }
}

}  // namespace kiln::backend
