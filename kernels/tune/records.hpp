#pragma once

#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/kernels/tuner.hpp>

#include "base/file.hpp"

namespace kiln::tune {

/// The records of a device, one per call. If there are too many, drops the least valuable.
class Records {
 public:
  static constexpr std::size_t most_records = 1024;

  const std::vector<TuneRecord>& all() const noexcept { return all_; }
  /// The record of a call; null if there is none.
  const TuneRecord* find(const TuneRecord& like) const noexcept;
  /// Merges a record: a new trial replaces the old one of the same variant, and measurements with the current
  /// driver replace hints.
  void add(const TuneRecord& record);
  void add(const std::vector<TuneRecord>& records);
  /// Turns the record of a call into a hint, so that it is measured again.
  void doubt(const TuneRecord& like);

 private:
  std::vector<TuneRecord> all_;
};

bool same_call(const TuneRecord& a, const TuneRecord& b) noexcept;
/// Sorts the trials, best first.
void rank(TuneRecord& record);

/// The records in a device folder's tuning.json. None if the file is missing or damaged. If it is from another
/// driver or compiler for the same device, they are hints. A file of a newer version is an error, and must not be
/// overwritten.
Result<std::vector<TuneRecord>> read_records(const base::Folder& folder, const Identity& identity);
/// The records in other folders of the cache directory.
struct Elsewhere {
  /// Same device, other driver or compiler.
  std::vector<TuneRecord> hints;
  /// Other devices of the same vendor, with the same API.
  std::vector<TuneRecord> relatives;
};
Elsewhere read_elsewhere(const std::filesystem::path& folder, const Identity& identity);
/// Adds records to tuning.json. Waits up to two seconds for the lock, then continues without it.
Result<void> write_records(const std::filesystem::path& folder, const Identity& identity,
                           const std::vector<TuneRecord>& more);

/// Ignores the driver and the compiler.
bool same_device(const Identity& a, const Identity& b);

/// Writes and parses the text of tuning.json. parse() returns nothing if the text is invalid, and an error if its
/// version is newer.
std::string to_json(const Identity& identity, const std::vector<TuneRecord>& records);
struct Parsed {
  Identity identity;
  std::vector<TuneRecord> records;
};
Result<std::optional<Parsed>> parse(std::string_view text);

}  // namespace kiln::tune
