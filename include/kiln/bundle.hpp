#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include <kiln/store.hpp>

namespace kiln {

/// A file with programs that were compiled ahead of time, for devices of any kind. `kiln bake` writes it
/// (docs/bundles.md). It is read, never written, and may be in an image, on NFS or on a read-only file system. A
/// value.
struct Bundle {
  std::filesystem::path path = {};
  /// Whether the bundle needs a signature by a trusted key. Without one it is not used.
  Verification verify = Verification::off;

  friend bool operator==(const Bundle&, const Bundle&) = default;
};

/// What a cache does for a program that no level has.
enum class CompilePolicy {
  always,      ///< compiles it while the caller waits
  never,       ///< fails with not_compiled; the message names the program, its key and the bundles
  background,  ///< compiles it on a thread of the cache; Cache::get() fails with not_compiled until it is ready,
               ///< unless the backend is not usable_from_any_thread()
};

/// The name of a policy, as in "background". The text is static.
std::string_view to_string(CompilePolicy policy) noexcept;
/// The policy whose to_string() is `name`; nothing if there is none.
std::optional<CompilePolicy> compile_policy_of(std::string_view name) noexcept;

}  // namespace kiln
