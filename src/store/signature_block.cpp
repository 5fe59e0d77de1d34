#include "store/signature_block.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace kiln::store {
namespace {

constexpr std::uint32_t max_signer_name = 255;
constexpr std::size_t signer_size_bytes = sizeof(std::uint32_t);
constexpr std::size_t signature_size = 64;

}  // namespace

std::optional<std::vector<Signature>> read_signatures(std::span<const std::byte> block) {
  if (block.size() > max_signature_bytes) return std::nullopt;
  std::vector<Signature> signatures;
  while (!block.empty()) {
    if (block.size() < signer_size_bytes) return std::nullopt;
    const auto name_bytes = base::ByteReader(block).number<std::uint32_t>();
    block = block.subspan(signer_size_bytes);
    if (name_bytes == 0 || name_bytes > max_signer_name || block.size() < name_bytes + signature_size)
      return std::nullopt;
    Signature& signature = signatures.emplace_back();
    signature.signer.assign(reinterpret_cast<const char*>(block.data()), name_bytes);
    std::memcpy(signature.bytes.data(), block.data() + name_bytes, signature_size);
    block = block.subspan(name_bytes + signature_size);
  }
  return signatures;
}

Result<std::vector<std::byte>> signature_block(std::span<const Signature> signatures) {
  std::vector<const Signature*> sorted;
  for (const Signature& signature : signatures) sorted.push_back(&signature);
  std::ranges::sort(sorted, {}, &Signature::signer);
  if (std::ranges::adjacent_find(sorted, {}, &Signature::signer) != sorted.end())
    return Error(ErrorCode::invalid_request, "two signatures have the same signer");
  base::ByteWriter block;
  for (const Signature* signature : sorted) {
    if (signature->signer.empty() || signature->signer.size() > max_signer_name)
      return Error(ErrorCode::invalid_request,
                   fmt::format("the name of a signer must have 1 to {} bytes, but has {}", max_signer_name,
                               signature->signer.size()));
    block.number(static_cast<std::uint32_t>(signature->signer.size()));
    block.raw(std::as_bytes(std::span(signature->signer)));
    block.raw(signature->bytes);
    if (block.bytes().size() > max_signature_bytes)
      return Error(ErrorCode::invalid_request,
                   fmt::format("the signatures have more than {} bytes", max_signature_bytes));
  }
  return std::move(block).bytes();
}

}  // namespace kiln::store
