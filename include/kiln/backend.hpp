#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// A compiled program as the driver gives it out and takes it back.
struct Binary {
  /// The driver's own tag for the bytes, such as a GL binary format.
  std::uint32_t format = 0;
  std::vector<std::byte> bytes = {};
};

/// A program loaded into a driver. Destroyed on any thread; keeps alive what it needs of its device.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  /// How much memory the program takes, as far as the driver tells.
  virtual std::size_t bytes() const noexcept = 0;
};

/// What compiling yields: a loaded program and, if the driver provides one, its binary.
struct Compiled {
  std::unique_ptr<Module> module = {};
  std::optional<Binary> binary = {};
};

/// What a cache needs of a GPU. Implementations must be thread-safe.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// What decides whether a binary fits; does not change while the backend lives.
  virtual const Identity& identity() const noexcept = 0;
  /// Compiles and loads. ErrorCode::out_of_memory makes the cache evict and try again.
  virtual Result<Compiled> compile(const Request& request) = 0;
  /// Loads what compile() gave out under an equal identity. A refusal is an error, never a broken module.
  virtual Result<std::unique_ptr<Module>> load(const Binary& binary) = 0;
  /// Whether threads of the cache's own may compile and load, besides those that call it.
  virtual bool usable_from_any_thread() const noexcept { return true; }
};

}  // namespace kiln
