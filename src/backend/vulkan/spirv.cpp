#include "backend/vulkan/spirv.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <spirv/unified1/spirv.hpp11>

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

using spv::Decoration;
using spv::Op;
using spv::StorageClass;
using Words = std::span<const std::uint32_t>;

constexpr std::uint32_t version_1_0 = 0x00010000;
/// SPIR-V's universal limit on ids.
constexpr std::uint32_t max_bound = 0x400000;
constexpr std::size_t header_words = 5;
/// Of an entry point; entries_from() reads no longer ones.
constexpr std::size_t max_entry_name = 4096;

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
  /// By the decorations of arrays and structs, as in buffers and push constants.
  std::uint64_t size = 0;
  /// Without them: drivers lay out shared memory themselves.
  std::uint64_t packed = 0;
  bool is_struct = false;
  /// Of vectors and matrices; otherwise 0.
  std::uint32_t components = 0;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  /// Of images and samplers.
  std::optional<backend::GlslResource::Kind> opaque = {};
  /// Of arrays: the innermost type that is none, and the number of these.
  std::uint32_t element = 0;
  std::uint64_t elements = 1;
  /// Of pointers.
  StorageClass storage_class = {};
  std::uint32_t pointee = 0;
};

/// Decorations and declaration of an id. Everything is empty for an id that the module only references.
struct Id {
  std::optional<std::uint32_t> binding;
  std::optional<std::uint32_t> set;
  std::optional<std::uint32_t> location;
  std::optional<std::uint32_t> array_stride;
  bool buffer_block = false;
  bool workgroup_size = false;
  std::unordered_map<std::uint32_t, Member> members;
  Type type;
  std::optional<std::uint32_t> constant;
};

/// The characters of a literal string, without the terminating NUL; nullopt if it has none.
std::optional<std::string> literal(Words words) {
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const std::string_view text(bytes, words.size_bytes());
  const std::size_t end = text.find('\0');
  return end == std::string_view::npos ? std::nullopt : std::optional(std::string(text.substr(0, end)));
}

class Reader {
 public:
  Reader(Words words, std::uint32_t max_version, Resources resources)
      : words_(words), max_version_(max_version), resources_(resources) {}

  Result<std::vector<ShaderEntry>> read() {
    if (auto problem = read_header()) return std::move(*problem);
    // In valid modules, decorations precede types; two passes do not depend on that.
    for_each_instruction([this](Op op, Words operands) { decorate(op, operands); });
    for_each_instruction([this](Op op, Words operands) { declare(op, operands); });
    if (problem_ != nullptr) return malformed(problem_);
    if (!unsupported_.empty()) return Error(ErrorCode::unsupported, unsupported_);
    if (entries_.empty()) return malformed("it has no compute entry point");
    std::vector<ShaderEntry> found;
    for (const Entry& entry : entries_) {
      ShaderInterface interface = interface_;
      interface.group_size = group_size_of(entry);
      if (std::ranges::find(interface.group_size, 0U) != interface.group_size.end())
        return malformed("it does not declare the size of a work group");
      if (std::ranges::any_of(found, [&](const ShaderEntry& other) { return other.name == entry.name; }))
        return malformed("two entry points have the same name");
      found.push_back({entry.name, interface});
    }
    return found;
  }

  Result<SpirvInputs> read_inputs() {
    KILN_TRY(read());
    return std::move(inputs_);
  }

  std::vector<std::uint32_t> capabilities() {
    std::vector<std::uint32_t> declared;
    if (read_header()) return declared;
    for_each_instruction([&](Op op, Words operands) {
      if (op == Op::OpCapability && !operands.empty()) declared.push_back(operands[0]);
    });
    return declared;
  }

 private:
  struct Entry {
    std::uint32_t function;
    std::string name;
    std::optional<std::array<std::uint32_t, 3>> size = {};
    /// Whether `size` has the ids of constants.
    bool size_is_ids = false;
  };

  static Error malformed(std::string_view why) {
    return Error(ErrorCode::load_failed, fmt::format("the SPIR-V is damaged: {}", why));
  }

  std::optional<Error> read_header() {
    if (words_.size() < header_words || words_[0] != spv::MagicNumber)
      return malformed("it does not start with a SPIR-V header");
    if (words_[1] < version_1_0 || (words_[1] & 0xff0000ff) != 0) return malformed("its version is invalid");
    if (words_[1] > max_version_)
      return Error(
          ErrorCode::load_failed,
          fmt::format("the SPIR-V has version {}.{}; the device takes versions up to {}.{}", words_[1] >> 16,
                      words_[1] >> 8 & 0xff, max_version_ >> 16, max_version_ >> 8 & 0xff));
    bound_ = words_[3];
    if (bound_ == 0 || bound_ > max_bound || words_[4] != 0) return malformed("its header is invalid");
    return std::nullopt;
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
        case Decoration::Location: of.location = argument(operands, 2); break;
        case Decoration::DescriptorSet: of.set = argument(operands, 2); break;
        case Decoration::ArrayStride: of.array_stride = stride(operands, 2); break;
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
        case Decoration::MatrixStride: of.matrix_stride = stride(operands, 3); break;
        default: break;
      }
    } else if (op == Op::OpGroupDecorate || op == Op::OpGroupMemberDecorate) {
      unsupported_ = "it uses decoration groups, which are deprecated; compile it with a newer compiler";
    }
  }

  /// Mesa's OpenGL driver crashes if a stride is 0.
  std::optional<std::uint32_t> stride(Words operands, std::size_t at) {
    const auto bytes = argument(operands, at);
    if (bytes == 0U) problem_ = "an array or matrix has a stride of 0";
    return bytes;
  }

  void declare(Op op, Words operands) {
    switch (op) {
      case Op::OpEntryPoint:
        if (has(operands, 3, 0) && is_id(operands[1])) declare_entry(operands);
        break;
      case Op::OpExecutionMode:
      case Op::OpExecutionModeId:
        if (has(operands, 2, 1)) declare_mode(operands);
        break;
      case Op::OpTypeBool:
        if (has(operands, 1, 1)) type(operands[0]) = {.size = 4, .packed = 4};
        break;
      case Op::OpTypeInt:
      case Op::OpTypeFloat:
        if (has(operands, 2, 1)) type(operands[0]) = {.size = operands[1] / 8, .packed = operands[1] / 8};
        break;
      case Op::OpTypeVector:
        if (has(operands, 3, 2))
          type(operands[0]) = {.size = times(type(operands[1]).size, operands[2]),
                               .packed = times(type(operands[1]).packed, operands[2]),
                               .components = operands[2]};
        break;
      case Op::OpTypeMatrix:
        if (has(operands, 3, 2))
          type(operands[0]) = {.size = times(type(operands[1]).size, operands[2]),
                               .packed = times(type(operands[1]).packed, operands[2]),
                               .columns = operands[2],
                               .rows = type(operands[1]).components};
        break;
      case Op::OpTypeImage:
        // The seventh operand is 2 for images without a sampler.
        if (has(operands, 8, 2))
          type(operands[0]) = {.opaque = operands[6] == 2 ? backend::GlslResource::Kind::image
                                                          : backend::GlslResource::Kind::texture};
        break;
      case Op::OpTypeSampler:
      case Op::OpTypeSampledImage:
        if (has(operands, 1, 1)) type(operands[0]) = {.opaque = backend::GlslResource::Kind::texture};
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
          type(operands[0]) = {.size = 8,
                               .packed = 8,
                               .storage_class = static_cast<StorageClass>(operands[1]),
                               .pointee = operands[2]};
        break;
      case Op::OpConstant:
      case Op::OpSpecConstant:
        // The second word of a 64-bit number is only looked at to tell that the number is large.
        if (has(operands, 3, 2))
          ids_[operands[1]].constant = operands.size() > 3 && operands[3] != 0 ? ~std::uint32_t{0} : operands[2];
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

  void declare_entry(Words operands) {
    auto name = literal(operands.subspan(2));
    if (!name) {
      problem_ = "the name of an entry point does not end";
    } else if (static_cast<spv::ExecutionModel>(operands[0]) != spv::ExecutionModel::GLCompute) {
      unsupported_ = "it has an entry point that is not a compute shader";
    } else if (name->size() > max_entry_name) {
      unsupported_ =
          fmt::format("the name of an entry point has {} bytes; use at most {}", name->size(), max_entry_name);
    } else {
      entries_.push_back({operands[1], std::move(*name)});
    }
  }

  void declare_mode(Words operands) {
    const auto mode = static_cast<spv::ExecutionMode>(operands[1]);
    const bool by_id = mode == spv::ExecutionMode::LocalSizeId;
    if ((mode != spv::ExecutionMode::LocalSize && !by_id) || !has(operands, 5, 1)) return;
    for (Entry& entry : entries_)
      if (entry.function == operands[0]) {
        // Drivers differ in which one they use.
        if (entry.size) problem_ = "it declares the size of a work group twice";
        entry.size = {operands[2], operands[3], operands[4]};
        entry.size_is_ids = by_id;
      }
  }

  std::array<std::uint32_t, 3> group_size_of(const Entry& entry) {
    // A constant that is decorated as WorkgroupSize overrides the execution modes.
    if (group_size_) return *group_size_;
    auto size = entry.size.value_or(std::array<std::uint32_t, 3>{});
    if (entry.size_is_ids)
      for (std::uint32_t& extent : size) extent = ids_[extent].constant.value_or(0);
    return size;
  }

  void declare_array(Words operands) {
    Id& id = ids_[operands[0]];
    const Type& element = type(operands[1]);
    const std::uint64_t each = id.array_stride ? *id.array_stride : element.size;
    const std::uint32_t length = ids_[operands[2]].constant.value_or(1);
    id.type = {.size = times(each, length),
               .packed = times(element.packed, length),
               .element = element.element != 0 ? element.element : operands[1],
               .elements = times(element.elements, length)};
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
      made.packed = plus(made.packed, of.packed);
    }
    id.type = made;
  }

  void declare_group_size(Words operands) {
    if (!ids_[operands[1]].workgroup_size) return;
    if (operands.size() != 5) {
      problem_ = "the size of a work group does not have three dimensions";
      return;
    }
    if (group_size_) problem_ = "it declares the size of a work group twice";
    group_size_.emplace();
    for (std::size_t i = 0; i < 3; ++i) (*group_size_)[i] = ids_[operands[i + 2]].constant.value_or(0);
  }

  void declare_variable(Words operands) {
    const auto storage_class = static_cast<StorageClass>(operands[2]);
    switch (storage_class) {
      case StorageClass::UniformConstant:
      case StorageClass::Uniform:
      case StorageClass::AtomicCounter:
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
      interface_.shared_bytes = plus(interface_.shared_bytes, pointee.type.packed);
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
    if (resources_ == Resources::any) {
      add_input(variable, block, storage_class, buffer);
      if (buffer && variable.binding && *variable.binding < max_bound)
        interface_.buffers = std::max(interface_.buffers, *variable.binding + 1);
    } else if (!buffer) {
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

  void add_input(const Id& variable, const Id& declared, StorageClass storage_class, bool buffer) {
    using Kind = backend::GlslResource::Kind;
    const Type& of = declared.type.element != 0 ? ids_[declared.type.element].type : declared.type;
    Kind kind = buffer ? Kind::storage_buffer : Kind::uniform_buffer;
    if (storage_class == StorageClass::AtomicCounter) {
      kind = Kind::atomic_counters;
    } else if (storage_class == StorageClass::UniformConstant && !of.opaque) {
      const std::uint64_t last = plus(variable.location.value_or(0), declared.type.elements - 1);
      const std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
      inputs_.last_location =
          std::max(inputs_.last_location.value_or(0), static_cast<std::uint32_t>(std::min(last, most)));
      return;
    } else if (of.opaque) {
      kind = *of.opaque;
    }
    // The counters of an array are in one buffer.
    const std::uint64_t count = kind == Kind::atomic_counters ? 1 : declared.type.elements;
    inputs_.resources.push_back({.kind = kind,
                                 .place = {.binding = variable.binding.value_or(0)},
                                 .count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, max_bound))});
  }

  const Words words_;
  const std::uint32_t max_version_;
  const Resources resources_;
  std::uint32_t bound_ = 0;
  const char* problem_ = nullptr;
  std::string unsupported_;
  std::vector<Entry> entries_;
  std::optional<std::array<std::uint32_t, 3>> group_size_;
  ShaderInterface interface_;
  SpirvInputs inputs_;
  std::unordered_map<std::uint32_t, Id> ids_;
};

}  // namespace

namespace {

/// Capabilities that need more than Vulkan 1.0 or OpenGL 4.5 offer, and that compilers of compute programs declare.
// clang-format off
#define KILN_CAPABILITIES(X) \
  X(Addresses) \
  X(Kernel) \
  X(Linkage) \
  X(Float16Buffer) \
  X(Vector16) \
  X(Groups) \
  X(GenericPointer) \
  X(Float16) \
  X(Float64) \
  X(Int8) \
  X(Int16) \
  X(Int64) \
  X(Int64Atomics) \
  X(AtomicStorage) \
  X(Geometry) \
  X(Tessellation) \
  X(InputAttachment) \
  X(SparseResidency) \
  X(MinLod) \
  X(TransformFeedback) \
  X(MultiViewport) \
  X(GroupNonUniform) \
  X(GroupNonUniformVote) \
  X(GroupNonUniformArithmetic) \
  X(GroupNonUniformBallot) \
  X(GroupNonUniformShuffle) \
  X(GroupNonUniformShuffleRelative) \
  X(GroupNonUniformClustered) \
  X(GroupNonUniformQuad) \
  X(GroupNonUniformPartitionedNV) \
  X(GroupNonUniformRotateKHR) \
  X(SubgroupBallotKHR) \
  X(SubgroupVoteKHR) \
  X(StorageBuffer16BitAccess) \
  X(UniformAndStorageBuffer16BitAccess) \
  X(StoragePushConstant16) \
  X(StorageInputOutput16) \
  X(StorageBuffer8BitAccess) \
  X(UniformAndStorageBuffer8BitAccess) \
  X(StoragePushConstant8) \
  X(VariablePointersStorageBuffer) \
  X(VariablePointers) \
  X(DenormPreserve) \
  X(DenormFlushToZero) \
  X(SignedZeroInfNanPreserve) \
  X(RoundingModeRTE) \
  X(RoundingModeRTZ) \
  X(RayQueryKHR) \
  X(ShaderClockKHR) \
  X(WorkgroupMemoryExplicitLayoutKHR) \
  X(WorkgroupMemoryExplicitLayout8BitAccessKHR) \
  X(WorkgroupMemoryExplicitLayout16BitAccessKHR) \
  X(ShaderViewportIndexLayerEXT) \
  X(ShaderNonUniform) \
  X(RuntimeDescriptorArray) \
  X(VulkanMemoryModel) \
  X(VulkanMemoryModelDeviceScope) \
  X(PhysicalStorageBufferAddresses) \
  X(ComputeDerivativeGroupQuadsNV) \
  X(ComputeDerivativeGroupLinearNV) \
  X(CooperativeMatrixNV) \
  X(ShaderSMBuiltinsNV) \
  X(DemoteToHelperInvocation) \
  X(ExpectAssumeKHR) \
  X(AtomicFloat16AddEXT) \
  X(AtomicFloat32AddEXT) \
  X(AtomicFloat64AddEXT) \
  X(AtomicFloat16MinMaxEXT) \
  X(AtomicFloat32MinMaxEXT) \
  X(AtomicFloat64MinMaxEXT) \
  X(DotProduct) \
  X(DotProductInputAll) \
  X(DotProductInput4x8Bit) \
  X(DotProductInput4x8BitPacked) \
  X(BitInstructions)
// clang-format on

/// The name of a capability; its number if it is rare.
std::string capability_name(spv::Capability capability) {
  switch (capability) {
#define KILN_NAMED(name) \
  case spv::Capability::name: return #name;
    KILN_CAPABILITIES(KILN_NAMED)
#undef KILN_NAMED
    default: return std::to_string(static_cast<std::uint32_t>(capability));
  }
}

constexpr std::size_t interface_bytes = 28;

void write(base::ByteWriter& writer, const ShaderInterface& interface) {
  writer.number(interface.buffers);
  writer.number(interface.parameter_bytes);
  writer.number(interface.shared_bytes);
  for (const std::uint32_t size : interface.group_size) writer.number(size);
}

ShaderInterface read_interface(base::ByteReader& reader) {
  ShaderInterface interface;
  interface.buffers = reader.number<std::uint32_t>();
  interface.parameter_bytes = reader.number<std::uint32_t>();
  interface.shared_bytes = reader.number<std::uint64_t>();
  for (std::uint32_t& size : interface.group_size) size = reader.number<std::uint32_t>();
  return interface;
}

}  // namespace

std::vector<std::byte> to_bytes(const std::vector<ShaderEntry>& entries) {
  base::ByteWriter writer;
  if (entries.size() == 1 && entries[0].name == "main") {
    write(writer, entries[0].interface);
    return std::move(writer).bytes();
  }
  for (const auto& [name, interface] : entries) {
    writer.text(name);
    write(writer, interface);
  }
  return std::move(writer).bytes();
}

std::optional<std::vector<ShaderEntry>> entries_from(std::span<const std::byte> bytes) {
  std::vector<ShaderEntry> entries;
  if (bytes.size() == interface_bytes) {
    base::ByteReader reader(bytes);
    entries.push_back({"main", read_interface(reader)});
    return entries;
  }
  while (!bytes.empty()) {
    if (bytes.size() < sizeof(std::uint64_t)) return std::nullopt;
    const auto length = base::ByteReader(bytes).number<std::uint64_t>();
    bytes = bytes.subspan(sizeof length);
    if (length > max_entry_name || bytes.size() < length + interface_bytes) return std::nullopt;
    base::ByteReader reader(bytes);
    const auto name = reader.raw(static_cast<std::size_t>(length));
    entries.push_back(
        {std::string(reinterpret_cast<const char*>(name.data()), name.size()), read_interface(reader)});
    bytes = bytes.subspan(static_cast<std::size_t>(length) + interface_bytes);
  }
  return entries.empty() ? std::nullopt : std::optional(std::move(entries));
}

std::uint32_t spirv_version_of(std::uint32_t vulkan_version) noexcept {
  const std::uint32_t minor = vulkan_version >> 12 & 0x3ff;
  if (minor >= 3) return 0x00010600;
  return minor == 2 ? 0x00010500 : 0x00010300;
}

std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes) {
  if (bytes.size() % 4 != 0) return {};
  std::vector<std::uint32_t> words(bytes.size() / 4);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

Result<std::vector<ShaderEntry>> read_spirv(std::span<const std::uint32_t> words, std::uint32_t max_version,
                                            Resources resources) {
  return Reader(words, max_version, resources).read();
}

Result<SpirvInputs> read_inputs(std::span<const std::uint32_t> words) {
  return Reader(words, version_1_0, Resources::any).read_inputs();
}

Result<void> check_capabilities(const std::string& program, std::span<const std::uint32_t> words,
                                std::span<const spv::Capability> enabled) {
  for (const std::uint32_t declared : Reader(words, ~std::uint32_t{0}, Resources::any).capabilities()) {
    const auto capability = static_cast<spv::Capability>(declared);
    if (std::ranges::find(enabled, capability) == enabled.end())
      return Error(ErrorCode::unsupported,
                   fmt::format("{} declares the SPIR-V capability {}, which Kiln does not enable on this device",
                               program, capability_name(capability)));
  }
  return {};
}

}  // namespace kiln::vulkan
