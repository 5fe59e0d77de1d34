#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln::store {

/// The upper limit for a sealed entry, and for everything unpacked from one.
inline constexpr std::uint64_t max_entry_bytes = std::uint64_t{1} << 30;

/// The part that holds a program's binary.
inline constexpr std::string_view binary_part = "binary";

/// A compiled program and what is known of it.
struct Entry {
  /// By name. Programs of Kiln's own backends have one, `binary_part`.
  std::map<std::string, Binary, std::less<>> parts = {};
  /// How long the compiler took: what a hit saves.
  std::chrono::nanoseconds compile_time = {};
  /// Kept in whole seconds.
  std::chrono::system_clock::time_point created = {};
  /// Request::describe(), for people and tools.
  std::string facts = {};

  /// The binary; null if the entry has no such part.
  const Binary* binary() const;
};

/// What an entry is for. The digests are sealed together with the entry.
struct EntryLabel {
  Digest key = {};
  /// Identity::digest() and Identity::target_digest() of the device and compiler that made it.
  Digest identity = {};
  Digest target = {};
};

/// The entry as stores move it: one array of bytes, described in docs/format.md.
std::vector<std::byte> seal_entry(const EntryLabel& label, const Entry& entry);

/// A sealed entry that was checked whole.
struct OpenedEntry {
  EntryLabel label;
  Entry entry;
};

/// Checks every byte and unpacks. Anything that is not exactly what seal_entry() makes, or what format 2 was, is
/// ErrorCode::damaged with a sentence that says what is wrong. Format 2 had no target: it is all zeros.
Result<OpenedEntry> open_entry(std::span<const std::byte> sealed);

/// An entry on its way to disk.
struct UnsavedEntry {
  Entry entry;
  /// The sealed bytes, if the entry came with them; they are then saved as they are.
  std::vector<std::byte> sealed = {};
};

}  // namespace kiln::store
