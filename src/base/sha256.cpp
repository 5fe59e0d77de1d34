#include "base/sha256.hpp"

#include <memory>
#include <stdexcept>

#include <openssl/evp.h>

namespace kiln {

std::string Digest::hex(std::size_t digits) const {
  static constexpr char alphabet[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (const std::byte byte : bytes) {
    text += alphabet[std::to_integer<unsigned>(byte) >> 4U];
    text += alphabet[std::to_integer<unsigned>(byte) & 15U];
  }
  text.resize(digits < 64 ? digits : 64);
  return text;
}

}  // namespace kiln

namespace kiln::base {
namespace {

void require(bool succeeded) {
  if (!succeeded) throw std::runtime_error("OpenSSL cannot compute SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* hash) const noexcept { EVP_MD_CTX_free(hash); }

Sha256::Sha256() : hash_(EVP_MD_CTX_new()) {
  // OpenSSL's SHA256() looks up the algorithm on each call, which costs as much as hashing a kilobyte.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  require(hash_ != nullptr && EVP_DigestInit_ex2(hash_.get(), algorithm, nullptr) == 1);
}

void Sha256::add(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(hash_.get(), bytes.data(), bytes.size()) == 1);
}

Digest Sha256::finish() {
  Digest digest;
  require(EVP_DigestFinal_ex(hash_.get(), reinterpret_cast<unsigned char*>(digest.bytes.data()), nullptr) == 1);
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

std::optional<Digest> digest_from_hex(std::string_view hex) {
  const auto nibble = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = nibble(hex[2 * i]);
    const int low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

}  // namespace kiln::base
