#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/file_system.hpp"

namespace kiln::fakes {

/// The real file system with an injected fault in one call, or in all calls from one on. Calls are numbered from 0.
/// close() is neither counted nor faulty, so that no descriptor leaks.
class FaultyFileSystem final : public base::FileSystem {
 public:
  enum class Fault {
    fails,        ///< the call fails with `error`
    is_short,     ///< a read or write transfers half of its bytes; other calls work normally
    kills,        ///< the process is killed before the call
    kills_after,  ///< the process is killed after the call
  };
  struct Plan {
    std::uint64_t at = std::numeric_limits<std::uint64_t>::max();
    Fault fault = Fault::fails;
    int error = EIO;
    /// Whether all later calls fail, too.
    bool from_then_on = false;
  };

  explicit FaultyFileSystem(Plan plan) : plan_(plan) {}

  /// The number of calls so far.
  std::uint64_t calls() const noexcept { return calls_; }
  /// Whether a fault was injected.
  bool went_wrong() const noexcept { return went_wrong_; }

  int make_folder(int folder, const char* name, mode_t mode) const override {
    return call([&] { return FileSystem::make_folder(folder, name, mode); });
  }
  int open(int folder, const char* name, int flags, mode_t mode) const override {
    return call([&] { return FileSystem::open(folder, name, flags, mode); });
  }
  ssize_t read(int file, void* bytes, std::size_t count) const override {
    return transfer(count, [&](std::size_t most) { return FileSystem::read(file, bytes, most); });
  }
  ssize_t read_at(int file, void* bytes, std::size_t count, off_t place) const override {
    return transfer(count, [&](std::size_t most) { return FileSystem::read_at(file, bytes, most, place); });
  }
  ssize_t write(int file, const void* bytes, std::size_t count) const override {
    return transfer(count, [&](std::size_t most) { return FileSystem::write(file, bytes, most); });
  }
  int truncate(int file, off_t size) const override {
    return call([&] { return FileSystem::truncate(file, size); });
  }
  int sync(int file) const override {
    return call([&] { return FileSystem::sync(file); });
  }
  int rename(int folder, const char* from, const char* to) const override {
    return call([&] { return FileSystem::rename(folder, from, to); });
  }
  int unlink(int folder, const char* name) const override {
    return call([&] { return FileSystem::unlink(folder, name); });
  }
  int status(int file, struct stat* status) const override {
    return call([&] { return FileSystem::status(file, status); });
  }
  int status(int folder, const char* name, struct stat* status) const override {
    return call([&] { return FileSystem::status(folder, name, status); });
  }
  int touch(int folder, const char* name) const override {
    return call([&] { return FileSystem::touch(folder, name); });
  }
  int lock(int file, int command, struct flock* request) const override {
    return call([&] { return FileSystem::lock(file, command, request); });
  }
  int list(int folder, std::vector<std::string>* names) const override {
    return call([&] { return FileSystem::list(folder, names); });
  }

 private:
  bool goes_wrong() const {
    const std::uint64_t number = calls_++;
    const bool wrong = plan_.from_then_on ? number >= plan_.at : number == plan_.at;
    if (wrong) went_wrong_ = true;
    if (wrong && plan_.fault == Fault::kills) ::kill(::getpid(), SIGKILL);
    return wrong;
  }

  template <class Call>
  int call(Call call) const {
    const bool wrong = goes_wrong();
    if (wrong && plan_.fault == Fault::fails) return errno = plan_.error, -1;
    const int result = call();
    if (wrong && plan_.fault == Fault::kills_after) ::kill(::getpid(), SIGKILL);
    return result;
  }

  template <class Call>
  ssize_t transfer(std::size_t count, Call call) const {
    const bool wrong = goes_wrong();
    if (wrong && plan_.fault == Fault::fails) return errno = plan_.error, -1;
    const ssize_t result = call(wrong && plan_.fault == Fault::is_short ? (count + 1) / 2 : count);
    if (wrong && plan_.fault == Fault::kills_after) ::kill(::getpid(), SIGKILL);
    return result;
  }

  const Plan plan_;
  mutable std::atomic<std::uint64_t> calls_{0};
  mutable std::atomic<bool> went_wrong_{false};
};

}  // namespace kiln::fakes
