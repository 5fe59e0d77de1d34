#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <kiln/identity.hpp>
#include <kiln/result.hpp>
#include <kiln/store.hpp>

#include "store/object_store.hpp"
#include "store/sealed_entry.hpp"
#include "store/signatures.hpp"
#include "store/store_url.hpp"

/// The rules of shared stores, for caches and for commands that move entries.
namespace kiln::store {

/// A store as its URL describes it.
struct OpenedStore {
  std::unique_ptr<ObjectStore> objects;
  /// Whether entries need a signature by a trusted key.
  Verification verify;
};

/// Opens a folder or a server, and connects to nothing. If the mode permits writing, creates a missing folder,
/// whose permissions then decide.
Result<OpenedStore> open_shared_store(const StoreUrl& url);

/// The contents of identity.json.
std::string identity_text(const Identity& identity);

/// The identity in the contents of identity.json; nothing if it does not have this digest, in hexadecimal text.
std::optional<Identity> parse_identity(std::string_view text, const std::string& digest);

/// Puts identity.json if the store does not have it. Tools read it to name the device of an identity. A server may
/// refuse it and still accept entries, so that is no error.
Result<void> put_identity(ObjectStore& objects, const std::string& identity, const std::string& text,
                          const CallLimit& limit);

/// Checks what a store returned for this key: that it is undamaged, of this program and identity, and signed by a
/// key of `trust`, unless that is null. Opens it.
Result<OpenedEntry> check_shared_entry(std::span<const std::byte> sealed, const Digest& key, const Digest& identity,
                                       const TrustList* trust);

/// The entry without facts and files, as it is shared if share_facts is off.
Entry without_facts(const Entry& entry);

}  // namespace kiln::store
