#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <kiln/backend.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

class EntryPoint;
struct Grid;

namespace memory {
class Resident;
}

/// The level that brought a program into memory, or Cache::add().
enum class Origin : std::uint8_t { compiled, disk, bundle, shared, added };

/// The name of an origin, as in "disk". The text is static.
std::string_view to_string(Origin origin) noexcept;

/// A counted handle on a loaded program, made by Cache: while one exists, the program is neither evicted nor
/// destroyed. Cheap to copy, cheaper to move. May be released on any thread, also after its cache was destroyed;
/// the last one then destroys the program. Two threads must not modify one handle at once; different handles on one
/// program are independent, and all functions on them may be called from any thread.
class Program {
 public:
  /// An empty handle.
  Program() = default;
  Program(const Program& other) noexcept;
  Program(Program&& other) noexcept
      : resident_(std::exchange(other.resident_, nullptr)), entry_(other.entry_), stripe_(other.stripe_) {}
  Program& operator=(Program other) noexcept {
    std::swap(resident_, other.resident_);
    std::swap(entry_, other.entry_);
    std::swap(stripe_, other.stripe_);
    return *this;
  }
  ~Program() {
    if (resident_ != nullptr) release();
  }

  /// Whether there is a program. All functions below require one, which is not checked.
  explicit operator bool() const noexcept { return resident_ != nullptr; }

  /// The key of its request. References from this and the next two functions are valid while a handle exists.
  const Key& key() const noexcept;
  const std::string& name() const noexcept { return key().name; }
  /// The loaded program, for Device::launch(). If it has several entry points, choose one with entry() first.
  Module& module() const noexcept;
  /// Another handle on this program, whose module() is the entry point of this name, as the request has it. Fails
  /// with invalid_request if there is none; the message lists those that there are.
  Result<Program> entry(std::string_view name) const;
  /// The same, to be launched at once: `program["saxpy"](device, {groups, group_size}, n, 2.0f, x, y)`.
  EntryPoint operator[](std::string_view name) const;
  /// The module as its backend's own type, as in `program.as<kiln::opengl::Module>().id()`. Throws
  /// std::bad_cast if it belongs to another backend.
  template <class T>
  T& as() const {
    return dynamic_cast<T&>(module());
  }

  /// The level that brought the program into memory.
  Origin origin() const noexcept;
  /// See Module::is_complete(), which refers to the time when the program was loaded.
  bool is_complete() const noexcept;
  /// How long it took to compile, in this process or in the one that compiled it.
  std::chrono::nanoseconds compile_time() const noexcept;
  /// Whether its binary was found on disk or saved there; it may have been pruned since.
  bool stored() const noexcept;
  /// The performance last noted, in GFLOP/s and in GB/s of memory read and written; 0 if none was noted.
  double gflops() const noexcept;
  double gbps() const noexcept;
  /// Notes a measured performance, in place of an earlier one. It is saved on disk, if there is one, at the cache's
  /// next flush().
  void note_gflops(double gflops) const noexcept;
  void note_gbps(double gbps) const noexcept;

 private:
  friend class memory::Resident;
  Program(memory::Resident* resident, std::uint32_t stripe) noexcept : resident_(resident), stripe_(stripe) {}
  void release() noexcept;

  memory::Resident* resident_ = nullptr;
  /// Null: the program itself.
  Module* entry_ = nullptr;
  std::uint32_t stripe_ = 0;
};

/// An entry point of a program, as a function. Made by Program::operator[]. A value.
class EntryPoint {
 public:
  explicit EntryPoint(Result<Program> program) : program_(std::move(program)) {}

  /// Launches it with these arguments, which are as in Launch::arguments. `target` is a Device, which waits for the
  /// end, or a Slot or a Stream, which enqueue. Fails with invalid_request if the program has no such entry point,
  /// and as the launch() of the target does. Include <kiln/launch.hpp>.
  template <class Target, class... Arguments>
  Result<void> operator()(Target& target, const Grid& grid, Arguments&&... arguments) const {
    if (!program_) return program_.error();
    return launch_on(target, program_->module(), grid, std::forward<Arguments>(arguments)...);
  }

 private:
  Result<Program> program_;
};

inline EntryPoint Program::operator[](std::string_view name) const { return EntryPoint(entry(name)); }

/// Data on one program in memory at the time of Cache::programs(). A value.
struct ProgramInfo {
  Key key = {};
  Origin origin = Origin::compiled;
  /// Module::bytes().
  std::size_t bytes = 0;
  /// Handles that exist.
  std::uint64_t references = 0;
  /// Times it was found in memory.
  std::uint64_t hits = 0;
  /// Grows with every use: of two programs, the one with the larger number was used later.
  std::uint64_t last_use = 0;
  /// This and the following members are as in Program.
  std::chrono::nanoseconds compile_time = {};
  double gflops = 0;
  double gbps = 0;
  bool stored = false;
};

}  // namespace kiln
