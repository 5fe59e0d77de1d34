#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/digest.hpp>

#include "store/object_store.hpp"

/// catalogue.json lists the programs of one identity in a shared store (docs/format.md), so that a reader can fetch
/// the most expensive programs first, also from a server that cannot list its objects. It may be outdated or wrong:
/// entries are checked one by one.
namespace kiln::store {

struct CataloguedProgram {
  /// Of the sealed entry.
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds compile_time = {};

  friend bool operator==(const CataloguedProgram&, const CataloguedProgram&) = default;
};

using Catalogue = std::map<Digest, CataloguedProgram>;

/// `identity` is Identity::digest(), as hexadecimal text.
inline std::string catalogue_path(const std::string& identity) {
  return std::string(entries_folder) + "/" + identity + "/catalogue.json";
}

/// More programs are left out, those with the shortest compile times first.
inline constexpr std::size_t max_catalogued_programs = 50'000;

/// The contents of a catalogue.json; the most expensive programs first.
std::string catalogue_text(const Catalogue& catalogue);
/// Nothing if the text is no catalogue, or longer than one can be.
std::optional<Catalogue> parse_catalogue(std::string_view text);

}  // namespace kiln::store
