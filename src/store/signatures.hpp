#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/result.hpp>

#include "store/config_folders.hpp"
#include "store/sealed_entry.hpp"

struct evp_pkey_st;

/// Ed25519 signatures of entries and bundles. docs/format.md describes what is signed, and the files of keys.
namespace kiln::store {

/// The files of public keys in each config folder, and the folder of private keys in the user's.
inline constexpr const char* trusted_keys_name = "trusted-keys";
inline constexpr const char* revoked_keys_name = "revoked-keys";
inline constexpr const char* private_keys_name = "keys";
inline constexpr const char* private_key_suffix = ".key";

/// 1 to 64 letters, digits, '.', '_', '@' and '-'.
bool is_key_name(std::string_view name);

struct PublicKey {
  std::string name = {};
  std::array<std::byte, 32> bytes = {};

  friend bool operator==(const PublicKey&, const PublicKey&) = default;
  friend auto operator<=>(const PublicKey&, const PublicKey&) = default;
};

/// "NAME:BASE64", without a line end.
std::string to_line(const PublicKey& key);

/// The keys of a text with one NAME:BASE64 per line, in its order. '#' begins a comment. A text of more than 1 MiB
/// or 4096 keys, an invalid line and a private key file are errors, which name the line and quote nothing of it.
Result<std::vector<PublicKey>> parse_keys(std::string_view text);

/// Reads any file that the user names, without checks of its owner.
Result<std::vector<PublicKey>> read_public_keys(const std::filesystem::path& file);

/// Reads trusted-keys or revoked-keys of a config folder. A missing file has no keys. Fails if the folder or the
/// file belongs to another user than this one or root, or if others can write to it.
Result<std::vector<PublicKey>> read_key_file(const std::filesystem::path& folder, const std::string& name);

/// Adds the keys that such a file does not hold yet, and returns how many these are. Creates the folder and the
/// file. Other processes may do the same at once, and readers see the old file or the new one.
Result<std::size_t> add_keys(const std::filesystem::path& folder, const std::string& name,
                             std::span<const PublicKey> keys);

/// A private key and its name. Its memory is cleared on destruction. Thread-safe.
class SigningKey {
 public:
  static Result<SigningKey> generate(std::string name);
  /// Fails if the file belongs to another user than this one or root, or if other users can read it.
  static Result<SigningKey> read(const std::filesystem::path& file);
  /// Creates the file (mode 0600) and its folders (mode 0700). Fails if the file exists.
  Result<void> write(const std::filesystem::path& file) const;

  const std::string& name() const noexcept { return public_key_.name; }
  const PublicKey& public_key() const noexcept { return public_key_; }
  /// Fails with unsupported for an entry of format 2.
  Result<Signature> sign(const ExaminedEntry& entry) const;
  /// The message must begin with a text that no message of another kind begins with.
  Result<Signature> sign(std::span<const std::byte> message) const;

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const noexcept;
  };

  SigningKey(PublicKey public_key, std::unique_ptr<evp_pkey_st, Free> key)
      : public_key_(std::move(public_key)), key_(std::move(key)) {}
  static Result<SigningKey> from_seed(std::string name, std::span<const std::byte, 32> seed);

  PublicKey public_key_;
  std::unique_ptr<evp_pkey_st, Free> key_;
};

/// Adds a signature of a message by each key, in place of an older one of the same name. Keeps the others.
Result<std::vector<Signature>> add_signatures(std::vector<Signature> signatures, std::span<const SigningKey> keys,
                                              std::span<const std::byte> message);

/// The keys that sign the entries of this process, sorted by file name. `choice` is the path of a private key file,
/// "none", or empty for all files keys/*.key of the user folder, 16 at most.
Result<std::vector<SigningKey>> signing_keys(std::string_view choice, const ConfigFolders& folders);

/// Checks the entry except for its packed contents, and adds a signature by each key, in place of an older one of
/// the same name. Keeps the signatures of others.
Result<std::vector<std::byte>> sign_entry(std::span<const std::byte> sealed, std::span<const SigningKey> keys);

/// Whether the entry has a valid signature by this key.
Result<bool> is_signed_by(const ExaminedEntry& entry, const PublicKey& key);
/// Whether one of these is a valid signature of the message by this key.
Result<bool> is_signed_by(std::span<const Signature> signatures, std::span<const std::byte> message,
                          const PublicKey& key);

/// The public keys that this machine trusts. Thread-safe after construction.
class TrustList {
 public:
  /// Trusts no key.
  TrustList() = default;
  /// Several keys may have the same name. Revocation is by the bytes of a key, whatever its name.
  TrustList(std::vector<PublicKey> trusted, std::span<const PublicKey> revoked);
  /// The keys of the files trusted-keys of all folders, except for those in the files revoked-keys of all folders.
  /// One file that cannot be read or trusted is an error.
  static Result<TrustList> read(const ConfigFolders& folders);

  /// Sorted by name.
  const std::vector<PublicKey>& keys() const noexcept { return keys_; }

  /// The name of a signer whose trusted key verifies a signature of the entry. Otherwise ErrorCode::untrusted, with
  /// a sentence about the entry ("it has no signature"). Tries 16 pairs of signature and key at most, so an entry
  /// with many false signatures costs a few milliseconds. Independent of clocks.
  Result<std::string> verify(const ExaminedEntry& entry) const;
  /// The same for the signatures of any message.
  Result<std::string> verify(std::span<const Signature> signatures, std::span<const std::byte> message) const;

 private:
  std::vector<PublicKey> keys_;
};

}  // namespace kiln::store
