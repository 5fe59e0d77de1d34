#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.hpp"

namespace kiln::backend {

/// How many processors this process may run on, by its affinity; at least 1.
unsigned usable_processors();

/// The processors that are divided, and where. Tests set their own.
struct Machine {
  unsigned processors = usable_processors();
  /// Folders that everybody may write to, the first choice first.
  std::vector<std::string> folders = {"/dev/shm", "/tmp"};
};

/// Divides the processors between all processes of this user that compile. Each process that compiles, and each
/// compile worker, holds a lock on a byte of a file in /dev/shm or /tmp, which the kernel releases when the process
/// ends. Without such a file, each process counts only for itself. Not thread-safe.
class Processors {
 public:
  explicit Processors(Machine machine) : machine_(std::move(machine)) {}

  /// How many processors this process may run on.
  unsigned count() const noexcept { return machine_.processors; }
  /// How many of them this process should use while it compiles: its share, at least 1.
  unsigned share() const;

  /// Whether this process counts as one that compiles.
  void set_compiling(bool compiling);

  /// The right to run one worker; none if all processors of the machine have one.
  class Token {
   public:
    Token(Processors& of, unsigned number, std::optional<base::FileLock> lock)
        : of_(of), number_(number), lock_(std::move(lock)) {}
    ~Token() { of_.taken_.erase(number_); }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    friend class Processors;
    Processors& of_;
    const unsigned number_;
    std::optional<base::FileLock> lock_;
  };
  std::unique_ptr<Token> take_token();

  /// In a forked child: closes the file without releasing the locks, which are the parent's. Tokens must not be
  /// used or destroyed afterwards.
  void leave_to_parent() noexcept;

 private:
  /// Opened when it is first needed; empty if there is none.
  const base::FileHandle& file();

  const Machine machine_;
  bool looked_for_file_ = false;
  base::FileHandle file_;
  std::optional<base::FileLock> compiling_;
  std::set<unsigned> taken_;
};

}  // namespace kiln::backend
