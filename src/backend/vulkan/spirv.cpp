#include "backend/vulkan/spirv.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backend/vulkan/spirv_declarations.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

using backend::GlslMember;
using backend::GlslResource;
using spirv::Id;
using spirv::malformed;
using spirv::plus;
using spirv::short_name;
using spirv::times;
using spirv::Type;
using spirv::Words;
using spv::Op;
using spv::StorageClass;
using Shape = Type::Shape;
using Kind = GlslResource::Kind;

constexpr std::uint32_t version_1_0 = 0x00010000;
/// From here on, an entry point lists all variables that it uses.
constexpr std::uint32_t version_1_4 = 0x00010400;
constexpr std::uint32_t max_number = std::numeric_limits<std::uint32_t>::max();
/// A module of more calls and uses than this, over all its entry points, counts as using everything that it
/// declares.
constexpr std::size_t max_steps = std::size_t{1} << 24;

std::uint32_t as_number(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, max_number));
}

Result<void> check_header(Words words, std::uint32_t max_version) {
  if (words.size() < spirv::header_words || words[0] != spv::MagicNumber)
    return malformed("it does not start with a SPIR-V header");
  if (words[1] < version_1_0 || (words[1] & 0xff0000ff) != 0) return malformed("its version is invalid");
  if (words[1] > max_version)
    return Error(ErrorCode::load_failed,
                 fmt::format("the SPIR-V has version {}.{}; the device takes versions up to {}.{}", words[1] >> 16,
                             words[1] >> 8 & 0xff, max_version >> 16, max_version >> 8 & 0xff));
  if (words[3] == 0 || words[3] > spirv::max_bound || words[4] != 0) return malformed("its header is invalid");
  return {};
}

/// Finds the interface of each entry point of a module with a valid header.
class Reader {
 public:
  Reader(Words words, const SpirvOptions& options)
      : words_(words), options_(options), ids_(words[3], options.constants) {}

  Result<std::vector<ShaderEntry>> read() {
    // In valid modules, decorations precede types; two passes do not depend on that.
    KILN_TRY(pass([this](Op op, Words operands) { ids_.decorate(op, operands); }));
    KILN_TRY(pass([this](Op op, Words operands) { declare(op, operands); }));
    if (entries_.empty()) return malformed("it has no compute entry point");
    constants_ = ids_.constants();
    std::ranges::stable_sort(constants_, {}, &SpecConstant::id);
    std::vector<ShaderEntry> found;
    std::set<std::string_view> names;
    for (const Entry& entry : entries_) {
      if (!names.insert(entry.name).second) return malformed("two entry points have the same name");
      found.push_back({std::string(entry.name), KILN_TRY(interface_of(entry))});
    }
    return found;
  }

 private:
  struct Entry {
    std::uint32_t function;
    std::string_view name;
    /// The ids of variables.
    Words interface;
  };
  struct Variable {
    std::uint32_t id = 0;
    StorageClass storage_class = {};
    std::uint32_t pointee = 0;
    bool is_always_used = false;
    /// The last function and the last entry point that was found to use it, as numbers from 1 on.
    std::uint32_t function = 0;
    std::uint32_t entry = 0;
  };
  struct Function {
    /// Indices of variables, and ids of functions.
    std::vector<std::uint32_t> variables = {};
    std::vector<std::uint32_t> callees = {};
    std::uint32_t caller = 0;
    std::uint32_t entry = 0;
    std::optional<std::array<std::uint32_t, 3>> size = {};
    /// Whether `size` has the ids of constants.
    bool size_is_ids = false;
  };

  static Error unsupported(std::string why) { return Error(ErrorCode::unsupported, std::move(why)); }

  template <class Visit>
  Result<void> pass(Visit visit) {
    const bool is_whole = spirv::for_each_instruction(words_, [&](Op op, Words operands) {
      visit(op, operands);
      return !ids_.has_problem();
    });
    KILN_TRY(ids_.check());
    if (!is_whole) return malformed("an instruction is longer than the module");
    return {};
  }

  void declare(Op op, Words operands) {
    if (function_ != 0) return read_body(op, operands);
    switch (op) {
      case Op::OpEntryPoint:
        if (ids_.has(operands, 3, 0) && ids_.is_id(operands[1])) declare_entry(operands);
        break;
      case Op::OpExecutionMode:
      case Op::OpExecutionModeId:
        if (ids_.has(operands, 2, 1)) declare_mode(operands);
        break;
      case Op::OpFunction:
        if (ids_.has(operands, 4, 2)) function_ = index_of_function(operands[1]);
        break;
      case Op::OpVariable:
        if (ids_.has(operands, 3, 2)) declare_variable(operands);
        break;
      default: ids_.declare(op, operands); break;
    }
  }

  /// The body of a function: the variables and functions that it refers to.
  void read_body(Op op, Words operands) {
    if (op == Op::OpFunctionEnd) {
      function_ = 0;
      return;
    }
    if (op == Op::OpFunctionCall && operands.size() > 2 && ids_.is_id(operands[2])) {
      const std::uint32_t callee = index_of_function(operands[2]);
      if (std::exchange(functions_[callee - 1].caller, function_) != function_)
        functions_[function_ - 1].callees.push_back(callee);
    }
    for (const std::uint32_t id : spirv::pointers_of(op, operands)) {
      const std::uint32_t index = id < variable_of_.size() ? variable_of_[id] : 0;
      if (index != 0 && std::exchange(variables_[index - 1].function, function_) != function_)
        functions_[function_ - 1].variables.push_back(index - 1);
    }
  }

  std::uint32_t index_of_function(std::uint32_t id) {
    std::uint32_t& index = ids_[id].function;
    if (index == 0) {
      functions_.emplace_back();
      index = static_cast<std::uint32_t>(functions_.size());
    }
    return index;
  }

  void declare_entry(Words operands) {
    const auto name = spirv::literal(operands.subspan(2));
    if (!name) {
      ids_.malformed("the name of an entry point does not end");
    } else if (static_cast<spv::ExecutionModel>(operands[0]) != spv::ExecutionModel::GLCompute) {
      ids_.unsupported("it has an entry point that is not a compute shader");
    } else if (name->size() > max_entry_name) {
      ids_.unsupported(
          fmt::format("the name of an entry point has {} bytes; use at most {}", name->size(), max_entry_name));
    } else if (entries_.size() == max_entries) {
      ids_.unsupported(fmt::format("it has more than {} entry points", max_entries));
    } else {
      entries_.push_back({index_of_function(operands[1]), *name, operands.subspan(2 + name->size() / 4 + 1)});
    }
  }

  void declare_mode(Words operands) {
    const auto mode = static_cast<spv::ExecutionMode>(operands[1]);
    const bool by_id = mode == spv::ExecutionMode::LocalSizeId;
    if ((mode != spv::ExecutionMode::LocalSize && !by_id) || !ids_.has(operands, 5, 1)) return;
    Function& of = functions_[index_of_function(operands[0]) - 1];
    // Drivers differ in which one they use.
    if (of.size) ids_.malformed("it declares the size of a work group twice");
    of.size = {operands[2], operands[3], operands[4]};
    of.size_is_ids = by_id;
    if (by_id)
      static_cast<void>(std::ranges::all_of(*of.size, [this](std::uint32_t id) { return ids_.is_id(id); }));
  }

  std::array<std::uint32_t, 3> group_size_of(const Entry& entry) {
    // A constant that is decorated as WorkgroupSize overrides the execution modes.
    if (const auto& size = ids_.group_size()) return *size;
    const Function& function = functions_[entry.function - 1];
    const auto size = function.size.value_or(std::array<std::uint32_t, 3>{});
    return function.size_is_ids ? ids_.constants_of(size) : size;
  }

  void declare_variable(Words operands) {
    const auto storage_class = static_cast<StorageClass>(operands[2]);
    // A variable whose first value is the address of another is not followed: it counts as used.
    if (operands.size() > 3 && operands[3] < variable_of_.size() && variable_of_[operands[3]] != 0)
      if (const std::uint32_t index = variable_of_[operands[3]] - 1;
          !std::exchange(variables_[index].is_always_used, true))
        always_used_.push_back(index);
    switch (storage_class) {
      case StorageClass::UniformConstant:
      case StorageClass::Uniform:
      case StorageClass::Workgroup:
      case StorageClass::PushConstant:
      case StorageClass::AtomicCounter:
      case StorageClass::StorageBuffer: break;
      default: return;
    }
    const Type& pointer = ids_.type(operands[0]);
    if (pointer.storage_class != storage_class || pointer.element == 0) {
      ids_.malformed("a variable has no type");
      return;
    }
    const std::uint32_t id = operands[1];
    if (id >= variable_of_.size()) variable_of_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * id));
    variables_.push_back({id, storage_class, pointer.element});
    variable_of_[id] = static_cast<std::uint32_t>(variables_.size());
    ++ids_[ids_.innermost(pointer.element)].blocks;
  }

  /// The variables of an entry point, as indices.
  std::vector<std::uint32_t> variables_of(const Entry& entry) {
    const auto number = static_cast<std::uint32_t>(&entry - entries_.data()) + 1;
    std::vector<std::uint32_t> used;
    const auto use = [&](std::uint32_t index) {
      if (std::exchange(variables_[index].entry, number) != number) used.push_back(index);
    };
    for (const std::uint32_t index : always_used_) use(index);
    if (options_.count == SpirvOptions::Count::used && words_[1] >= version_1_4) {
      for (const std::uint32_t id : entry.interface)
        if (id < variable_of_.size() && variable_of_[id] != 0) use(variable_of_[id] - 1);
    } else if (options_.count == SpirvOptions::Count::used) {
      std::vector<std::uint32_t> calls = {entry.function};
      while (!calls.empty() && steps_ < max_steps) {
        Function& function = functions_[calls.back() - 1];
        calls.pop_back();
        if (std::exchange(function.entry, number) == number) continue;
        steps_ += 1 + function.variables.size() + function.callees.size();
        for (const std::uint32_t index : function.variables) use(index);
        calls.insert(calls.end(), function.callees.begin(), function.callees.end());
      }
    }
    if (options_.count == SpirvOptions::Count::declared || steps_ >= max_steps)
      for (std::uint32_t index = 0; index < variables_.size(); ++index) use(index);
    std::ranges::sort(used);
    return used;
  }

  Result<ShaderInterface> interface_of(const Entry& entry) {
    ShaderInterface interface;
    interface.group_size = group_size_of(entry);
    if (std::ranges::find(interface.group_size, 0U) != interface.group_size.end())
      return malformed("it does not declare the size of a work group");
    const std::vector<std::uint32_t> variables = variables_of(entry);
    if (variables.size() > max_declarations) return too_many();
    for (const std::uint32_t index : variables) {
      const Variable& variable = variables_[index];
      const Id& pointee = ids_[variable.pointee];
      if (variable.storage_class == StorageClass::Workgroup) {
        interface.shared_bytes = plus(interface.shared_bytes, pointee.type.packed);
      } else if (variable.storage_class == StorageClass::PushConstant) {
        if (pointee.type.has_unknown_length) return unknown_length();
        interface.parameter_bytes = as_number(pointee.type.size);
        interface.members = members_of(pointee);
      } else {
        KILN_TRY(add_resource(interface, variable));
      }
    }
    KILN_TRY(sort_resources(interface.resources));
    interface.constants = constants_;
    declarations_ += interface.resources.size() + interface.members.size() + interface.constants.size();
    if (declarations_ > max_declarations) return too_many();
    return interface;
  }
  static Error unknown_length() {
    return unsupported(
        "it declares a block with an array whose length is a constant expression that Kiln cannot evaluate");
  }
  static Error too_many() {
    return unsupported(fmt::format(
        "its entry points have more than {} resources, parameters and specialisation constants", max_declarations));
  }

  /// The members of a push-constant block; none if one has no size.
  std::vector<GlslMember> members_of(const Id& block) {
    if (block.type.shape != Shape::structure || block.type.members.size() > max_members ||
        block.type.size > max_number)
      return {};
    std::vector<GlslMember> members;
    std::uint64_t end = 0;
    for (std::uint32_t i = 0; i < block.type.members.size(); ++i) {
      const spirv::Declarations::Span place = ids_.place_of(block, i, block.type.members[i], end);
      end = std::max(end, plus(place.begin, place.size));
      // A type that changed after the struct was declared.
      if (place.size == 0 || end > block.type.size) return {};
      const auto found = block.members.find(i);
      members.push_back({.name = found != block.members.end() ? short_name(found->second.name) : "",
                         .offset = static_cast<std::uint32_t>(place.begin),
                         .bytes = static_cast<std::uint32_t>(place.size)});
    }
    std::ranges::stable_sort(members, {}, &GlslMember::offset);
    return members;
  }

  bool is_vulkan() const noexcept { return options_.api == SpirvOptions::Api::vulkan; }

  /// The kind of a resource of this type; nullopt if it is no resource, as for a plain uniform of OpenGL.
  std::optional<Kind> kind_of(const Variable& variable, const Id& of) const {
    const bool is_buffer = of.type.dim == spv::Dim::Buffer;
    switch (variable.storage_class) {
      case StorageClass::StorageBuffer: return Kind::storage_buffer;
      case StorageClass::Uniform: return of.buffer_block ? Kind::storage_buffer : Kind::uniform_buffer;
      case StorageClass::AtomicCounter: return Kind::atomic_counters;
      default: break;
    }
    switch (of.type.shape) {
      case Shape::image:
        if (of.type.dim == spv::Dim::SubpassData) return std::nullopt;
        if (of.type.sampled == 1) return is_buffer ? Kind::uniform_texel_buffer : Kind::sampled_image;
        return is_buffer && is_vulkan() ? Kind::storage_texel_buffer : Kind::image;
      case Shape::sampled_image: return is_buffer && is_vulkan() ? Kind::uniform_texel_buffer : Kind::texture;
      case Shape::sampler: return Kind::sampler;
      default: return std::nullopt;
    }
  }

  Result<void> add_resource(ShaderInterface& interface, const Variable& variable) {
    const Id& declared = ids_[variable.id];
    const std::uint32_t inner = ids_.innermost(variable.pointee);
    const Id& of = ids_[inner];
    const auto kind = kind_of(variable, of);
    const std::string named =
        declared.name.empty() ? std::string() : fmt::format(" called {}", short_name(declared.name));
    if (is_vulkan() && (!kind || kind == Kind::atomic_counters))
      return unsupported(fmt::format(
          "it declares a resource{} that a launch cannot give: neither a buffer nor an image nor a sampler",
          named));
    std::uint64_t count = 1;
    for (std::uint32_t id = variable.pointee; id != inner; id = ids_.type(id).element) {
      const Type& array = ids_.type(id);
      if (array.shape != Shape::array || !array.length || *array.length == 0)
        return unsupported(fmt::format("it declares an array of resources{} whose length is unknown", named));
      count = times(count, *array.length);
    }
    if (!kind) {
      const std::uint64_t last = plus(declared.location.value_or(0), count - 1);
      interface.last_location = std::max(interface.last_location.value_or(0), as_number(last));
      return {};
    }
    if (count > max_number) return unsupported(fmt::format("it declares {} resources{}", count, named));
    const bool is_block = kind == Kind::storage_buffer || kind == Kind::uniform_buffer;
    if (is_block && of.type.shape != Shape::structure) return malformed("a buffer has no type");
    if (is_block && of.type.has_unknown_length) return unknown_length();
    if (is_vulkan() && !declared.binding) return malformed(fmt::format("a resource{} has no binding", named));
    GlslResource resource{.kind = *kind,
                          .place = {.binding = declared.binding.value_or(0), .set = declared.set.value_or(0)},
                          .count = static_cast<std::uint32_t>(count),
                          .name = name_of(declared, of, is_block),
                          .bytes = is_block ? of.type.size : 0};
    if (kind == Kind::atomic_counters) {
      // The array is of counters in one buffer.
      resource.bytes = plus(declared.offset.value_or(0), times(4, std::exchange(resource.count, 1)));
    }
    if (is_vulkan() && resource.place.binding > max_binding)
      return unsupported(fmt::format("it declares a {}{} with the binding {}; the highest is {}",
                                     backend::to_string(resource.kind), named, resource.place.binding,
                                     max_binding));
    interface.resources.push_back(std::move(resource));
    return {};
  }

  /// The name of a block, as in GLSL, or of a variable. Compilers of other languages make up names of blocks, which
  /// have a dot or are those of several variables.
  static std::string name_of(const Id& variable, const Id& type, bool is_block) {
    const bool by_block =
        is_block && !type.name.empty() && type.blocks == 1 && type.name.find('.') == std::string_view::npos;
    return short_name(by_block ? type.name : variable.name);
  }

  /// Sorts resources and joins those that share a binding.
  Result<void> sort_resources(std::vector<GlslResource>& resources) const {
    std::ranges::stable_sort(resources, [](const GlslResource& a, const GlslResource& b) {
      return std::pair(place_of(a), a.kind) < std::pair(place_of(b), b.kind);
    });
    std::vector<GlslResource> joined;
    for (GlslResource& resource : resources) {
      const bool is_same_place = !joined.empty() && place_of(joined.back()) == place_of(resource);
      if (!is_same_place || (!is_vulkan() && joined.back().kind != resource.kind)) {
        joined.push_back(std::move(resource));
        continue;
      }
      GlslResource& other = joined.back();
      if (other.kind != resource.kind) {
        const auto is_part = [](Kind kind) {
          return kind == Kind::texture || kind == Kind::sampler || kind == Kind::sampled_image;
        };
        if (!is_part(other.kind) || !is_part(resource.kind))
          return unsupported(fmt::format("it declares a {} and a {} with the binding {} of set {}",
                                         backend::to_string(other.kind), backend::to_string(resource.kind),
                                         resource.place.binding, resource.place.set));
        // An image and its sampler.
        other.kind = Kind::texture;
      }
      other.count = std::max(other.count, resource.count);
      other.bytes = std::max(other.bytes, resource.bytes);
      if (other.name.empty()) other.name = std::move(resource.name);
    }
    resources = std::move(joined);
    return {};
  }

  const Words words_;
  const SpirvOptions options_;
  spirv::Declarations ids_;
  std::vector<Entry> entries_;
  std::vector<SpecConstant> constants_;
  std::vector<Variable> variables_;
  /// The variable with an id, as an index plus 1; 0 if there is none.
  std::vector<std::uint32_t> variable_of_;
  std::vector<std::uint32_t> always_used_;
  std::vector<Function> functions_;
  /// The function whose body is read, as an index plus 1; 0 if there is none.
  std::uint32_t function_ = 0;
  std::size_t steps_ = 0;
  std::size_t declarations_ = 0;
};

}  // namespace

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

Result<std::vector<ShaderEntry>> read_spirv(std::span<const std::uint32_t> words, const SpirvOptions& options) {
  KILN_TRY(check_header(words, options.max_version));
  return Reader(words, options).read();
}

std::vector<std::uint32_t> with_entry_only(std::span<const std::uint32_t> words, std::string_view name) {
  const auto is_chosen = [name](Words operands) {
    return operands.size() > 2 && spirv::literal(operands.subspan(2)) == name;
  };
  std::uint32_t function = 0;
  spirv::for_each_instruction(words, [&](Op op, Words operands) {
    if (op == Op::OpEntryPoint && is_chosen(operands)) function = operands[1];
    return true;
  });
  std::vector<std::uint32_t> made(words.begin(), words.begin() + spirv::header_words);
  spirv::for_each_instruction(words, [&](Op op, Words operands) {
    const bool is_of_other = (op == Op::OpEntryPoint && !is_chosen(operands)) ||
                             ((op == Op::OpExecutionMode || op == Op::OpExecutionModeId) && !operands.empty() &&
                              operands[0] != function);
    // The word before the operands has the opcode and the length.
    if (!is_of_other) made.insert(made.end(), operands.data() - 1, operands.data() + operands.size());
    return true;
  });
  return made;
}

}  // namespace kiln::vulkan
