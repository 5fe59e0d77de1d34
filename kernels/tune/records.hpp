#pragma once

#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/kernels/tuner.hpp>

#include "base/file.hpp"

namespace kiln::tune {

/// What is known for a device, by call; of more than so many, what is worth the least is forgotten.
class Records {
 public:
  static constexpr std::size_t most_records = 1024;

  const std::vector<TuneRecord>& all() const noexcept { return all_; }
  /// That of a call; null where nothing is known.
  const TuneRecord* find(const TuneRecord& like) const noexcept;
  /// Adds what was measured since: a trial takes the place of one of the same variant. What was measured with this
  /// driver takes the place of hints.
  void add(const TuneRecord& record);
  void add(const std::vector<TuneRecord>& records);
  /// Has what is known of a call measured anew.
  void doubt(const TuneRecord& like);

 private:
  std::vector<TuneRecord> all_;
};

/// Whether both are of the same call.
bool same_call(const TuneRecord& a, const TuneRecord& b) noexcept;
/// Sorts the trials, the best first.
void rank(TuneRecord& record);

/// What tuning.json of a device folder holds. A missing or damaged file holds nothing; one of another driver or
/// compiler for the same device holds hints; one of a newer version is an error, and not to be written over.
Result<std::vector<TuneRecord>> read_records(const base::Folder& folder, const Identity& identity);
/// What other folders of the cache directory hold.
struct Elsewhere {
  /// For the same device with another driver or compiler.
  std::vector<TuneRecord> hints;
  /// For other devices of the vendor's, by the same API.
  std::vector<TuneRecord> relatives;
};
Elsewhere read_elsewhere(const std::filesystem::path& folder, const Identity& identity);
/// Adds to tuning.json, under a lock against other processes that do the same.
Result<void> write_records(const std::filesystem::path& folder, const Identity& identity,
                           const std::vector<TuneRecord>& more);

/// The same device, though perhaps with another driver or compiler.
bool same_device(const Identity& a, const Identity& b);

/// The text of tuning.json, and what it holds; nothing where it is no such text.
std::string to_json(const Identity& identity, const std::vector<TuneRecord>& records);
struct Parsed {
  Identity identity;
  std::vector<TuneRecord> records;
};
Result<std::optional<Parsed>> parse(std::string_view text);

}  // namespace kiln::tune
