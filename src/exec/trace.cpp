#include "exec/trace.hpp"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace kiln::exec {
namespace {

/// Buffered events are written to the file at this size.
constexpr std::size_t block = std::size_t{64} << 10;

double microseconds(Trace::Time time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

/// trace.json -> trace-4711-2.json.
std::filesystem::path beside(const std::filesystem::path& file, unsigned number) {
  return file.parent_path() /
         fmt::format("{}-{}-{}{}", file.stem().string(), ::getpid(), number, file.extension().string());
}

}  // namespace

std::string as_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::unique_ptr<Trace>> Trace::open(const std::filesystem::path& file) {
  std::filesystem::path path = file;
  for (unsigned number = 2; number < 1000; ++number) {
    base::FileHandle handle(
        base::FileSystem::system().open(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!handle) return base::system_error("write the trace", path);
    // Truncate only with the lock, because another executor may be writing this file.
    if (::flock(handle.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
      if (::ftruncate(handle.get(), 0) != 0 && errno != EINVAL) return base::system_error("write the trace", path);
      return std::make_unique<Trace>(std::move(handle), std::move(path));
    }
    path = beside(file, number);
  }
  return Error(
      ErrorCode::io,
      fmt::format("cannot write the trace {}: 1000 executors already write traces beside it", file.string()));
}

Trace::Trace(base::FileHandle file, std::filesystem::path path) noexcept
    : path_(std::move(path)), file_(std::move(file)), waiting_("[") {}

void Trace::finish() {
  const base::MutexLock lock(mutex_);
  if (std::exchange(finished_, true)) return;
  waiting_ += "\n]\n";
  write_out();
}

void Trace::track(unsigned number, std::string_view name) {
  append(fmt::format(R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
                     ::getpid(), number, as_json(name)));
}

void Trace::ran(unsigned track, std::string_view name, std::string_view kind, Time begin, Time end,
                std::string_view details) {
  append(fmt::format(
      R"({{"ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {}}})",
      as_json(name), kind, ::getpid(), track, microseconds(begin), microseconds(end) - microseconds(begin),
      details));
}

void Trace::append(const std::string& event) {
  const base::MutexLock lock(mutex_);
  if (finished_) return;
  waiting_ += std::exchange(empty_, false) ? "\n" : ",\n";
  waiting_ += event;
  if (waiting_.size() >= block) write_out();
}

void Trace::write_out() {
  std::string_view left = waiting_;
  while (!left.empty()) {
    const ssize_t written = ::write(file_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    // A full disk only truncates the trace.
    if (written <= 0) break;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  waiting_.clear();
}

}  // namespace kiln::exec
