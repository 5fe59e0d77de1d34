#include "backend/vulkan/spirv_instructions.hpp"

#include <algorithm>
#include <limits>

namespace kiln::vulkan::spirv {

using spv::Op;

std::optional<std::string_view> literal(Words words) {
  const std::string_view text(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  const std::size_t end = text.find('\0');
  return end == std::string_view::npos ? std::nullopt : std::optional(text.substr(0, end));
}

Words pointers_of(Op op, Words operands) noexcept {
  const auto from = [operands](std::size_t first, std::size_t count) {
    const Words rest = operands.subspan(std::min(first, operands.size()));
    return rest.first(std::min(count, rest.size()));
  };
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  const auto number = static_cast<std::uint32_t>(op);
  // Samples, reads, writes and queries of images take loaded values, and have literals.
  if (number >= static_cast<std::uint32_t>(Op::OpSampledImage) &&
      number <= static_cast<std::uint32_t>(Op::OpImageQuerySamples))
    return {};
  // Operations of groups take values, and have literals.
  if ((number >= static_cast<std::uint32_t>(Op::OpGroupAll) &&
       number <= static_cast<std::uint32_t>(Op::OpGroupSMax)) ||
      (number >= static_cast<std::uint32_t>(Op::OpGroupNonUniformElect) &&
       number <= static_cast<std::uint32_t>(Op::OpGroupNonUniformQuadSwap)))
    return {};
  switch (op) {
    case Op::OpLine:
    case Op::OpFunction:
    case Op::OpConstant:
    case Op::OpCompositeExtract:
    case Op::OpVectorShuffle:
    case Op::OpSwitch:
    case Op::OpBranchConditional:
    case Op::OpLoopMerge:
    case Op::OpSelectionMerge: return {};
    case Op::OpLoad:
    case Op::OpArrayLength: return from(2, 1);
    case Op::OpStore:
    case Op::OpCopyMemory:
    case Op::OpCopyMemorySized: return from(0, 2);
    case Op::OpCompositeInsert: return from(2, 2);
    case Op::OpVariable: return from(3, 1);
    // The instruction's number is a literal.
    case Op::OpExtInst: return from(4, all);
    default: return operands;
  }
}

}  // namespace kiln::vulkan::spirv
