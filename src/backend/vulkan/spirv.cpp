#include "backend/vulkan/spirv.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <spirv/unified1/spirv.hpp11>

#include "base/bytes.hpp"

namespace kiln::vulkan {
namespace {

using spv::Decoration;
using spv::Op;
using spv::StorageClass;
using Words = std::span<const std::uint32_t>;

constexpr std::uint32_t version_1_0 = 0x00010000;
constexpr std::uint32_t version_1_3 = 0x00010300;
/// SPIR-V's universal limit on ids.
constexpr std::uint32_t max_bound = 0x400000;
constexpr std::size_t header_words = 5;

/// Lengths come from the module: sums and products saturate instead of wrapping around.
constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return b > huge - a ? huge : a + b; }
std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a != 0 && b > huge / a ? huge : a * b; }

struct Member {
  std::optional<std::uint32_t> offset;
  std::optional<std::uint32_t> matrix_stride;
  bool row_major = false;
};

struct Type {
  std::uint64_t size = 0;
  bool is_struct = false;
  /// Of vectors and matrices; otherwise 0.
  std::uint32_t components = 0;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  /// Of pointers.
  StorageClass storage_class = {};
  std::uint32_t pointee = 0;
};

/// Decorations and declaration of an id. Everything is empty for an id that the module only references.
struct Id {
  std::optional<std::uint32_t> binding;
  std::optional<std::uint32_t> set;
  std::optional<std::uint32_t> array_stride;
  bool buffer_block = false;
  bool workgroup_size = false;
  std::unordered_map<std::uint32_t, Member> members;
  Type type;
  std::optional<std::uint32_t> constant;
};

class Reader {
 public:
  explicit Reader(Words words) : words_(words) {}

  Result<ShaderInterface> read() {
    if (words_.size() < header_words || words_[0] != spv::MagicNumber)
      return malformed("it does not start with a SPIR-V header");
    if (words_[1] < version_1_0 || words_[1] > version_1_3 || (words_[1] & 0xff) != 0)
      return malformed("its version is not between 1.0 and 1.3");
    bound_ = words_[3];
    if (bound_ == 0 || bound_ > max_bound || words_[4] != 0) return malformed("its header is invalid");
    // In valid modules, decorations precede types; two passes do not depend on that.
    for_each_instruction([this](Op op, Words operands) { decorate(op, operands); });
    for_each_instruction([this](Op op, Words operands) { declare(op, operands); });
    if (problem_ != nullptr) return malformed(problem_);
    if (!unsupported_.empty()) return Error(ErrorCode::unsupported, unsupported_);
    if (entries_ != 1) return malformed("it does not have exactly one compute entry point called main");
    if (std::ranges::find(interface_.group_size, 0U) != interface_.group_size.end())
      return malformed("it does not declare the size of a work group");
    return interface_;
  }

 private:
  static Error malformed(std::string_view why) {
    return Error(ErrorCode::load_failed, fmt::format("the SPIR-V is damaged: {}", why));
  }

  template <class Visit>
  void for_each_instruction(Visit visit) {
    for (Words rest = words_.subspan(header_words); !rest.empty() && problem_ == nullptr;) {
      const std::size_t count = rest[0] >> spv::WordCountShift;
      if (count == 0 || count > rest.size()) {
        problem_ = "an instruction is longer than the module";
        return;
      }
      visit(static_cast<Op>(rest[0] & spv::OpCodeMask), rest.subspan(1, count - 1));
      rest = rest.subspan(count);
    }
  }

  /// Whether there are at least `count` operands, the first `ids` of which are ids.
  bool has(Words operands, std::size_t count, std::size_t ids) {
    if (operands.size() < count) problem_ = "an instruction is too short";
    return operands.size() >= count &&
           std::ranges::all_of(operands.first(ids), [this](std::uint32_t id) { return is_id(id); });
  }
  bool is_id(std::uint32_t id) {
    if (id == 0 || id >= bound_) problem_ = "an id is out of bounds";
    return id != 0 && id < bound_;
  }

  std::optional<std::uint32_t> argument(Words operands, std::size_t at) {
    return has(operands, at + 1, 0) ? std::optional(operands[at]) : std::nullopt;
  }

  void decorate(Op op, Words operands) {
    if (op == Op::OpDecorate && has(operands, 2, 1)) {
      Id& of = ids_[operands[0]];
      switch (static_cast<Decoration>(operands[1])) {
        case Decoration::BufferBlock: of.buffer_block = true; break;
        case Decoration::Binding: of.binding = argument(operands, 2); break;
        case Decoration::DescriptorSet: of.set = argument(operands, 2); break;
        case Decoration::ArrayStride: of.array_stride = argument(operands, 2); break;
        case Decoration::BuiltIn:
          of.workgroup_size |= argument(operands, 2) == static_cast<std::uint32_t>(spv::BuiltIn::WorkgroupSize);
          break;
        default: break;
      }
    } else if (op == Op::OpMemberDecorate && has(operands, 3, 1)) {
      Member& of = ids_[operands[0]].members[operands[1]];
      switch (static_cast<Decoration>(operands[2])) {
        case Decoration::RowMajor: of.row_major = true; break;
        case Decoration::Offset: of.offset = argument(operands, 3); break;
        case Decoration::MatrixStride: of.matrix_stride = argument(operands, 3); break;
        default: break;
      }
    }
  }

  void declare(Op op, Words operands) {
    switch (op) {
      case Op::OpEntryPoint:
        if (has(operands, 3, 0) && is_id(operands[1])) entries_ += is_main(operands) ? 1U : 2U;
        break;
      case Op::OpExecutionMode:
        // A WorkgroupSize constant comes later and overrides this.
        if (has(operands, 2, 1) && static_cast<spv::ExecutionMode>(operands[1]) == spv::ExecutionMode::LocalSize &&
            has(operands, 5, 1))
          std::ranges::copy(operands.subspan(2, 3), interface_.group_size.begin());
        break;
      case Op::OpTypeBool:
        if (has(operands, 1, 1)) type(operands[0]) = {.size = 4};
        break;
      case Op::OpTypeInt:
      case Op::OpTypeFloat:
        if (has(operands, 2, 1)) type(operands[0]) = {.size = operands[1] / 8};
        break;
      case Op::OpTypeVector:
        if (has(operands, 3, 2))
          type(operands[0]) = {.size = times(type(operands[1]).size, operands[2]), .components = operands[2]};
        break;
      case Op::OpTypeMatrix:
        if (has(operands, 3, 2))
          type(operands[0]) = {.size = times(type(operands[1]).size, operands[2]),
                               .columns = operands[2],
                               .rows = type(operands[1]).components};
        break;
      case Op::OpTypeArray:
        if (has(operands, 3, 3)) declare_array(operands);
        break;
      case Op::OpTypeRuntimeArray:
        if (has(operands, 2, 2)) type(operands[0]) = {};
        break;
      case Op::OpTypeStruct:
        if (has(operands, 1, operands.size())) declare_struct(operands);
        break;
      case Op::OpTypePointer:
        if (has(operands, 3, 1) && is_id(operands[2]))
          type(operands[0]) = {
              .size = 8, .storage_class = static_cast<StorageClass>(operands[1]), .pointee = operands[2]};
        break;
      case Op::OpConstant:
      case Op::OpSpecConstant:
        if (has(operands, 3, 2)) ids_[operands[1]].constant = operands[2];
        break;
      case Op::OpConstantComposite:
      case Op::OpSpecConstantComposite:
        if (has(operands, 2, operands.size())) declare_group_size(operands);
        break;
      case Op::OpVariable:
        if (has(operands, 3, 2)) declare_variable(operands);
        break;
      default: break;
    }
  }

  Type& type(std::uint32_t id) { return ids_[id].type; }

  static bool is_main(Words entry) {
    std::uint32_t main[2] = {0, 0};
    std::memcpy(main, "main", 4);
    return static_cast<spv::ExecutionModel>(entry[0]) == spv::ExecutionModel::GLCompute && entry.size() >= 4 &&
           std::ranges::equal(entry.subspan(2, 2), main);
  }

  void declare_array(Words operands) {
    Id& id = ids_[operands[0]];
    const std::uint64_t each = id.array_stride ? *id.array_stride : type(operands[1]).size;
    id.type = {.size = times(each, ids_[operands[2]].constant.value_or(1))};
  }

  void declare_struct(Words operands) {
    Id& id = ids_[operands[0]];
    Type made{.is_struct = true};
    for (std::uint32_t i = 0; i + 1 < operands.size(); ++i) {
      const Type& of = type(operands[i + 1]);
      std::uint64_t begin = made.size;
      std::uint64_t size = of.size;
      if (const auto found = id.members.find(i); found != id.members.end()) {
        const Member& member = found->second;
        begin = member.offset.value_or(0);
        if (member.matrix_stride && of.columns != 0)
          size = times(*member.matrix_stride, member.row_major ? of.rows : of.columns);
      }
      made.size = std::max(made.size, plus(begin, size));
    }
    id.type = made;
  }

  void declare_group_size(Words operands) {
    if (!ids_[operands[1]].workgroup_size) return;
    if (operands.size() != 5) {
      problem_ = "the size of a work group does not have three dimensions";
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) interface_.group_size[i] = ids_[operands[i + 2]].constant.value_or(0);
  }

  void declare_variable(Words operands) {
    const auto storage_class = static_cast<StorageClass>(operands[2]);
    switch (storage_class) {
      case StorageClass::UniformConstant:
      case StorageClass::Uniform:
      case StorageClass::Workgroup:
      case StorageClass::PushConstant:
      case StorageClass::StorageBuffer: break;
      default: return;
    }
    const Type& pointer = type(operands[0]);
    if (pointer.storage_class != storage_class || pointer.pointee == 0) {
      problem_ = "a variable has no type";
      return;
    }
    const Id& pointee = ids_[pointer.pointee];
    if (storage_class == StorageClass::Workgroup) {
      interface_.shared_bytes = plus(interface_.shared_bytes, pointee.type.size);
    } else if (storage_class == StorageClass::PushConstant) {
      const std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
      interface_.parameter_bytes =
          std::max(interface_.parameter_bytes, static_cast<std::uint32_t>(std::min(pointee.type.size, most)));
    } else {
      declare_resource(ids_[operands[1]], pointee, storage_class);
    }
  }

  void declare_resource(const Id& variable, const Id& block, StorageClass storage_class) {
    const bool buffer = storage_class == StorageClass::StorageBuffer ||
                        (storage_class == StorageClass::Uniform && block.buffer_block);
    if (!buffer) {
      unsupported_ =
          "it declares a uniform buffer or an image; use storage buffers, and push_constant for parameters";
    } else if (!block.type.is_struct) {
      unsupported_ = "it declares an array of storage buffers; declare each buffer on its own";
    } else if (variable.set.value_or(0) != 0) {
      unsupported_ = fmt::format("it declares a buffer in set {}; use set 0", *variable.set);
    } else if (!variable.binding || *variable.binding >= max_bound) {
      problem_ = "a buffer has no binding";
    } else {
      interface_.buffers = std::max(interface_.buffers, *variable.binding + 1);
    }
  }

  const Words words_;
  std::uint32_t bound_ = 0;
  const char* problem_ = nullptr;
  std::string unsupported_;
  std::uint32_t entries_ = 0;
  ShaderInterface interface_;
  std::unordered_map<std::uint32_t, Id> ids_;
};

}  // namespace

std::vector<std::byte> to_bytes(const ShaderInterface& interface) {
  base::ByteWriter writer;
  writer.number(interface.buffers);
  writer.number(interface.parameter_bytes);
  writer.number(interface.shared_bytes);
  for (const std::uint32_t size : interface.group_size) writer.number(size);
  return std::move(writer).bytes();
}

std::optional<ShaderInterface> interface_from(std::span<const std::byte> bytes) {
  if (bytes.size() != 28) return std::nullopt;
  base::ByteReader reader(bytes);
  ShaderInterface interface;
  interface.buffers = reader.number<std::uint32_t>();
  interface.parameter_bytes = reader.number<std::uint32_t>();
  interface.shared_bytes = reader.number<std::uint64_t>();
  for (std::uint32_t& size : interface.group_size) size = reader.number<std::uint32_t>();
  return interface;
}

std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes) {
  if (bytes.size() % 4 != 0) return {};
  std::vector<std::uint32_t> words(bytes.size() / 4);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

Result<ShaderInterface> read_spirv(std::span<const std::uint32_t> words) { return Reader(words).read(); }

}  // namespace kiln::vulkan
