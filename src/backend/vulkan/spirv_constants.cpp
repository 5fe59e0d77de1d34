#include <algorithm>
#include <bit>
#include <type_traits>

#include <fmt/format.h>

#include "backend/vulkan/spirv_declarations.hpp"

namespace kiln::vulkan {
namespace spirv {
namespace {

using spv::Op;

std::uint64_t masked(std::uint64_t bits, std::uint32_t width) {
  return width >= 64 ? bits : bits & ((std::uint64_t{1} << width) - 1);
}

std::int64_t as_signed(std::uint64_t bits, std::uint32_t width) {
  if (width == 0 || width >= 64) return static_cast<std::int64_t>(bits);
  const std::uint64_t sign = std::uint64_t{1} << (width - 1);
  return static_cast<std::int64_t>((masked(bits, width) ^ sign) - sign);
}

/// The operations on two numbers of the same width. Division by zero, by -1 of signed numbers, and shifts by the
/// width have no result here.
std::optional<std::uint64_t> combine(Op op, std::uint64_t a, std::uint64_t b, std::uint32_t width) {
  const std::int64_t x = as_signed(a, width);
  const std::int64_t y = as_signed(b, width);
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  switch (op) {
    case Op::OpIAdd: return a + b;
    case Op::OpISub: return a - b;
    case Op::OpIMul: return a * b;
    case Op::OpBitwiseOr: return a | b;
    case Op::OpBitwiseXor: return a ^ b;
    case Op::OpBitwiseAnd: return a & b;
    case Op::OpIEqual:
    case Op::OpLogicalEqual: return a == b;
    case Op::OpINotEqual:
    case Op::OpLogicalNotEqual: return a != b;
    case Op::OpLogicalOr: return (a | b) != 0;
    case Op::OpLogicalAnd: return a != 0 && b != 0;
    case Op::OpULessThan: return a < b;
    case Op::OpULessThanEqual: return a <= b;
    case Op::OpUGreaterThan: return a > b;
    case Op::OpUGreaterThanEqual: return a >= b;
    case Op::OpSLessThan: return x < y;
    case Op::OpSLessThanEqual: return x <= y;
    case Op::OpSGreaterThan: return x > y;
    case Op::OpSGreaterThanEqual: return x >= y;
    case Op::OpShiftLeftLogical: return b < width ? std::optional(a << b) : std::nullopt;
    case Op::OpShiftRightLogical: return b < width ? std::optional(a >> b) : std::nullopt;
    case Op::OpShiftRightArithmetic: return b < width ? std::optional(number(x >> b)) : std::nullopt;
    case Op::OpUDiv: return b != 0 ? std::optional(a / b) : std::nullopt;
    case Op::OpUMod: return b != 0 ? std::optional(a % b) : std::nullopt;
    case Op::OpSDiv: return y > 0 ? std::optional(number(x / y)) : std::nullopt;
    case Op::OpSRem: return y > 0 ? std::optional(number(x % y)) : std::nullopt;
    case Op::OpSMod: return y > 0 ? std::optional(number(x % y < 0 ? x % y + y : x % y)) : std::nullopt;
    default: return std::nullopt;
  }
}

/// The constant at a path of indices in a composite.
std::optional<std::uint64_t> part_of(Ids& ids, std::uint32_t composite, Words path) {
  for (const std::uint32_t index : path) {
    const Words parts = ids[composite].parts;
    if (index >= parts.size()) return std::nullopt;
    composite = parts[index];
  }
  return ids[composite].constant;
}

}  // namespace

std::optional<std::uint64_t> evaluate(Ids& ids, Op op, Words operands, const Type& type) {
  const auto is_id = [](std::uint32_t id) { return id != 0 && id < max_bound; };
  if (operands.empty() || !is_id(operands[0])) return std::nullopt;
  const std::uint32_t width = type.shape == Type::Shape::boolean ? 1 : type.bits;
  if (width == 0) return std::nullopt;
  if (op == Op::OpCompositeExtract) return part_of(ids, operands[0], operands.subspan(1));
  if (!std::ranges::all_of(operands, is_id)) return std::nullopt;
  // Narrow literals are stored with their sign extended.
  const auto width_of = [&ids](std::uint32_t id) { return ids[ids[id].constant_type].type.bits; };
  const auto value_of = [&](std::uint32_t id) -> std::optional<std::uint64_t> {
    const auto value = ids[id].constant;
    return value ? std::optional(masked(*value, width_of(id))) : std::nullopt;
  };
  const auto a = value_of(operands[0]);
  if (!a) return std::nullopt;
  const std::uint32_t width_of_a = width_of(operands[0]);
  if (operands.size() == 1) {
    switch (op) {
      case Op::OpNot: return masked(~*a, width);
      case Op::OpSNegate: return masked(std::uint64_t{0} - *a, width);
      case Op::OpLogicalNot: return *a == 0;
      case Op::OpUConvert: return masked(*a, width);
      case Op::OpSConvert: return masked(static_cast<std::uint64_t>(as_signed(*a, width_of_a)), width);
      default: return std::nullopt;
    }
  }
  const auto b = value_of(operands[1]);
  if (op == Op::OpSelect && operands.size() == 3) return *a != 0 ? b : value_of(operands[2]);
  if (operands.size() != 2 || !b) return std::nullopt;
  const auto result = combine(op, *a, *b, width_of_a);
  return result ? std::optional(masked(*result, width)) : std::nullopt;
}

}  // namespace spirv

namespace {

/// As GLSL calls it.
std::string type_name(const SpecConstant& constant) {
  const bool is_usual = constant.bits == 32;
  switch (constant.kind) {
    case SpecConstant::Kind::boolean: return "bool";
    case SpecConstant::Kind::signed_integer: return is_usual ? "int" : fmt::format("int{}_t", constant.bits);
    case SpecConstant::Kind::unsigned_integer: return is_usual ? "uint" : fmt::format("uint{}_t", constant.bits);
    case SpecConstant::Kind::real:
      return is_usual ? "float" : constant.bits == 64 ? "double" : fmt::format("float{}_t", constant.bits);
  }
  return {};
}

/// As in "3 (tile)".
std::string describe(const SpecConstant& constant) {
  return constant.name.empty() ? std::to_string(constant.id) : fmt::format("{} ({})", constant.id, constant.name);
}

}  // namespace

std::optional<std::uint64_t> bits_for(const SpecConstant& declared, const Constant& value) noexcept {
  using enum SpecConstant::Kind;
  return std::visit(
      [&](auto given) -> std::optional<std::uint64_t> {
        using Given = decltype(given);
        if constexpr (std::is_same_v<Given, bool>) {
          return declared.kind == boolean ? std::optional<std::uint64_t>(given ? 1 : 0) : std::nullopt;
        } else if constexpr (std::is_floating_point_v<Given>) {
          if (declared.kind != real || declared.bits != 8 * sizeof given) return std::nullopt;
          using Bits = std::conditional_t<sizeof given == 4, std::uint32_t, std::uint64_t>;
          return std::bit_cast<Bits>(given);
        } else {
          if (declared.bits != 8 * sizeof given) return std::nullopt;
          const bool is_signed = std::is_signed_v<Given>;
          const bool is_high = static_cast<std::make_signed_t<Given>>(given) < 0;
          const bool fits = (declared.kind == signed_integer && (is_signed || !is_high)) ||
                            (declared.kind == unsigned_integer && (!is_signed || !is_high));
          return fits ? std::optional<std::uint64_t>(static_cast<std::make_unsigned_t<Given>>(given))
                      : std::nullopt;
        }
      },
      value);
}

Result<void> check_constants(const std::string& program, const Constants& given,
                             const std::vector<SpecConstant>& declared) {
  const auto invalid = [](std::string message) { return Error(ErrorCode::invalid_request, std::move(message)); };
  for (const auto& [id, value] : given) {
    const auto same = std::ranges::equal_range(declared, id, {}, &SpecConstant::id);
    if (same.empty()) {
      std::vector<std::string> all;
      for (const SpecConstant& constant : declared)
        if (all.size() < 32) all.push_back(describe(constant));
      return invalid(fmt::format("{} has no specialisation constant with the id {}; it has {}", program, id,
                                 all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "))));
    }
    for (const SpecConstant& constant : same)
      if (!bits_for(constant, value))
        return invalid(fmt::format("the specialisation constant {} of {} has the type {}; {} was given",
                                   describe(constant), program, type_name(constant), to_string(value)));
  }
  return {};
}

}  // namespace kiln::vulkan
