#include "backend/vulkan/spirv_declarations.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace kiln::vulkan::spirv {

using spv::Decoration;
using spv::Op;
using spv::StorageClass;
using Shape = Type::Shape;

Error malformed(std::string_view why) {
  return Error(ErrorCode::load_failed, fmt::format("the SPIR-V is damaged: {}", why));
}

std::string short_name(std::string_view name) { return std::string(name.size() <= max_name ? name : ""); }

Id& Ids::operator[](std::uint32_t id) {
  if (id >= index_.size()) index_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * index_.size()));
  if (index_[id] == 0) {
    ids_.emplace_back();
    index_[id] = static_cast<std::uint32_t>(ids_.size());
  }
  return ids_[index_[id] - 1];
}

Result<void> Declarations::check() const {
  if (problem_ != nullptr) return spirv::malformed(problem_);
  if (!unsupported_.empty()) return Error(ErrorCode::unsupported, unsupported_);
  return {};
}

/// Whether there are at least `count` operands, the first `ids` of which are ids.
bool Declarations::has(Words operands, std::size_t count, std::size_t ids) {
  if (operands.size() < count) problem_ = "an instruction is too short";
  return operands.size() >= count &&
         std::ranges::all_of(operands.first(ids), [this](std::uint32_t id) { return is_id(id); });
}
bool Declarations::is_id(std::uint32_t id) {
  if (id == 0 || id >= bound_) problem_ = "an id is out of bounds";
  return id != 0 && id < bound_;
}

std::optional<std::uint32_t> Declarations::argument(Words operands, std::size_t at) {
  return has(operands, at + 1, 0) ? std::optional(operands[at]) : std::nullopt;
}

void Declarations::decorate(Op op, Words operands) {
  if (op == Op::OpDecorate && has(operands, 2, 1)) {
    Id& of = ids_[operands[0]];
    switch (static_cast<Decoration>(operands[1])) {
      case Decoration::BufferBlock: of.buffer_block = true; break;
      case Decoration::Binding: of.binding = argument(operands, 2); break;
      case Decoration::DescriptorSet: of.set = argument(operands, 2); break;
      case Decoration::Location: of.location = argument(operands, 2); break;
      case Decoration::Offset: of.offset = argument(operands, 2); break;
      case Decoration::SpecId: of.spec_id = argument(operands, 2); break;
      case Decoration::ArrayStride: of.array_stride = stride(operands, 2); break;
      case Decoration::BuiltIn:
        of.workgroup_size |= argument(operands, 2) == static_cast<std::uint32_t>(spv::BuiltIn::WorkgroupSize);
        break;
      default: break;
    }
  } else if (op == Op::OpMemberDecorate && has(operands, 3, 1)) {
    const auto decoration = static_cast<Decoration>(operands[2]);
    if (decoration != Decoration::RowMajor && decoration != Decoration::Offset &&
        decoration != Decoration::MatrixStride)
      return;
    Member& of = ids_[operands[0]].members[operands[1]];
    if (decoration == Decoration::RowMajor) of.row_major = true;
    if (decoration == Decoration::Offset) of.offset = argument(operands, 3);
    if (decoration == Decoration::MatrixStride) of.matrix_stride = stride(operands, 3);
  } else if (op == Op::OpName && has(operands, 1, 1)) {
    ids_[operands[0]].name = literal(operands.subspan(1)).value_or("");
  } else if (op == Op::OpMemberName && has(operands, 2, 1)) {
    ids_[operands[0]].members[operands[1]].name = literal(operands.subspan(2)).value_or("");
  } else if (op == Op::OpGroupDecorate || op == Op::OpGroupMemberDecorate) {
    unsupported_ = "it uses decoration groups, which are deprecated; compile it with a newer compiler";
  }
}

/// Mesa's OpenGL driver crashes if a stride is 0.
std::optional<std::uint32_t> Declarations::stride(Words operands, std::size_t at) {
  const auto bytes = argument(operands, at);
  if (bytes == 0U) problem_ = "an array or matrix has a stride of 0";
  return bytes;
}

/// Sets the type of an id, which consists of other types.
void Declarations::declare_type(std::uint32_t id, Type made, Words parts) {
  for (const std::uint32_t part : parts) made.depth = std::max(made.depth, type(part).depth);
  if (++made.depth > max_depth) unsupported_ = fmt::format("it nests types more than {} deep", max_depth);
  type(id) = made;
}

void Declarations::declare(Op op, Words operands) {
  switch (op) {
    case Op::OpConstantTrue:
    case Op::OpConstantFalse:
    case Op::OpSpecConstantTrue:
    case Op::OpSpecConstantFalse:
      if (has(operands, 2, 2))
        declare_constant(op, operands, op == Op::OpConstantTrue || op == Op::OpSpecConstantTrue ? 1 : 0);
      break;
    case Op::OpConstant:
    case Op::OpSpecConstant:
      if (has(operands, 3, 2))
        declare_constant(op, operands, operands[2] | std::uint64_t{operands.size() > 3 ? operands[3] : 0} << 32);
      break;
    case Op::OpConstantComposite:
    case Op::OpSpecConstantComposite:
      if (has(operands, 2, operands.size())) declare_composite(operands);
      break;
    case Op::OpSpecConstantOp:
      if (has(operands, 3, 2)) declare_operation(operands);
      break;
    case Op::OpTypeBool:
      if (has(operands, 1, 1))
        declare_type(operands[0], {.shape = Shape::boolean, .bits = 32, .size = 4, .packed = 4});
      break;
    case Op::OpTypeInt:
    case Op::OpTypeFloat:
      if (has(operands, 2, 1))
        declare_type(operands[0], {.shape = op == Op::OpTypeInt ? Shape::integer : Shape::real,
                                   .is_signed = op == Op::OpTypeInt && operands.size() > 2 && operands[2] != 0,
                                   .bits = operands[1],
                                   .size = operands[1] / 8,
                                   .packed = operands[1] / 8});
      break;
    case Op::OpTypeVector:
      if (has(operands, 3, 2))
        declare_type(operands[0],
                     {.shape = Shape::vector,
                      .size = times(type(operands[1]).size, operands[2]),
                      .packed = times(type(operands[1]).packed, operands[2]),
                      .components = operands[2]},
                     operands.subspan(1, 1));
      break;
    case Op::OpTypeMatrix:
      if (has(operands, 3, 2))
        declare_type(operands[0],
                     {.shape = Shape::matrix,
                      .size = times(type(operands[1]).size, operands[2]),
                      .packed = times(type(operands[1]).packed, operands[2]),
                      .components = type(operands[1]).components,
                      .columns = operands[2]},
                     operands.subspan(1, 1));
      break;
    case Op::OpTypeArray:
      if (has(operands, 3, 3)) declare_array(operands);
      break;
    case Op::OpTypeRuntimeArray:
      if (has(operands, 2, 2))
        declare_type(operands[0], {.shape = Shape::runtime_array, .element = operands[1]}, operands.subspan(1, 1));
      break;
    case Op::OpTypeStruct:
      if (has(operands, 1, operands.size())) declare_struct(operands);
      break;
    case Op::OpTypeForwardPointer:
    case Op::OpTypePointer: declare_pointer(op, operands); break;
    case Op::OpTypeFunction:
      if (has(operands, 2, operands.size()))
        declare_type(operands[0], {.shape = Shape::other}, operands.subspan(1));
      break;
    case Op::OpTypeImage:
      if (has(operands, 8, 2))
        declare_type(operands[0],
                     {.shape = Shape::image, .dim = static_cast<spv::Dim>(operands[2]), .sampled = operands[6]},
                     operands.subspan(1, 1));
      break;
    case Op::OpTypeSampler:
      if (has(operands, 1, 1)) declare_type(operands[0], {.shape = Shape::sampler});
      break;
    case Op::OpTypeSampledImage:
      if (has(operands, 2, 2))
        declare_type(operands[0],
                     {.shape = Shape::sampled_image, .element = operands[1], .dim = type(operands[1]).dim},
                     operands.subspan(1, 1));
      break;
    case Op::OpTypeAccelerationStructureKHR:
      if (has(operands, 1, 1)) declare_type(operands[0], {.shape = Shape::other});
      break;
    default: break;
  }
}

void Declarations::declare_array(Words operands) {
  const Id& id = ids_[operands[0]];
  const Type& element = type(operands[1]);
  const auto length = ids_[operands[2]].constant;
  const std::uint64_t each = id.array_stride ? *id.array_stride : element.size;
  declare_type(operands[0],
               {.shape = Shape::array,
                .size = times(each, length.value_or(1)),
                .packed = times(element.packed, length.value_or(1)),
                .has_unknown_length = !length || element.has_unknown_length,
                .length = length,
                .element = operands[1]},
               operands.subspan(1, 1));
}

void Declarations::declare_pointer(Op op, Words operands) {
  const bool is_forward = op == Op::OpTypeForwardPointer;
  if (!has(operands, is_forward ? 2 : 3, 1) || (!is_forward && !is_id(operands[2]))) return;
  declare_type(operands[0],
               {.shape = Shape::pointer,
                .size = 8,
                .packed = 8,
                .element = is_forward ? 0 : operands[2],
                .storage_class = static_cast<StorageClass>(operands[1])},
               is_forward ? Words() : operands.subspan(2, 1));
}

Declarations::Span Declarations::place_of(const Id& id, std::uint32_t index, std::uint32_t of, std::uint64_t end) {
  const Type& member = type(of);
  Span place{end, member.size};
  const auto found = id.members.find(index);
  if (found == id.members.end()) return place;
  if (found->second.offset) place.begin = *found->second.offset;
  if (const auto stride = found->second.matrix_stride; stride && member.shape == Shape::matrix)
    place.size = times(*stride, found->second.row_major ? member.components : member.columns);
  return place;
}

void Declarations::declare_struct(Words operands) {
  const Id& id = ids_[operands[0]];
  Type made{.shape = Shape::structure, .members = operands.subspan(1)};
  for (std::uint32_t i = 0; i < made.members.size(); ++i) {
    const Span place = place_of(id, i, made.members[i], made.size);
    made.size = std::max(made.size, plus(place.begin, place.size));
    made.packed = plus(made.packed, type(made.members[i]).packed);
    made.has_unknown_length = made.has_unknown_length || type(made.members[i]).has_unknown_length;
  }
  declare_type(operands[0], made, made.members);
}

void Declarations::declare_constant(Op op, Words operands, std::uint64_t value) {
  Id& id = ids_[operands[1]];
  const Type& of = type(operands[0]);
  const bool is_specialised =
      op == Op::OpSpecConstant || op == Op::OpSpecConstantTrue || op == Op::OpSpecConstantFalse;
  if (is_specialised && id.spec_id && of.bits <= 64) {
    SpecConstant constant{.id = *id.spec_id,
                          .kind = of.shape == Shape::boolean ? SpecConstant::Kind::boolean
                                  : of.shape == Shape::real  ? SpecConstant::Kind::real
                                  : of.is_signed             ? SpecConstant::Kind::signed_integer
                                                             : SpecConstant::Kind::unsigned_integer,
                          .bits = static_cast<std::uint8_t>(of.bits),
                          .value = value,
                          .name = short_name(id.name)};
    if (constant.bits != 8 && constant.bits != 16 && constant.bits != 32 && constant.bits != 64)
      problem_ = "a specialisation constant has no type";
    if (given_ != nullptr)
      if (const auto given = given_->find(constant.id); given != given_->end())
        if (const auto bits = bits_for(constant, given->second)) {
          constant.is_given = true;
          constant.value = value = *bits;
        }
    constants_.push_back(std::move(constant));
  }
  id.constant_type = operands[0];
  id.constant = value;
}

void Declarations::declare_composite(Words operands) {
  Id& id = ids_[operands[1]];
  id.constant_type = operands[0];
  id.parts = operands.subspan(2);
  if (!id.workgroup_size) return;
  if (id.parts.size() != 3) {
    problem_ = "the size of a work group does not have three dimensions";
    return;
  }
  if (group_size_) problem_ = "it declares the size of a work group twice";
  group_size_ = constants_of({id.parts[0], id.parts[1], id.parts[2]});
}

/// The values of constants; 0 for what is none.
std::array<std::uint32_t, 3> Declarations::constants_of(std::array<std::uint32_t, 3> ids) {
  for (std::uint32_t& id : ids)
    id = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(ids_[id].constant.value_or(0), std::numeric_limits<std::uint32_t>::max()));
  return ids;
}

void Declarations::declare_operation(Words operands) {
  Id& id = ids_[operands[1]];
  id.constant_type = operands[0];
  id.constant = evaluate(ids_, static_cast<Op>(operands[2]), operands.subspan(3), type(operands[0]));
}

/// The type of the elements of arrays of arrays.
std::uint32_t Declarations::innermost(std::uint32_t id) {
  for (std::uint32_t depth = 0; depth < max_depth; ++depth) {
    const Type& of = type(id);
    if (of.shape != Shape::array && of.shape != Shape::runtime_array) break;
    id = of.element;
  }
  return id;
}

}  // namespace kiln::vulkan::spirv
