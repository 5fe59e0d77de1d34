#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <spirv/unified1/spirv.hpp11>

/// The instructions of a SPIR-V module. Safe on arbitrary words.
namespace kiln::vulkan::spirv {

using Words = std::span<const std::uint32_t>;

/// SPIR-V's universal limit on ids.
constexpr std::uint32_t max_bound = 0x400000;
constexpr std::size_t header_words = 5;

/// Calls `visit(op, operands)` for each instruction until one returns false. False if the last one is incomplete.
template <class Visit>
bool for_each_instruction(Words words, Visit visit) {
  for (Words rest = words.subspan(header_words); !rest.empty();) {
    const std::size_t count = rest[0] >> spv::WordCountShift;
    if (count == 0 || count > rest.size()) return false;
    if (!visit(static_cast<spv::Op>(rest[0] & spv::OpCodeMask), rest.subspan(1, count - 1))) return true;
    rest = rest.subspan(count);
  }
  return true;
}

/// The characters of a literal string, without the terminating NUL; nullopt if it has none.
std::optional<std::string_view> literal(Words words);

/// The operands that may be ids of variables: `op` has no other ids of pointers, and the result has no literals.
/// For an unknown instruction, all operands.
Words pointers_of(spv::Op op, Words operands) noexcept;

}  // namespace kiln::vulkan::spirv
