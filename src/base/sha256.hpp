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

/// SHA-256 of bytes that come in pieces. Throws std::runtime_error if OpenSSL fails.
class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  /// To be called once, after the last piece.
  Digest finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* hash) const noexcept;
  };

  std::unique_ptr<evp_md_ctx_st, Free> hash_;
};

/// Parses 64 lower-case hexadecimal digits; nothing if `hex` is anything else.
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace kiln::base
