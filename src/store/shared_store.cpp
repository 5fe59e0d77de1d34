#include "store/shared_store.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/try.hpp"
#include "store/directory.hpp"
#include "store/file_store.hpp"
#include "store/json_file.hpp"
#include "store/remote_library.hpp"

namespace kiln::store {

Result<OpenedStore> open_shared_store(const StoreUrl& url) {
  auto verify = url.verify.value_or(Verification::required);
  if (url.is_network()) return OpenedStore{KILN_TRY(open_remote_store(url)), verify};
  // The permissions of a new folder decide, too.
  std::error_code ignored;
  if (url.mode != StoreMode::read_only) std::filesystem::create_directories(url.path, ignored);
  auto access = FolderAccess::open;
  if (!url.verify && is_trusted_folder(url.path)) {
    verify = Verification::off;
    access = FolderAccess::private_only;
  }
  return OpenedStore{KILN_TRY(make_file_store(url.path, access)), verify};
}

std::string identity_text(const Identity& identity) { return manifest_of(identity).dump(2) + "\n"; }

std::optional<Identity> parse_identity(std::string_view text, const std::string& digest) {
  // Much larger than an identity.
  constexpr std::size_t max_bytes = std::size_t{64} << 10;
  const auto json = text.size() <= max_bytes ? parse_json(text) : std::nullopt;
  auto identity = json ? identity_in(*json) : std::nullopt;
  if (identity && identity->digest().hex() != digest) identity.reset();
  return identity;
}

Result<void> put_identity(ObjectStore& objects, const std::string& identity, const std::string& text,
                          const CallLimit& limit) {
  const std::string path = identity_path(identity);
  const auto has = objects.has(path, limit);
  if (!has && has.error().code() != ErrorCode::denied) return has.error();
  if (has && *has) return {};
  auto put = objects.put(path, std::as_bytes(std::span(text)), limit);
  if (!put && put.error().code() != ErrorCode::denied) return put;
  return {};
}

Result<OpenedEntry> check_shared_entry(std::span<const std::byte> sealed, const Digest& key, const Digest& identity,
                                       const TrustList* trust) {
  const auto damaged = [](const char* why) { return Error(ErrorCode::damaged, why); };
  const auto examined = KILN_TRY(examine_entry(sealed));
  if (examined.label.key != key) return damaged("it holds another program");
  if (examined.label.identity != identity) return damaged("it was made for another device, driver or compiler");
  if (trust != nullptr) KILN_TRY(trust->verify(examined));
  auto opened = KILN_TRY(unpack_entry(examined));
  if (opened.entry.binary() == nullptr) return damaged("it has no binary");
  return opened;
}

Entry without_facts(const Entry& entry) {
  Entry bare{.compile_time = entry.compile_time, .created = entry.created};
  if (const Binary* binary = entry.binary()) bare.parts.emplace(binary_part, *binary);
  return bare;
}

}  // namespace kiln::store
