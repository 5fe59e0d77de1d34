#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// A compiled program in the driver's own format. A value.
struct Binary {
  /// The driver's tag for the format of the bytes, as in OpenGL's binary formats.
  std::uint32_t format = 0;
  std::vector<std::byte> bytes = {};
};

/// A program loaded into a driver. It shares ownership of the parts of its device that it needs, so it may outlive
/// the device, and it may be destroyed on any thread.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  /// The memory that the program takes: an estimate, often the size of its binary. Does not change. Called from any
  /// thread.
  virtual std::size_t bytes() const noexcept = 0;

  /// False if the program was loaded from a binary and PoCL has no compiled code for its kernels: see
  /// docs/headers.md. PoCL still compiles at the first launch with a new group size. Does not change. Called from
  /// any thread.
  virtual bool is_complete() const noexcept { return true; }

  /// The names of its entry points, in the order of the request; empty if the backend cannot list them. Called from
  /// any thread.
  virtual std::vector<std::string> entries() const { return {}; }
  /// The entry point of this name, for Device::launch(); this module itself if it is the only one. Belongs to this
  /// module and is valid as long. Null if there is none. Called from any thread.
  virtual Module* entry(std::string_view /*name*/) noexcept { return nullptr; }
};

/// The result of Backend::compile(): a loaded program, never null, and its binary. Without a binary, a cache keeps
/// the program in memory only.
struct Compiled {
  std::unique_ptr<Module> module = {};
  std::optional<Binary> binary = {};
};

/// How soon a program is needed. Compilations that somebody waits for come before those of Cache::preload().
enum class Urgency { now, background };

/// The right to compile one program. Released on destruction, on the thread that got it.
class CompilePlace {
 public:
  CompilePlace() = default;
  CompilePlace(const CompilePlace&) = delete;
  CompilePlace& operator=(const CompilePlace&) = delete;
  virtual ~CompilePlace() = default;
};

/// The interface between a cache and a GPU. Device implements it for the APIs that Kiln knows; implement it
/// yourself for another.
///
/// Caches call all functions from any number of threads at once, and share ownership of the backend. Exceptions
/// from compile() and load() become errors: std::bad_alloc is out_of_memory, any other is device_failed. A backend
/// may request other programs from the cache that calls it; for the program that it is compiling, the cache returns
/// invalid_request.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// The device, driver and compiler: decides whether a stored binary fits. Does not change while the backend
  /// lives.
  virtual const Identity& identity() const noexcept = 0;
  /// Compiles a request and loads the program. The cache returns errors to its caller as they are, except
  /// out_of_memory: it evicts an unused program and calls again, until none is left. Kiln's own backends also
  /// return invalid_request (for a language of another API, say), compile_failed, unsupported (more shared memory
  /// than the device has), load_failed and device_failed.
  virtual Result<Compiled> compile(const Request& request) = 0;
  /// Loads a binary that compile() returned under an equal identity, perhaps on another machine. For the cache
  /// every error is a miss; after load_failed, it also removes the entry from its disk. out_of_memory is retried as
  /// above. A binary that is refused must return an error, never a broken module.
  virtual Result<std::unique_ptr<Module>> load(const Binary& binary) = 0;
  /// How well binaries that were made for `target` suit this device: 0 if not at all; else adapt() may be called with
  /// them, those with the largest number first. Only the first half of the identity counts. By default, 1 for the
  /// target of identity(), and 0 for all others.
  virtual unsigned accepts(const Identity& target) const;
  /// Loads a binary that was made for `target`, which accepts() permits. If that is another target than the
  /// device's own, the result may have a binary of the device's own identity, which loads faster: a cache keeps it
  /// on disk. Otherwise as load(), which it calls by default.
  virtual Result<Compiled> adapt(const Identity& target, const Binary& binary);
  /// Whether a cache may call compile() and load() on its own threads. If not, it calls them only on the threads
  /// that call the cache: get_async() and preload() then work on the calling thread.
  virtual bool usable_from_any_thread() const noexcept { return true; }
  /// How many threads can compile or load programs faster than fewer threads can; 0: as many as there are
  /// processors. Does not change while the backend lives.
  virtual unsigned useful_threads() const noexcept { return 0; }
  /// Waits until this process may compile one more program. A cache calls it before it locks a program against
  /// other processes, so that it locks no more programs than it compiles; the next compile() of the thread uses the
  /// place. Null: any number of threads may compile at once.
  virtual std::unique_ptr<CompilePlace> wait_for_place(Urgency /*urgency*/) { return nullptr; }
};

}  // namespace kiln
