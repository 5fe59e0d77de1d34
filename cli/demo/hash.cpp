#include <span>

#include "base/sha256.hpp"
#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// Each work item computes SHA-256 of a 32-byte message: the leaves of a Merkle tree.
constexpr const char* hash_source = R"(FUNCTION uint turned(uint x, int by) { return (x >> by) | (x << (32 - by)); }

KERNEL {
  const uint k[64] = {
      0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
      0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
      0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
      0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
      0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
      0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
      0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
      0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};
  const uint begin[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  int thread = global_id_x;
  if (thread >= count) return;

  uint w[16];
  for (int i = 0; i < 8; ++i) w[i] = message[thread * 8 + i];
  w[8] = 0x80000000u;
  for (int i = 9; i < 15; ++i) w[i] = 0u;
  w[15] = 256u;

  uint s[8];
  for (int i = 0; i < 8; ++i) s[i] = begin[i];
  for (int block = 0; block < 4; ++block) {
    for (int i = 0; i < 16; ++i) {
      uint e = s[4];
      uint a = s[0];
      uint t1 = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                k[block * 16 + i] + w[i];
      uint t2 = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      for (int r = 7; r > 0; --r) s[r] = s[r - 1];
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (int i = 0; i < 16; ++i) {
      uint x = w[(i + 1) % 16];
      uint y = w[(i + 14) % 16];
      w[i] += (turned(x, 7) ^ turned(x, 18) ^ (x >> 3)) + w[(i + 9) % 16] +
              (turned(y, 17) ^ turned(y, 19) ^ (y >> 10));
    }
  }
  for (int i = 0; i < 8; ++i) digest[thread * 8 + i] = begin[i] + s[i];
}
)";

// The kernel and the CPU store the words of a message in different orders.
std::vector<std::uint32_t> swapped(std::vector<std::uint32_t> words) {
  for (std::uint32_t& word : words) word = word >> 24 | (word >> 8 & 0xff00) | (word << 8 & 0xff0000) | word << 24;
  return words;
}

}  // namespace

std::vector<Case> hash_cases() {
  const std::int32_t count = 40;
  std::vector<std::uint32_t> messages = noise_bits(count * 8, 1);
  std::vector<std::uint32_t> digests;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = messages.begin() + static_cast<std::ptrdiff_t>(i * 8);
    const std::vector<std::uint32_t> message = swapped({first, first + 8});
    const Digest digest = base::sha256(std::as_bytes(std::span(message)));
    std::vector<std::uint32_t> words(8);
    std::memcpy(words.data(), digest.bytes.data(), sizeof digest.bytes);
    for (const std::uint32_t word : swapped(words)) digests.push_back(word);
  }
  return {{.kernel = {.name = "sha256_leaves",
                      .buffers = {{"message", Type::u32}, {"digest", Type::u32, Access::write}},
                      .scalars = {{"count"}},
                      .group_size = {32, 1, 1},
                      .source = hash_source},
           .groups = {(count + 31) / 32, 1, 1},
           .scalars = {count},
           .inputs = {std::move(messages)},
           .expected = std::move(digests)}};
}

}  // namespace kiln::cli::demo
