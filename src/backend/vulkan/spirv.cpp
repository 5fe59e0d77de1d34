#include "backend/vulkan/spirv.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <spirv/unified1/spirv.hpp11>

#include "base/bytes.hpp"

namespace kiln::vulkan {
namespace {

using spv::Decoration;
using spv::Op;
using spv::StorageClass;

constexpr std::uint32_t version_1_0 = 0x00010000;
constexpr std::uint32_t version_1_3 = 0x00010300;
/// The universal limit on ids.
constexpr std::uint32_t max_bound = 0x400000;
constexpr std::size_t header_words = 5;

constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

/// Lengths come from the module: sums and products stop at the largest number instead of beginning anew.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return b > huge - a ? huge : a + b; }
std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a != 0 && b > huge / a ? huge : a * b; }

struct Instruction {
  Op op;
  std::span<const std::uint32_t> operands;
};

struct Member {
  std::optional<std::uint32_t> offset;
  std::optional<std::uint32_t> matrix_stride;
  bool row_major = false;
};

struct Decorations {
  std::optional<std::uint32_t> binding;
  std::optional<std::uint32_t> set;
  std::optional<std::uint32_t> array_stride;
  bool buffer_block = false;
  bool workgroup_size = false;
  std::unordered_map<std::uint32_t, Member> members;
};

struct Type {
  std::uint64_t size = 0;
  bool is_struct = false;
  /// Of a vector, and of a matrix; 0 elsewhere.
  std::uint32_t components = 0;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  /// Of a pointer.
  StorageClass storage_class = {};
  std::uint32_t pointee = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint32_t> words) : words_(words) {}

  Result<Shape> read() {
    if (words_.size() < header_words || words_[0] != spv::MagicNumber)
      return malformed("it does not begin as SPIR-V does");
    if (words_[1] < version_1_0 || words_[1] > version_1_3 || (words_[1] & 0xff) != 0)
      return malformed("its version is not between 1.0 and 1.3");
    bound_ = words_[3];
    if (bound_ == 0 || bound_ > max_bound || words_[4] != 0) return malformed("its header is wrong");
    // What decorates a type comes before it, but nothing here should depend on that.
    for_each([&](const Instruction& i) { decorate(i); });
    for_each([&](const Instruction& i) { declare(i); });
    if (problem_ != nullptr) return malformed(problem_);
    if (!unsupported_.empty()) return Error(ErrorCode::unsupported, unsupported_);
    if (entries_ != 1) return malformed("it has not one compute program called main");
    if (std::find(shape_.group_size.begin(), shape_.group_size.end(), 0U) != shape_.group_size.end())
      return malformed("it does not say how large a work group is");
    return shape_;
  }

 private:
  static Error malformed(std::string_view why) {
    return Error(ErrorCode::load_failed, fmt::format("the SPIR-V is damaged: {}", why));
  }

  template <class Visit>
  void for_each(Visit visit) {
    for (std::size_t at = header_words; at < words_.size() && problem_ == nullptr;) {
      const std::size_t count = words_[at] >> spv::WordCountShift;
      if (count == 0 || count > words_.size() - at) {
        problem_ = "an instruction is longer than the module";
        return;
      }
      visit(Instruction{static_cast<Op>(words_[at] & spv::OpCodeMask), words_.subspan(at + 1, count - 1)});
      at += count;
    }
  }

  /// Whether an instruction has so many operands, the first `ids` of which are ids.
  bool has(const Instruction& instruction, std::size_t operands, std::size_t ids) {
    if (instruction.operands.size() < operands) {
      problem_ = "an instruction is too short";
      return false;
    }
    for (const std::uint32_t id : instruction.operands.first(ids))
      if (!is_id(id)) return false;
    return true;
  }
  bool is_id(std::uint32_t id) {
    if (id == 0 || id >= bound_) problem_ = "an id is out of bounds";
    return id != 0 && id < bound_;
  }

  void decorate(const Instruction& instruction) {
    const auto& operands = instruction.operands;
    if (instruction.op == Op::OpDecorate && has(instruction, 2, 1)) {
      Decorations& of = decorations_[operands[0]];
      const auto kind = static_cast<Decoration>(operands[1]);
      if (kind == Decoration::BufferBlock) of.buffer_block = true;
      if (kind != Decoration::Binding && kind != Decoration::DescriptorSet && kind != Decoration::ArrayStride &&
          kind != Decoration::BuiltIn)
        return;
      if (!has(instruction, 3, 1)) return;
      if (kind == Decoration::Binding) of.binding = operands[2];
      if (kind == Decoration::DescriptorSet) of.set = operands[2];
      if (kind == Decoration::ArrayStride) of.array_stride = operands[2];
      if (kind == Decoration::BuiltIn && static_cast<spv::BuiltIn>(operands[2]) == spv::BuiltIn::WorkgroupSize)
        of.workgroup_size = true;
    } else if (instruction.op == Op::OpMemberDecorate && has(instruction, 3, 1)) {
      Member& of = decorations_[operands[0]].members[operands[1]];
      const auto kind = static_cast<Decoration>(operands[2]);
      if (kind == Decoration::RowMajor) of.row_major = true;
      if ((kind != Decoration::Offset && kind != Decoration::MatrixStride) || !has(instruction, 4, 1)) return;
      (kind == Decoration::Offset ? of.offset : of.matrix_stride) = operands[3];
    }
  }

  void declare(const Instruction& instruction) {
    const auto& operands = instruction.operands;
    switch (instruction.op) {
      case Op::OpEntryPoint:
        if (has(instruction, 3, 0) && is_id(operands[1])) entries_ += is_main(instruction) ? 1U : 2U;
        break;
      case Op::OpExecutionMode:
        // A WorkgroupSize constant, where there is one, comes later and counts more.
        if (has(instruction, 2, 1) &&
            static_cast<spv::ExecutionMode>(operands[1]) == spv::ExecutionMode::LocalSize && has(instruction, 5, 1))
          std::copy_n(operands.begin() + 2, 3, shape_.group_size.begin());
        break;
      case Op::OpTypeBool:
        if (has(instruction, 1, 1)) types_[operands[0]] = {.size = 4};
        break;
      case Op::OpTypeInt:
      case Op::OpTypeFloat:
        if (has(instruction, 2, 1)) types_[operands[0]] = {.size = operands[1] / 8};
        break;
      case Op::OpTypeVector:
        if (has(instruction, 3, 2))
          types_[operands[0]] = {.size = times(size_of(operands[1]), operands[2]), .components = operands[2]};
        break;
      case Op::OpTypeMatrix:
        if (has(instruction, 3, 2)) declare_matrix(operands);
        break;
      case Op::OpTypeArray:
        if (has(instruction, 3, 3)) declare_array(operands);
        break;
      case Op::OpTypeRuntimeArray:
        if (has(instruction, 2, 2)) types_[operands[0]] = {};
        break;
      case Op::OpTypeStruct:
        if (has(instruction, 1, operands.size())) declare_struct(operands);
        break;
      case Op::OpTypePointer:
        if (has(instruction, 3, 1) && is_id(operands[2]))
          types_[operands[0]] = {
              .size = 8, .storage_class = static_cast<StorageClass>(operands[1]), .pointee = operands[2]};
        break;
      case Op::OpConstant:
      case Op::OpSpecConstant:
        if (has(instruction, 3, 2)) constants_[operands[1]] = operands[2];
        break;
      case Op::OpConstantComposite:
      case Op::OpSpecConstantComposite:
        if (has(instruction, 2, operands.size())) declare_group_size(operands);
        break;
      case Op::OpVariable:
        if (has(instruction, 3, 2)) declare_variable(operands);
        break;
      default: break;
    }
  }

  static bool is_main(const Instruction& entry) {
    std::uint32_t main[2] = {0, 0};
    std::memcpy(main, "main", 4);
    const auto name = entry.operands.subspan(2);
    return static_cast<spv::ExecutionModel>(entry.operands[0]) == spv::ExecutionModel::GLCompute &&
           name.size() >= 2 && name[0] == main[0] && name[1] == main[1];
  }

  std::uint64_t size_of(std::uint32_t type) const {
    const auto found = types_.find(type);
    return found != types_.end() ? found->second.size : 0;
  }

  void declare_matrix(std::span<const std::uint32_t> operands) {
    const auto column = types_.find(operands[1]);
    types_[operands[0]] = {.size = times(size_of(operands[1]), operands[2]),
                           .columns = operands[2],
                           .rows = column != types_.end() ? column->second.components : 0};
  }

  void declare_array(std::span<const std::uint32_t> operands) {
    const auto length = constants_.find(operands[2]);
    const auto decorated = decorations_.find(operands[0]);
    std::uint64_t each = size_of(operands[1]);
    if (decorated != decorations_.end() && decorated->second.array_stride) each = *decorated->second.array_stride;
    types_[operands[0]] = {.size = times(each, length != constants_.end() ? length->second : 1)};
  }

  void declare_struct(std::span<const std::uint32_t> operands) {
    Type type{.is_struct = true};
    const auto decorated = decorations_.find(operands[0]);
    for (std::uint32_t i = 0; i + 1 < operands.size(); ++i) {
      const std::uint32_t member_type = operands[i + 1];
      std::uint64_t begin = type.size;
      std::uint64_t size = size_of(member_type);
      if (decorated != decorations_.end()) {
        if (const auto found = decorated->second.members.find(i); found != decorated->second.members.end()) {
          const Member& member = found->second;
          begin = member.offset.value_or(0);
          const auto matrix = types_.find(member_type);
          if (member.matrix_stride && matrix != types_.end() && matrix->second.columns != 0)
            size = times(*member.matrix_stride, member.row_major ? matrix->second.rows : matrix->second.columns);
        }
      }
      type.size = std::max(type.size, plus(begin, size));
    }
    types_[operands[0]] = type;
  }

  void declare_group_size(std::span<const std::uint32_t> operands) {
    const auto decorated = decorations_.find(operands[1]);
    if (decorated == decorations_.end() || !decorated->second.workgroup_size) return;
    if (operands.size() != 5) {
      problem_ = "the size of a work group has not three dimensions";
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const auto value = constants_.find(operands[i + 2]);
      shape_.group_size[i] = value != constants_.end() ? value->second : 0;
    }
  }

  void declare_variable(std::span<const std::uint32_t> operands) {
    const auto storage_class = static_cast<StorageClass>(operands[2]);
    if (storage_class != StorageClass::UniformConstant && storage_class != StorageClass::Uniform &&
        storage_class != StorageClass::Workgroup && storage_class != StorageClass::PushConstant &&
        storage_class != StorageClass::StorageBuffer)
      return;
    const auto pointer = types_.find(operands[0]);
    if (pointer == types_.end() || pointer->second.storage_class != storage_class || pointer->second.pointee == 0) {
      problem_ = "a variable has no type";
      return;
    }
    const std::uint32_t pointee = pointer->second.pointee;
    if (storage_class == StorageClass::Workgroup) {
      shape_.shared_bytes = plus(shape_.shared_bytes, size_of(pointee));
    } else if (storage_class == StorageClass::PushConstant) {
      const std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
      shape_.parameter_bytes =
          std::max(shape_.parameter_bytes, static_cast<std::uint32_t>(std::min(size_of(pointee), most)));
    } else {
      declare_resource(operands[1], pointee, storage_class);
    }
  }

  void declare_resource(std::uint32_t id, std::uint32_t type, StorageClass storage_class) {
    const auto found = types_.find(type);
    const bool block = found != types_.end() && found->second.is_struct;
    const auto of_type = decorations_.find(type);
    const bool buffer =
        storage_class == StorageClass::StorageBuffer ||
        (storage_class == StorageClass::Uniform && of_type != decorations_.end() && of_type->second.buffer_block);
    const Decorations& where = decorations_[id];
    if (!buffer) {
      unsupported_ =
          "it binds a uniform buffer or an image; Kiln binds storage buffers, and parameters as push_constant";
    } else if (!block) {
      unsupported_ = "it binds an array of storage buffers; Kiln binds each on its own";
    } else if (where.set.value_or(0) != 0) {
      unsupported_ = fmt::format("it binds a buffer in set {}; Kiln binds those of set 0", *where.set);
    } else if (!where.binding || *where.binding >= max_bound) {
      problem_ = "a buffer has no binding";
    } else {
      shape_.buffers = std::max(shape_.buffers, *where.binding + 1);
    }
  }

  const std::span<const std::uint32_t> words_;
  std::uint32_t bound_ = 0;
  const char* problem_ = nullptr;
  std::string unsupported_;
  std::uint32_t entries_ = 0;
  Shape shape_;
  std::unordered_map<std::uint32_t, Decorations> decorations_;
  std::unordered_map<std::uint32_t, Type> types_;
  std::unordered_map<std::uint32_t, std::uint32_t> constants_;
};

}  // namespace

std::vector<std::byte> to_bytes(const Shape& shape) {
  base::ByteWriter writer;
  writer.number(shape.buffers);
  writer.number(shape.parameter_bytes);
  writer.number(shape.shared_bytes);
  for (const std::uint32_t size : shape.group_size) writer.number(size);
  return std::move(writer).bytes();
}

std::optional<Shape> shape_from(std::span<const std::byte> bytes) {
  if (bytes.size() != 28) return std::nullopt;
  base::ByteReader reader(bytes);
  Shape shape;
  shape.buffers = reader.number<std::uint32_t>();
  shape.parameter_bytes = reader.number<std::uint32_t>();
  shape.shared_bytes = reader.number<std::uint64_t>();
  for (std::uint32_t& size : shape.group_size) size = reader.number<std::uint32_t>();
  return shape;
}

std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes) {
  if (bytes.size() % 4 != 0) return {};
  std::vector<std::uint32_t> words(bytes.size() / 4);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

Result<Shape> read_spirv(std::span<const std::uint32_t> words) { return Reader(words).read(); }

}  // namespace kiln::vulkan
