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

#include "store/signature_block.hpp"

namespace kiln::store {

/// The maximum size of a sealed entry, and of its decompressed contents.
inline constexpr std::uint64_t max_entry_bytes = std::uint64_t{1} << 30;

/// The name of the part that holds a program's binary.
inline constexpr std::string_view binary_part = "binary";

/// The name of the part that holds Request::describe_files(), in entries of sources that include files.
inline constexpr std::string_view files_part = "files";

/// A compiled program and its metadata.
struct Entry {
  /// By name: `binary_part` and `files_part`. Kiln 0.1 wrote the files into the facts.
  std::map<std::string, Binary, std::less<>> parts = {};
  /// How long the compiler took; a hit saves this time.
  std::chrono::nanoseconds compile_time = {};
  /// Stored in whole seconds.
  std::chrono::system_clock::time_point created = {};
  /// Request::describe(), for users and tools.
  std::string facts = {};

  /// The part `binary_part`; null if there is none.
  const Binary* binary() const;
};

/// The key and device of an entry; covered by the entry's checksum.
struct EntryLabel {
  Digest key = {};
  /// Identity::digest() and Identity::target_digest() of the device and compiler that produced it.
  Digest identity = {};
  Digest target = {};
};

/// Whether the parts of an entry are compressed. Plain parts take more room and load faster.
enum class Packing { compressed, plain };

/// Serialises an entry to the format of docs/format.md, which all stores use.
std::vector<std::byte> seal_entry(const EntryLabel& label, const Entry& entry,
                                  Packing packing = Packing::compressed);

/// A sealed entry whose checksum matches, and which is not decompressed yet.
struct ExaminedEntry {
  EntryLabel label = {};
  std::uint32_t version = 0;
  std::chrono::nanoseconds compile_time = {};
  /// SHA-256 of the body, which includes the label.
  Digest body_digest = {};
  /// In the order of the entry. Format 2 has none.
  std::vector<Signature> signatures = {};
  /// Non-owning: a part of the sealed entry.
  std::span<const std::byte> body = {};
};

/// Whether the SHA-256 of an entry is computed, or the caller has compared all its bytes with another checksum.
enum class Checksum { compare, was_compared };

/// Checks magic number, version, sizes, checksum and the form of the signatures. Decompresses nothing. Accepts the
/// current format and format 2; anything else is ErrorCode::damaged with the reason. Format 2 has no target digest:
/// `label.target` is then all zeros.
Result<ExaminedEntry> examine_entry(std::span<const std::byte> sealed, Checksum checksum = Checksum::compare);

/// A sealed entry that passed all checks.
struct OpenedEntry {
  EntryLabel label;
  Entry entry;
};

/// Decompresses an entry from examine_entry(); the sealed bytes must still exist. ErrorCode::damaged if its
/// contents are not well-formed.
Result<OpenedEntry> unpack_entry(const ExaminedEntry& examined);

/// examine_entry() and unpack_entry(): checks every byte. Does not verify signatures.
Result<OpenedEntry> open_entry(std::span<const std::byte> sealed, Checksum checksum = Checksum::compare);

/// The sealed entry with these signatures in place of its own, sorted by signer. Computes no checksum. Fails with
/// invalid_request if two signatures have one signer, a name has no valid size, or the signatures are too large,
/// with unsupported for an entry of format 2, and with damaged if the sizes in the header do not match.
Result<std::vector<std::byte>> with_signatures(std::span<const std::byte> sealed,
                                               std::span<const Signature> signatures);

/// An entry that is not on disk yet.
struct UnsavedEntry {
  Entry entry;
  /// The sealed bytes, if the entry came from a store; they are then saved unchanged.
  std::vector<std::byte> sealed = {};
  /// Another level has the program too, so a save that fails is no failure.
  bool is_elsewhere = false;
};

}  // namespace kiln::store
