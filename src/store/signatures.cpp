#include "store/signatures.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace kiln::store {
namespace {

// The bytes that are signed begin with it, so that a signature of an entry is valid for nothing else. Another
// layout of the body needs another number.
constexpr std::string_view signature_domain("kiln entry signature 1\0", 23);
constexpr std::size_t max_key_name = 64;
constexpr std::size_t max_key_file_bytes = std::size_t{1} << 20;
constexpr std::size_t max_keys_per_file = 4096;
constexpr std::size_t max_signing_keys = 16;
constexpr std::size_t max_verifications = 16;
constexpr std::size_t max_signers_in_message = 4;
constexpr std::size_t base64_of_32_bytes = 44;
// The first line of private key files. Public and private keys look alike, so this prevents the publication of a
// private key.
constexpr std::string_view private_key_comment = "# A private key of Kiln. Keep it secret.\n";
constexpr const char* key_lock_name = ".lock";

using KeyBytes = std::array<std::byte, 32>;

unsigned char* raw_pointer(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw_pointer(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

/// Clears the memory of a secret on destruction.
class Wipe {
 public:
  explicit Wipe(std::span<std::byte> secret) : secret_(secret) {}
  explicit Wipe(std::string& secret) : secret_(std::as_writable_bytes(std::span(secret))) {}
  ~Wipe() { OPENSSL_cleanse(secret_.data(), secret_.size()); }
  Wipe(const Wipe&) = delete;
  Wipe& operator=(const Wipe&) = delete;

 private:
  const std::span<std::byte> secret_;
};

/// Removes the errors of OpenSSL that calls in this scope leave behind, because the application may look for its
/// own.
class OpensslErrors {
 public:
  OpensslErrors() { ERR_set_mark(); }
  ~OpensslErrors() { ERR_pop_to_mark(); }
  OpensslErrors(const OpensslErrors&) = delete;
  OpensslErrors& operator=(const OpensslErrors&) = delete;
};

struct FreePublicKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeSignatureContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using SignatureContext = std::unique_ptr<EVP_MD_CTX, FreeSignatureContext>;

Error no_ed25519() {
  return Error(ErrorCode::unsupported, "OpenSSL cannot sign or verify with Ed25519; check its configuration");
}

std::string base64_of(const KeyBytes& bytes) {
  std::string text(base64_of_32_bytes + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), raw_pointer(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

/// Accepts exactly the output of base64_of().
std::optional<KeyBytes> bytes_of_base64(std::string_view text) {
  if (text.size() != base64_of_32_bytes) return std::nullopt;
  std::array<std::byte, base64_of_32_bytes / 4 * 3> decoded{};
  const Wipe wipe_decoded(decoded);
  const OpensslErrors errors;
  if (EVP_DecodeBlock(raw_pointer(decoded.data()), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size())) != static_cast<int>(decoded.size()))
    return std::nullopt;
  KeyBytes bytes;
  std::copy_n(decoded.begin(), bytes.size(), bytes.begin());
  // OpenSSL accepts spaces at the ends, and other bits after the last byte.
  std::string again = base64_of(bytes);
  const Wipe wipe_again(again);
  if (again != text) return std::nullopt;
  return bytes;
}

/// The lines of a text of public keys or of a private key file.
Result<std::vector<PublicKey>> parse_key_lines(std::string_view text) {
  if (text.size() > max_key_file_bytes)
    return Error(ErrorCode::invalid_request, fmt::format("it has {} bytes, more than the {} of a file of keys",
                                                         text.size(), max_key_file_bytes));
  std::vector<PublicKey> keys;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = base::trimmed(line.substr(0, line.find('#')), " \t\r");
    if (line.empty()) continue;
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    const auto bytes = bytes_of_base64(line.substr(std::min(colon + 1, line.size())));
    if (!is_key_name(name) || !bytes)
      return Error(
          ErrorCode::invalid_request,
          fmt::format("line {} is not a key: it must be NAME:BASE64, with a name of 1 to {} letters, digits, "
                      "'.', '_', '@' and '-', and 32 bytes in base64",
                      number, max_key_name));
    if (keys.size() == max_keys_per_file)
      return Error(ErrorCode::invalid_request, fmt::format("it has more than {} keys", max_keys_per_file));
    keys.push_back({std::string(name), *bytes});
  }
  return keys;
}

Error with_file_name(const Error& error, const std::filesystem::path& file) {
  return Error(error.code(), fmt::format("{}: {}", file.string(), error.message()));
}

/// Reads a file of keys; follows symbolic links. `check` examines its status first.
template <class Check>
Result<std::string> read_file_of_keys(const std::filesystem::path& path, const Check& check) {
  const auto& system = base::FileSystem::system();
  const base::FileHandle file(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                              system);
  if (!file) return base::system_error("open", path);
  struct stat status {};
  if (system.status(file.get(), &status) != 0) return base::system_error("examine", path);
  if (!S_ISREG(status.st_mode)) return Error(ErrorCode::io, fmt::format("{} is not a regular file", path.string()));
  KILN_TRY(check(status));
  if (static_cast<std::uint64_t>(status.st_size) > max_key_file_bytes)
    return Error(ErrorCode::io, fmt::format("{} has {} bytes, more than the {} of a file of keys", path.string(),
                                            status.st_size, max_key_file_bytes));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = system.read(file.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", path);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

/// Whether a folder does not exist. A folder that cannot be reached is not absent.
bool is_absent(const std::filesystem::path& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/// The text of a file that decides about trust; empty if there is none.
Result<std::string> read_trust_file(const base::Folder& folder, const std::string& name) {
  const auto contents = KILN_TRY(folder.read(name, max_key_file_bytes));
  if (!contents) return std::string();
  const auto status = folder.status(name);
  const auto path = folder.path() / name;
  if (!status) return base::system_error("examine", path);
  if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error(ErrorCode::io, fmt::format("other users can write to {0}; check its keys, and fix its permissions "
                                            "with 'chmod go-w {0}'",
                                            path.string()));
  return std::string(reinterpret_cast<const char*>(contents->bytes.data()), contents->bytes.size());
}

/// The bytes that a signature covers.
std::vector<std::byte> signed_bytes(const ExaminedEntry& entry) {
  base::ByteWriter writer;
  writer.raw(std::as_bytes(std::span(signature_domain)));
  writer.raw(entry.label.key.bytes);
  writer.raw(entry.label.identity.bytes);
  writer.raw(entry.body_digest.bytes);
  return std::move(writer).bytes();
}

Result<bool> matches(const Signature& signature, const PublicKey& key, std::span<const std::byte> message) {
  const OpensslErrors errors;
  const std::unique_ptr<EVP_PKEY, FreePublicKey> native(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw_pointer(key.bytes.data()), key.bytes.size()));
  const SignatureContext context(EVP_MD_CTX_new());
  if (native == nullptr || context == nullptr ||
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, native.get()) != 1)
    return no_ed25519();
  return EVP_DigestVerify(context.get(), raw_pointer(signature.bytes.data()), signature.bytes.size(),
                          raw_pointer(message.data()), message.size()) == 1;
}

/// A signer's name for messages: it may hold any bytes.
std::string printable_signer(std::string_view signer) {
  std::string name(signer.substr(0, max_key_name));
  std::ranges::replace_if(
      name, [](char c) { return !is_key_name(std::string_view(&c, 1)); }, '?');
  return name;
}

std::string list_signers(std::span<const Signature> signatures) {
  std::string names;
  const std::size_t listed = std::min(signatures.size(), max_signers_in_message);
  for (std::size_t i = 0; i < listed; ++i) names += (i == 0 ? "" : ", ") + printable_signer(signatures[i].signer);
  if (signatures.size() > listed) names += fmt::format(" and {} more", signatures.size() - listed);
  return names;
}

Error format_2_is_not_signed() { return Error(ErrorCode::unsupported, "entries of format 2 cannot be signed"); }

Error untrusted(std::string why) { return Error(ErrorCode::untrusted, std::move(why)); }

}  // namespace

bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= max_key_name && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '@' || c == '-';
  });
}

std::string to_line(const PublicKey& key) { return key.name + ":" + base64_of(key.bytes); }

Result<std::vector<PublicKey>> parse_keys(std::string_view text) {
  if (text.find(private_key_comment.substr(0, private_key_comment.size() - 1)) != std::string_view::npos)
    return Error(ErrorCode::invalid_request,
                 "it holds a private key, which must stay secret; `kiln key ls` lists the public key");
  return parse_key_lines(text);
}

Result<std::vector<PublicKey>> read_public_keys(const std::filesystem::path& file) {
  const std::string text =
      KILN_TRY(read_file_of_keys(file, [](const struct stat& /*status*/) { return Result<void>(); }));
  auto keys = parse_keys(text);
  if (!keys) return with_file_name(keys.error(), file);
  return keys;
}

Result<std::vector<PublicKey>> read_key_file(const std::filesystem::path& folder, const std::string& name) {
  if (is_absent(folder)) return std::vector<PublicKey>();
  const auto opened = KILN_TRY(base::Folder::open(folder, false));
  const std::string text = KILN_TRY(read_trust_file(opened, name));
  auto keys = parse_keys(text);
  if (!keys) return with_file_name(keys.error(), folder / name);
  return keys;
}

Result<std::size_t> add_keys(const std::filesystem::path& folder, const std::string& name,
                             std::span<const PublicKey> keys) {
  constexpr std::chrono::seconds lock_patience{2};
  const auto opened = KILN_TRY(base::Folder::open(folder, true));
  const auto lock_file = KILN_TRY(opened.open_lock_file(key_lock_name));
  const auto lock = base::FileLock::acquire(lock_file, 0, lock_patience);
  // If the file system has no locks, continue without one.
  if (!lock && base::FileLock::is_held(lock_file, 0).value_or(false))
    return Error(ErrorCode::timed_out,
                 fmt::format("another process is changing {}; try again", (folder / name).string()));
  std::string text = KILN_TRY(read_trust_file(opened, name));
  auto known = parse_keys(text);
  if (!known) return with_file_name(known.error(), folder / name);
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  std::size_t added = 0;
  for (const PublicKey& key : keys) {
    if (std::ranges::find(*known, key) != known->end()) continue;
    known->push_back(key);
    text += to_line(key) + '\n';
    ++added;
  }
  if (added == 0) return added;
  if (text.size() > max_key_file_bytes || known->size() > max_keys_per_file)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} would have more than {} keys or {} bytes", (folder / name).string(),
                             max_keys_per_file, max_key_file_bytes));
  // A key that is revoked must stay so after a loss of power.
  KILN_TRY(opened.replace(name, std::as_bytes(std::span(text)), Durability::fsync));
  return added;
}

void SigningKey::Free::operator()(evp_pkey_st* key) const noexcept { EVP_PKEY_free(key); }

Result<SigningKey> SigningKey::from_seed(std::string name, std::span<const std::byte, 32> seed) {
  const OpensslErrors errors;
  std::unique_ptr<evp_pkey_st, Free> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, raw_pointer(seed.data()), seed.size()));
  PublicKey public_key{std::move(name), {}};
  std::size_t size = public_key.bytes.size();
  if (key == nullptr || EVP_PKEY_get_raw_public_key(key.get(), raw_pointer(public_key.bytes.data()), &size) != 1 ||
      size != public_key.bytes.size())
    return no_ed25519();
  return SigningKey(std::move(public_key), std::move(key));
}

Result<SigningKey> SigningKey::generate(std::string name) {
  if (!is_key_name(name))
    return Error(
        ErrorCode::invalid_request,
        fmt::format("the name of a key must have 1 to {} letters, digits, '.', '_', '@' and '-'", max_key_name));
  KeyBytes seed{};
  const Wipe wipe_seed(seed);
  const OpensslErrors errors;
  if (RAND_priv_bytes(raw_pointer(seed.data()), static_cast<int>(seed.size())) != 1)
    return Error(ErrorCode::io, "OpenSSL cannot generate random bytes");
  return from_seed(std::move(name), seed);
}

Result<SigningKey> SigningKey::read(const std::filesystem::path& file) {
  const auto check = [&file](const struct stat& status) -> Result<void> {
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
      return Error(ErrorCode::io, fmt::format("the private key file {} belongs to another user (uid {}); use a key "
                                              "of your own",
                                              file.string(), status.st_uid));
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
      return Error(ErrorCode::io, fmt::format("other users can access the private key file {0}; if they may have "
                                              "copied the key, revoke it with `kiln key revoke`; then fix the "
                                              "permissions with 'chmod 600 {0}'",
                                              file.string()));
    return {};
  };
  std::string text = KILN_TRY(read_file_of_keys(file, check));
  const Wipe wipe_text(text);
  auto lines = parse_key_lines(text);
  if (!lines) return with_file_name(lines.error(), file);
  Result<SigningKey> key =
      Error(ErrorCode::invalid_request,
            fmt::format("{} has {} keys, but a private key file has one", file.string(), lines->size()));
  if (lines->size() == 1) key = from_seed(lines->front().name, lines->front().bytes);
  for (PublicKey& line : *lines) OPENSSL_cleanse(line.bytes.data(), line.bytes.size());
  return key;
}

Result<void> SigningKey::write(const std::filesystem::path& file) const {
  KeyBytes seed{};
  const Wipe wipe_seed(seed);
  std::size_t size = seed.size();
  const OpensslErrors errors;
  if (EVP_PKEY_get_raw_private_key(key_.get(), raw_pointer(seed.data()), &size) != 1 || size != seed.size())
    return no_ed25519();
  std::string base64 = base64_of(seed);
  const Wipe wipe_base64(base64);
  std::string text;
  // Without the reserve, growth would leave copies of the secret behind.
  text.reserve(private_key_comment.size() + name().size() + base64.size() + 2);
  text.append(private_key_comment).append(name()).append(":").append(base64).append("\n");
  const Wipe wipe_text(text);

  const auto parent = file.parent_path();
  const auto folder = KILN_TRY(base::Folder::open(parent.empty() ? "." : parent, true));
  const std::string name_in_folder = file.filename();
  const auto& system = base::FileSystem::system();
  base::FileHandle handle(system.open(folder.descriptor(), name_in_folder.c_str(),
                                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR),
                          system);
  if (!handle && errno == EEXIST)
    return Error(ErrorCode::io,
                 fmt::format("{} exists already; choose another name, or remove the old key first", file.string()));
  if (!handle) return base::system_error("create", file);
  const auto failed = [&]() -> Error {
    Error error = base::system_error("write", file);
    system.unlink(folder.descriptor(), name_in_folder.c_str());
    return error;
  };
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = system.write(handle.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return failed();
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (system.sync(handle.get()) != 0 || !handle.close()) return failed();
  return {};
}

Result<Signature> SigningKey::sign(const ExaminedEntry& entry) const {
  if (entry.version == 2) return format_2_is_not_signed();
  return sign(signed_bytes(entry));
}

Result<Signature> SigningKey::sign(std::span<const std::byte> message) const {
  Signature signature{name(), {}};
  std::size_t size = signature.bytes.size();
  const OpensslErrors errors;
  const SignatureContext context(EVP_MD_CTX_new());
  if (context == nullptr || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), raw_pointer(signature.bytes.data()), &size, raw_pointer(message.data()),
                     message.size()) != 1 ||
      size != signature.bytes.size())
    return no_ed25519();
  return signature;
}

Result<std::vector<Signature>> add_signatures(std::vector<Signature> signatures, std::span<const SigningKey> keys,
                                              std::span<const std::byte> message) {
  for (const SigningKey& key : keys) {
    std::erase_if(signatures, [&key](const Signature& signature) { return signature.signer == key.name(); });
    signatures.push_back(KILN_TRY(key.sign(message)));
  }
  return signatures;
}

Result<std::vector<SigningKey>> signing_keys(std::string_view choice, const ConfigFolders& folders) {
  std::vector<SigningKey> keys;
  if (choice == "none") return keys;
  if (!choice.empty()) {
    keys.push_back(KILN_TRY(SigningKey::read(choice)));
    return keys;
  }
  if (!folders.user || is_absent(*folders.user / private_keys_name)) return keys;
  const auto folder = KILN_TRY(base::Folder::open(*folders.user / private_keys_name, false));
  auto names = KILN_TRY(folder.names());
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(private_key_suffix); });
  std::ranges::sort(names);
  if (names.size() > max_signing_keys)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has {} private keys, more than {}; remove those that are not used any longer",
                             folder.path().string(), names.size(), max_signing_keys));
  for (const std::string& name : names) {
    auto key = KILN_TRY(SigningKey::read(folder.path() / name));
    if (std::ranges::find(keys, key.name(), &SigningKey::name) != keys.end())
      return Error(ErrorCode::invalid_request, fmt::format("two private keys in {} have the name {}; remove one",
                                                           folder.path().string(), key.name()));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<std::vector<std::byte>> sign_entry(std::span<const std::byte> sealed, std::span<const SigningKey> keys) {
  ExaminedEntry entry = KILN_TRY(examine_entry(sealed));
  if (entry.version == 2 && !keys.empty()) return format_2_is_not_signed();
  const auto signatures = KILN_TRY(add_signatures(std::move(entry.signatures), keys, signed_bytes(entry)));
  return with_signatures(sealed, signatures);
}

Result<bool> is_signed_by(const ExaminedEntry& entry, const PublicKey& key) {
  return is_signed_by(entry.signatures, signed_bytes(entry), key);
}

Result<bool> is_signed_by(std::span<const Signature> signatures, std::span<const std::byte> message,
                          const PublicKey& key) {
  std::size_t tried = 0;
  for (const Signature& signature : signatures)
    if (signature.signer == key.name && tried++ < max_verifications && KILN_TRY(matches(signature, key, message)))
      return true;
  return false;
}

TrustList::TrustList(std::vector<PublicKey> trusted, std::span<const PublicKey> revoked)
    : keys_(std::move(trusted)) {
  std::vector<KeyBytes> refused;
  for (const PublicKey& key : revoked) refused.push_back(key.bytes);
  std::ranges::sort(refused);
  std::erase_if(keys_, [&refused](const PublicKey& key) { return std::ranges::binary_search(refused, key.bytes); });
  std::ranges::sort(keys_);
  keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
}

Result<TrustList> TrustList::read(const ConfigFolders& folders) {
  std::vector<std::filesystem::path> all = folders.system;
  if (folders.user) all.push_back(*folders.user);
  std::vector<PublicKey> trusted;
  std::vector<PublicKey> revoked;
  for (const auto& folder : all) {
    const auto trusted_here = KILN_TRY(read_key_file(folder, trusted_keys_name));
    const auto revoked_here = KILN_TRY(read_key_file(folder, revoked_keys_name));
    trusted.insert(trusted.end(), trusted_here.begin(), trusted_here.end());
    revoked.insert(revoked.end(), revoked_here.begin(), revoked_here.end());
  }
  return TrustList(std::move(trusted), revoked);
}

Result<std::string> TrustList::verify(const ExaminedEntry& entry) const {
  return verify(entry.signatures, signed_bytes(entry));
}

Result<std::string> TrustList::verify(std::span<const Signature> signatures,
                                      std::span<const std::byte> message) const {
  if (signatures.empty()) return untrusted("it has no signature");
  const Signature* mismatch = nullptr;
  std::size_t tried = 0;
  for (const Signature& signature : signatures) {
    auto key = std::ranges::lower_bound(keys_, signature.signer, {}, &PublicKey::name);
    for (; key != keys_.end() && key->name == signature.signer; ++key) {
      if (tried++ == max_verifications)
        return untrusted(
            fmt::format("none of its first {} signatures by trusted keys matches its contents", max_verifications));
      if (KILN_TRY(matches(signature, *key, message))) return signature.signer;
      if (mismatch == nullptr) mismatch = &signature;
    }
  }
  if (mismatch != nullptr)
    return untrusted(
        fmt::format("its signature by {} does not match its contents", printable_signer(mismatch->signer)));
  return untrusted(fmt::format("it is signed by {}, {} trusted", list_signers(signatures),
                               signatures.size() == 1 ? "which is not" : "none of which is"));
}

}  // namespace kiln::store
