#include <algorithm>
#include <cerrno>
#include <limits>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/record_items.hpp"
#include "store/bundle.hpp"
#include "store/bundle_layout.hpp"
#include "store/json_file.hpp"
#include "store/unfinished_bundle.hpp"

namespace kiln::store {
namespace {

/// The identities as the index has them: sorted, each once.
struct SortedIdentities {
  struct Known {
    Identity identity;
    Digest target;
    Digest digest;
  };
  std::vector<Known> list;
  /// Of each identity of BundleContents, its index in `list`; of those that are left out, any number.
  std::vector<std::size_t> place_of;
};

/// An entry and what its row needs.
struct EntryToWrite {
  const EntryToBundle* entry = nullptr;
  /// An index into SortedIdentities::list.
  std::size_t identity = 0;
  Digest target = {};
  BundledProgram row = {};
};

SortedIdentities sort_identities(const BundleContents& contents) {
  std::vector<bool> is_used(contents.identities.size());
  for (const EntryToBundle& entry : contents.entries) is_used.at(entry.identity) = true;
  SortedIdentities sorted;
  for (std::size_t i = 0; i < is_used.size(); ++i)
    if (is_used[i]) {
      const Identity& identity = contents.identities[i];
      sorted.list.push_back({identity, identity.target_digest(), identity.digest()});
    }
  const auto order = [](const SortedIdentities::Known& known) {
    return std::tie(known.target, known.identity.compiler);
  };
  std::ranges::sort(sorted.list, {}, order);
  const auto is_same = [&order](const auto& one, const auto& other) { return order(one) == order(other); };
  sorted.list.erase(std::unique(sorted.list.begin(), sorted.list.end(), is_same), sorted.list.end());
  sorted.place_of.resize(is_used.size());
  for (std::size_t i = 0; i < is_used.size(); ++i) {
    if (!is_used[i]) continue;
    const Digest digest = contents.identities[i].digest();
    const auto found = std::ranges::find(sorted.list, digest, &SortedIdentities::Known::digest);
    sorted.place_of[i] = static_cast<std::size_t>(found - sorted.list.begin());
  }
  return sorted;
}

Result<base::FileHandle> open_to_read(const std::filesystem::path& path) {
  const base::FileSystem& system = base::FileSystem::system();
  base::FileHandle file(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                        system);
  if (!file) return base::system_error("read", path);
  return file;
}

/// Reads an entry and adds it.
Result<void> add_entry(UnfinishedBundle& writer, EntryToWrite& each, const SortedIdentities& identities) {
  const EntryToBundle& entry = *each.entry;
  const auto sealed = KILN_TRY(entry.read());
  const auto wrong = [&entry](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("the program with the key {} cannot be in a bundle: {}", entry.key.hex(), why));
  };
  const auto examined = examine_entry(sealed);
  if (!examined) return wrong(examined.error().code(), examined.error().message());
  const SortedIdentities::Known& identity = identities.list[each.identity];
  if (examined->version == 2)
    return wrong(ErrorCode::unsupported, "it has the format of Kiln 0.1; compile it again");
  if (examined->label.key != entry.key) return wrong(ErrorCode::damaged, "it is another program");
  if (examined->label.identity != identity.digest || examined->label.target != identity.target)
    return wrong(ErrorCode::damaged, fmt::format("it was not compiled for {} by {}", identity.identity.device,
                                                 identity.identity.compiler));
  if (sealed.size() > max_entry_bytes) return wrong(ErrorCode::unsupported, "it is larger than 1 GiB");
  KILN_TRY(writer.align());
  each.row = {.key = entry.key,
              .body = examined->body_digest,
              .offset = writer.size(),
              .size = sealed.size(),
              .checksum = xxh3_64(sealed),
              .identity = static_cast<std::uint32_t>(each.identity)};
  return writer.add(sealed);
}

struct RecordInBundle {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  Digest digest = {};
};

Result<RecordInBundle> add_record_of_requests(UnfinishedBundle& writer, const std::filesystem::path& path) {
  if (path.empty()) return RecordInBundle{};
  KILN_TRY(key::RequestRecord::read(path));
  const auto file = KILN_TRY(open_to_read(path));
  KILN_TRY(writer.align());
  RecordInBundle record{.offset = writer.size()};
  record.digest = KILN_TRY(writer.add_from(file, path, key::max_record_file_bytes));
  record.size = writer.size() - record.offset;
  return record.size == 0 ? RecordInBundle{} : record;
}

void write_identity(base::ByteWriter& writer, const Identity& identity) {
  for (const std::string* text :
       {&identity.api, &identity.vendor, &identity.device, &identity.driver, &identity.compiler})
    writer.text(*text);
  writer.number(static_cast<std::uint64_t>(identity.formats.size()));
  for (const std::uint32_t format : identity.formats) writer.number(format);
}

/// A row of the second table.
struct SecondRow {
  Digest target = {};
  Digest digest = {};
  std::uint32_t row = 0;

  friend auto operator<=>(const SecondRow&, const SecondRow&) = default;
};

std::vector<SecondRow> second_rows_of(const std::vector<EntryToWrite>& entries) {
  std::vector<SecondRow> rows;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const auto& digest = entries[i].entry->without_toolkit)
      rows.push_back({entries[i].target, *digest, static_cast<std::uint32_t>(i)});
  std::ranges::sort(rows);
  return rows;
}

/// `entries` are sorted by target and key.
std::vector<std::byte> index_of(const std::vector<EntryToWrite>& entries, const SortedIdentities& identities,
                                const RecordInBundle& record, const std::string& facts) {
  const auto second_rows = second_rows_of(entries);
  base::ByteWriter identity_table;
  for (const auto& known : identities.list) write_identity(identity_table, known.identity);
  base::ByteWriter target_table;
  std::uint32_t targets = 0;
  for (auto first = entries.begin(); first != entries.end(); ++targets) {
    const Digest& target = first->target;
    const auto end = std::find_if(first, entries.end(), [&](const auto& each) { return each.target != target; });
    target_table.raw(target.bytes);
    target_table.number(static_cast<std::uint32_t>(end - first));
    target_table.number(static_cast<std::uint32_t>(std::ranges::count(second_rows, target, &SecondRow::target)));
    first = end;
  }
  base::ByteWriter index;
  index.number(static_cast<std::uint32_t>(identities.list.size()));
  index.number(targets);
  index.number(static_cast<std::uint32_t>(entries.size()));
  index.number(static_cast<std::uint32_t>(second_rows.size()));
  index.number(static_cast<std::uint64_t>(identity_table.bytes().size()));
  index.number(static_cast<std::uint64_t>(facts.size()));
  index.raw(record.digest.bytes);
  index.number(record.size);
  index.raw(identity_table.bytes());
  index.raw(target_table.bytes());
  for (const EntryToWrite& each : entries) {
    index.raw(each.row.key.bytes);
    index.raw(each.row.body.bytes);
    index.number(each.row.offset);
    index.number(each.row.checksum);
    index.number(static_cast<std::uint32_t>(each.row.size));
    index.number(each.row.identity);
  }
  for (const SecondRow& each : second_rows) {
    index.raw(each.digest.bytes);
    index.number(each.row);
    index.number(std::uint32_t{0});
  }
  index.raw(std::as_bytes(std::span(facts)));
  return std::move(index).bytes();
}

/// The entries in the order of the index.
Result<std::vector<EntryToWrite>> sort_entries(const BundleContents& contents, const SortedIdentities& identities) {
  std::vector<EntryToWrite> entries;
  entries.reserve(contents.entries.size());
  for (const EntryToBundle& entry : contents.entries) {
    const std::size_t identity = identities.place_of[entry.identity];
    entries.push_back({.entry = &entry, .identity = identity, .target = identities.list[identity].target});
  }
  const auto order = [](const EntryToWrite& each) { return std::tie(each.target, each.entry->key); };
  std::ranges::sort(entries, {}, order);
  if (const auto twice = std::ranges::adjacent_find(entries, {}, order); twice != entries.end())
    return Error(ErrorCode::invalid_request,
                 fmt::format("a bundle cannot have the key {} twice for {}", twice->entry->key.hex(),
                             identities.list[twice->identity].identity.device));
  return entries;
}

}  // namespace

Result<std::uint64_t> write_bundle(const std::filesystem::path& path, const BundleContents& contents,
                                   std::span<const SigningKey> keys) {
  if (!parse_json(contents.facts))
    return Error(ErrorCode::invalid_request, "the facts of a bundle must be a JSON object");
  const auto identities = sort_identities(contents);
  if (identities.list.size() > max_bundle_identities)
    return Error(ErrorCode::invalid_request,
                 fmt::format("the programs of a bundle have {} identities, more than {}", identities.list.size(),
                             max_bundle_identities));
  auto entries = KILN_TRY(sort_entries(contents, identities));
  auto writer = KILN_TRY(UnfinishedBundle::create(path, 0666, contents.interrupted));
  KILN_TRY(writer.add(std::vector<std::byte>(bundle_header_bytes)));
  for (EntryToWrite& entry : entries) KILN_TRY(add_entry(writer, entry, identities));
  const auto record = KILN_TRY(add_record_of_requests(writer, contents.record));
  KILN_TRY(writer.align());
  const auto index = index_of(entries, identities, record, contents.facts);
  if (index.size() > max_index_bytes)
    return Error(ErrorCode::invalid_request,
                 fmt::format("the bundle has too many programs: its index would have {} bytes", index.size()));
  const BundleHeader header{.index_offset = writer.size(),
                            .index_bytes = index.size(),
                            .record_offset = record.offset,
                            .record_bytes = record.size,
                            .index_checksum = xxh3_128(index),
                            .index_digest = base::sha256(index)};
  KILN_TRY(writer.add(index));
  KILN_TRY(writer.sign({}, keys, header.index_digest));
  KILN_TRY(writer.finish(header));
  return writer.size();
}

}  // namespace kiln::store
