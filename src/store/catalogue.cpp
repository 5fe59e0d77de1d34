#include "store/catalogue.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "store/json_file.hpp"

namespace kiln::store {
namespace {

/// A line has less than 120 bytes.
constexpr std::size_t max_catalogue_bytes = std::size_t{8} << 20;
constexpr int catalogue_version = 1;

/// Nothing if it is not a list of a key, a size and a time.
std::optional<Catalogue::value_type> program_in(const nlohmann::ordered_json& row) {
  if (!row.is_array() || row.size() != 3 || !row[0].is_string()) return std::nullopt;
  const auto key = base::digest_from_hex(row[0].get_ref<const std::string&>());
  const auto bytes = whole_number<std::uint64_t>(row[1]);
  const auto nanoseconds = whole_number<std::int64_t>(row[2]);
  if (!key || !bytes || *bytes > max_object_bytes || !nanoseconds || *nanoseconds < 0) return std::nullopt;
  return Catalogue::value_type(*key, {*bytes, std::chrono::nanoseconds(*nanoseconds)});
}

}  // namespace

std::string catalogue_text(const Catalogue& catalogue) {
  std::vector<const Catalogue::value_type*> sorted;
  sorted.reserve(catalogue.size());
  for (const auto& each : catalogue) sorted.push_back(&each);
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const Catalogue::value_type* each) { return each->second.compile_time; });
  if (sorted.size() > max_catalogued_programs) sorted.resize(max_catalogued_programs);
  std::string text = fmt::format("{{\"version\": {}, \"programs\": [", catalogue_version);
  std::string_view separator = "\n";
  for (const auto* each : sorted) {
    const auto& [key, program] = *each;
    text += fmt::format("{}[\"{}\", {}, {}]", separator, key.hex(), program.bytes, program.compile_time.count());
    separator = ",\n";
  }
  return text + "\n]}\n";
}

std::optional<Catalogue> parse_catalogue(std::string_view text) {
  if (text.size() > max_catalogue_bytes) return std::nullopt;
  const auto json = parse_json(text);
  if (!json) return std::nullopt;
  const auto version = json->find("version");
  const auto programs = json->find("programs");
  if (version == json->end() || *version != catalogue_version || programs == json->end() || !programs->is_array() ||
      programs->size() > max_catalogued_programs)
    return std::nullopt;
  Catalogue catalogue;
  for (const auto& row : *programs) {
    const auto program = program_in(row);
    if (!program) return std::nullopt;
    catalogue.insert(*program);
  }
  return catalogue;
}

}  // namespace kiln::store
