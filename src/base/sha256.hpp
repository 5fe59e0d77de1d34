#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <kiln/digest.hpp>

struct evp_md_ctx_st;

namespace kiln::base {

/// Throws std::runtime_error if OpenSSL fails.
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

/// SHA-256 of bytes that come in parts. Functions throw std::runtime_error if OpenSSL fails.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  /// The digest of all bytes; the next update() begins another one.
  Digest finish();

 private:
  struct FreeHash {
    void operator()(evp_md_ctx_st* hash) const;
  };
  std::unique_ptr<evp_md_ctx_st, FreeHash> hash_;
  bool is_finished_ = false;
};

/// Parses 64 lower-case hexadecimal digits; nothing if `hex` is anything else.
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace kiln::base
