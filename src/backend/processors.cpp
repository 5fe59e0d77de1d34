#include "backend/processors.hpp"

#include <algorithm>
#include <memory>

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::backend {
namespace {

// Bytes of the file: one for each token, and one for each process that compiles.
constexpr unsigned first_process = 4096;
constexpr unsigned max_processes = 256;
/// Processes take the lowest free byte, so that many free bytes in a row are followed by free ones.
constexpr unsigned free_in_a_row = 16;

/// A file of this user in a folder that everybody may write to; empty if it cannot be had, or if it may be another
/// user's.
base::FileHandle open_in(const std::string& folder) {
  const std::string path = fmt::format("{}/kiln-compiling-{}", folder, ::geteuid());
  base::FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != ::geteuid() ||
      found.st_nlink != 1)
    return {};
  // Not the number of a standard stream, which the application may have closed.
  if (file.get() <= STDERR_FILENO) return base::FileHandle(::fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return file;
}

}  // namespace

unsigned usable_processors() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) return std::max(CPU_COUNT(&usable), 1);
  return std::max(std::thread::hardware_concurrency(), 1U);
}

const base::FileHandle& Processors::file() {
  if (looked_for_file_) return file_;
  looked_for_file_ = true;
  for (const std::string& folder : machine_.folders) {
    file_ = open_in(folder);
    // A file system without locks is as good as none.
    if (file_ && base::FileLock::is_held(file_, 0)) return file_;
  }
  return file_ = {};
}

unsigned Processors::share() const {
  if (!file_) return count();
  unsigned others = 0;
  unsigned free = 0;
  for (unsigned i = 0; i < max_processes && free < free_in_a_row; ++i) {
    // This process's own lock does not count as held.
    const bool held = base::FileLock::is_held(file_, first_process + i).value_or(false);
    others += held ? 1 : 0;
    free = held ? 0 : free + 1;
  }
  return std::max(count() / (others + 1), 1U);
}

void Processors::set_compiling(bool compiling) {
  if (!compiling) {
    compiling_.reset();
    return;
  }
  if (compiling_ || !file()) return;
  for (unsigned i = 0; i < max_processes && !compiling_; ++i)
    compiling_ = base::FileLock::acquire(file_, first_process + i, {});
}

std::unique_ptr<Processors::Token> Processors::take_token() {
  for (unsigned i = 0; i < count(); ++i) {
    if (taken_.contains(i)) continue;
    std::optional<base::FileLock> lock;
    if (file()) {
      lock = base::FileLock::acquire(file_, i, {});
      if (!lock) continue;
    }
    auto token = std::make_unique<Token>(*this, i, std::move(lock));
    taken_.insert(i);
    return token;
  }
  return nullptr;
}

void Processors::leave_to_parent() noexcept {
  // Closed first, so that releasing the lock has no effect on the parent's.
  file_.close();
  looked_for_file_ = false;
  compiling_.reset();
  taken_.clear();
}

}  // namespace kiln::backend
