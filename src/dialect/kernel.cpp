#include <kiln/kernel.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "backend/source_text.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "dialect/text.hpp"
#include "key/include_resolver.hpp"
#include "key/source_scanner.hpp"

namespace kiln {
namespace {

using dialect::NameUse;
using key::is_glsl;
using key::is_name;
using key::is_word;

constexpr std::string_view kernel_word = "KERNEL";

/// The function's name: the kernel's name with invalid characters replaced, and with a prefix so that it is no
/// keyword.
std::string entry_of(const Kernel& kernel, Language language) {
  if (is_glsl(language)) return "main";
  std::string entry = "kiln_" + kernel.name;
  for (char& c : entry)
    if (!is_word(c)) c = '_';
  return entry;
}

/// The offsets of the word KERNEL outside comments.
std::vector<std::size_t> kernel_words(std::string_view source) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < source.size();) {
    if (source.substr(i).starts_with("//")) {
      i = std::min(source.find('\n', i), source.size());
    } else if (source.substr(i).starts_with("/*")) {
      i = std::min(source.find("*/", i + 2), source.size() - 2) + 2;
    } else if (is_word(source[i])) {
      std::size_t end = i;
      while (end < source.size() && is_word(source[end])) ++end;
      if (source.substr(i, end - i) == kernel_word) found.push_back(i);
      i = end;
    } else {
      ++i;
    }
  }
  return found;
}

std::string_view glsl_type(Type type) {
  switch (type) {
    case Type::f32: return "float";
    case Type::i32: return "int";
    case Type::u32: return "uint";
    case Type::f32x2: return "vec2";
    case Type::f32x4: return "vec4";
    case Type::i32x4: return "ivec4";
    case Type::u32x4: return "uvec4";
    case Type::f16: return "uint";
  }
  return {};
}

std::string_view c_type(Type type, Language language) {
  switch (type) {
    case Type::f32: return "float";
    case Type::i32: return "int";
    case Type::u32: return "uint";
    case Type::f32x2: return "float2";
    case Type::f32x4: return "float4";
    case Type::i32x4: return "int4";
    case Type::u32x4: return "uint4";
    case Type::f16: return language == Language::opencl ? "half" : "unsigned short";
  }
  return {};
}

std::string_view type_in(Type type, Language language) {
  return is_glsl(language) ? glsl_type(type) : c_type(type, language);
}

bool is_scalar(Type type) { return type == Type::f32 || type == Type::i32 || type == Type::u32; }

std::string array_of(const SharedArray& array, Language language) {
  std::string text = fmt::format("{} {}", type_in(array.type, language), array.name);
  for (const std::string& extent : array.extents) text += fmt::format("[{}]", extent);
  return text;
}

/// GLSL declares a kernel's arguments outside the function.
std::string glsl_declarations(const Kernel& kernel, Language language) {
  std::string text = "layout(local_size_x = GROUP_X, local_size_y = GROUP_Y, local_size_z = GROUP_Z) in;\n";
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    const KernelBuffer& buffer = kernel.buffers[i];
    // Without `coherent`, a barrier does not make writes visible to other work items of the group.
    const std::string_view access = buffer.access == Access::read    ? "readonly "
                                    : buffer.access == Access::write ? "writeonly "
                                                                     : "coherent ";
    text += fmt::format("layout(std430, {}binding = {}) restrict {}buffer kiln_buffer_{} {{ {} {}[]; }};\n",
                        language == Language::vulkan_glsl ? "set = 0, " : "", i, access, i, glsl_type(buffer.type),
                        buffer.name);
  }
  if (!kernel.scalars.empty()) {
    text += language == Language::vulkan_glsl ? "layout(push_constant) uniform kiln_scalars {"
                                              : "layout(std140, binding = 0) uniform kiln_scalars {";
    for (const KernelScalar& scalar : kernel.scalars)
      text += fmt::format(" {} {};", glsl_type(scalar.type), scalar.name);
    text += " };\n";
  }
  for (const SharedArray& array : kernel.shared) text += fmt::format("shared {};\n", array_of(array, language));
  return text;
}

std::string scalar_struct(const Kernel& kernel, Language language) {
  if (kernel.scalars.empty()) return {};
  // Always named with `struct`, because a kernel called "scalars" has a function of the same name.
  std::string text = "struct kiln_scalars {";
  for (const KernelScalar& scalar : kernel.scalars)
    text += fmt::format(" {} {};", c_type(scalar.type, language), scalar.name);
  return text + " };\n";
}

/// The head of the C function and the declarations that its body begins with, one per line.
std::string c_head(const Kernel& kernel, Language language) {
  const bool opencl = language == Language::opencl;
  const std::string groups =
      language == Language::cuda && kernel.min_groups > 0 ? fmt::format(", {}", kernel.min_groups) : "";
  std::string text =
      opencl
          ? "kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z))) void "
          : fmt::format("extern \"C\" __global__ void __launch_bounds__(GROUP_X * GROUP_Y * GROUP_Z{}) ", groups);
  text += entry_of(kernel, language) + "(";
  std::string_view comma = "\n";
  for (const KernelBuffer& buffer : kernel.buffers) {
    text += fmt::format("{}{}{}{}* {} {}", comma, opencl ? "global " : "",
                        buffer.access == Access::read ? "const " : "", c_type(buffer.type, language),
                        opencl ? "restrict" : "__restrict__", buffer.name);
    comma = ",\n";
  }
  if (!kernel.scalars.empty()) text += fmt::format("{}const struct kiln_scalars kiln_given", comma);
  text += ") {\n";
  for (const KernelScalar& scalar : kernel.scalars)
    text += fmt::format("const {} {} = kiln_given.{};\n", c_type(scalar.type, language), scalar.name, scalar.name);
  for (const SharedArray& array : kernel.shared)
    text += fmt::format("{} {};\n", opencl ? "local" : "__shared__", array_of(array, language));
  return text;
}

std::size_t lines_of(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Ends the last line of a text, even if it ends in a backslash.
void end_line(std::string& text) {
  const bool ended = text.ends_with('\n');
  const bool continued = key::is_continued(std::string_view(text).substr(0, text.size() - (ended ? 1 : 0)));
  if (!ended) text += '\n';
  if (continued) text += '\n';
}

/// The #line directive for a line of the kernel's source or of generated text.
std::string line_directive(const Kernel& kernel, Language language, std::size_t line) {
  return key::line_directive(is_glsl(language) ? key::LineStyle::number : key::LineStyle::name, line, 0,
                             kernel.name);
}

/// Validates the kernel's declarations and source.
Result<void> check(const Kernel& kernel) {
  const auto invalid = [&kernel](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the kernel \"{}\" {}", kernel.name, why));
  };
  if (kernel.name.empty()) return invalid("has no name");
  std::set<std::string> names;
  const auto check_name = [&](std::string_view what, const std::string& name, NameUse use) -> Result<void> {
    std::string_view why;
    if (!is_name(name))
      why = "is not a valid C name";
    else if (!names.insert(name).second)
      why = "is already in use in this kernel";
    else
      why = dialect::why_taken(name, use);
    if (why.empty()) return {};
    return invalid(fmt::format("has {} called \"{}\", which {}; choose another name", what, name, why));
  };
  for (const auto& [name, value] : kernel.parameters) KILN_TRY(check_name("a parameter", name, NameUse::macro));
  for (const KernelBuffer& buffer : kernel.buffers)
    KILN_TRY(check_name("a buffer", buffer.name, NameUse::variable));
  for (const KernelScalar& scalar : kernel.scalars) {
    KILN_TRY(check_name("a scalar", scalar.name, NameUse::variable));
    if (!is_scalar(scalar.type))
      return invalid(fmt::format("has a scalar {} of a type that only buffers can have", scalar.name));
  }
  for (const SharedArray& array : kernel.shared) {
    KILN_TRY(check_name("a shared array", array.name, NameUse::variable));
    if (array.extents.empty()) return invalid(fmt::format("has a shared array {} without a size", array.name));
    if (array.type == Type::f16)
      return invalid(fmt::format("has a shared array {} of f16, which only buffers can have", array.name));
  }
  for (const std::uint32_t size : kernel.group_size)
    if (size == 0) return invalid("has a group size of 0");
  const std::size_t words = kernel_words(kernel.source).size();
  if (words != 1)
    return invalid(words == 0 ? "has no KERNEL { … } in its source" : "has the word KERNEL more than once");
  return {};
}

std::size_t element_bytes(Type type) {
  switch (type) {
    case Type::f16: return 2;
    case Type::f32:
    case Type::i32:
    case Type::u32: return 4;
    case Type::f32x2: return 8;
    case Type::f32x4:
    case Type::i32x4:
    case Type::u32x4: return 16;
  }
  return 1;
}

std::string_view type_name(Type type) {
  switch (type) {
    case Type::f32: return "f32";
    case Type::i32: return "i32";
    case Type::u32: return "u32";
    case Type::f32x2: return "f32x2";
    case Type::f32x4: return "f32x4";
    case Type::i32x4: return "i32x4";
    case Type::u32x4: return "u32x4";
    case Type::f16: return "f16";
  }
  return {};
}

/// Describes a wrong number of arguments; empty if the number is right.
template <class Declared>
std::string wrong_count(std::string_view what, const std::vector<Declared>& declared, std::size_t given) {
  if (given == declared.size()) return {};
  return fmt::format("it takes {} {}s, but {} were given: {}", declared.size(), what, given,
                     given < declared.size() ? fmt::format("{} is missing", declared[given].name)
                                             : fmt::format("number {} is not declared", declared.size() + 1));
}

/// Describes what is wrong with a launch's buffers; empty if they are valid.
std::string wrong_buffers(const std::vector<KernelBuffer>& declared, const std::vector<const Buffer*>& given) {
  std::map<const Buffer*, const KernelBuffer*> seen;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const KernelBuffer& buffer = declared[i];
    if (given[i] == nullptr) return fmt::format("the buffer {} is missing", buffer.name);
    if (given[i]->size() % element_bytes(buffer.type) != 0)
      return fmt::format("the buffer {} holds elements of {}, {} bytes each, but a buffer of {} bytes was given",
                         buffer.name, type_name(buffer.type), element_bytes(buffer.type), given[i]->size());
    const auto [first, is_new] = seen.try_emplace(given[i], &buffer);
    if (is_new) continue;
    if (first->second->access != Access::read || buffer.access != Access::read)
      return fmt::format("{} and {} are the same buffer, which is allowed only if both are read-only",
                         first->second->name, buffer.name);
  }
  return {};
}

std::string_view type_name(const Scalar& scalar) {
  constexpr std::array<std::string_view, 3> names = {"float", "int", "uint"};
  return names[scalar.index()];
}

bool is_of(const Scalar& scalar, Type type) {
  return (type == Type::f32 && std::holds_alternative<float>(scalar)) ||
         (type == Type::i32 && std::holds_alternative<std::int32_t>(scalar)) ||
         (type == Type::u32 && std::holds_alternative<std::uint32_t>(scalar));
}

}  // namespace

Result<std::string> Kernel::emit(Language language) const {
  if (key::is_compiled(language))
    return Error(ErrorCode::invalid_request, fmt::format("{} cannot be written in {}", name, to_string(language)));
  KILN_TRY(check(*this));
  std::string text;
  const bool reads_what_it_writes =
      std::ranges::any_of(buffers, [](const KernelBuffer& buffer) { return buffer.access == Access::read_write; });
  for (const std::string_view part : dialect::prelude(language, reads_what_it_writes)) text += part;
  // #version must come first.
  const std::size_t begin = is_glsl(language) ? text.find('\n') + 1 : 0;
  text.insert(begin, line_directive(*this, language, backend::generated_lines));
  text += is_glsl(language) ? glsl_declarations(*this, language) : scalar_struct(*this, language);
  const std::size_t lines_so_far = lines_of(text);
  text += line_directive(*this, language, 1);
  const std::size_t at = kernel_words(source).front();
  text += source.substr(0, at);
  if (is_glsl(language)) {
    text += "void main()";
  } else {
    end_line(text);
    text += line_directive(*this, language, backend::generated_lines + lines_so_far);
    text += c_head(*this, language);
    text += line_directive(*this, language, lines_of(source.substr(0, at)) + 1);
  }
  text += source.substr(at + kernel_word.size());
  end_line(text);
  if (!is_glsl(language)) text += "}\n";
  return text;
}

Result<Request> Kernel::request(Language language) const {
  auto text = KILN_TRY(emit(language));
  Request::Fields fields{.name = name,
                         .source = std::move(text),
                         .entries = {entry_of(*this, language)},
                         .language = language,
                         .defines = parameters};
  constexpr std::array<const char*, 3> sizes = {"GROUP_X", "GROUP_Y", "GROUP_Z"};
  for (std::size_t i = 0; i < 3; ++i) fields.defines.insert_or_assign(sizes[i], std::to_string(group_size[i]));
  return Request(std::move(fields));
}

Result<Request> Kernel::request(const Device& device) const {
  KILN_TRY(fits(device));
  return request(device.info().language);
}

Result<void> Kernel::fits(const Device& device) const {
  const DeviceLimits& limits = device.info().limits;
  const std::uint64_t items = std::uint64_t{group_size[0]} * group_size[1] * group_size[2];
  for (std::size_t i = 0; i < 3; ++i)
    if (group_size[i] > limits.max_group_size[i])
      return Error(ErrorCode::unsupported,
                   fmt::format("{} has groups of {} in dimension {}; {} allows at most {}", name, group_size[i], i,
                               device.info().identity.device, limits.max_group_size[i]));
  if (items > limits.max_group_items)
    return Error(ErrorCode::unsupported, fmt::format("{} has groups of {} work items; {} allows at most {}", name,
                                                     items, device.info().identity.device, limits.max_group_items));
  return {};
}

Result<std::vector<std::byte>> Kernel::pack(const std::vector<Scalar>& scalars_given) const {
  const auto invalid = [this](const std::string& why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}: {}", name, why));
  };
  if (const std::string wrong = wrong_count("scalar", scalars, scalars_given.size()); !wrong.empty())
    return invalid(wrong);
  std::vector<std::byte> packed;
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (!is_of(scalars_given[i], scalars[i].type))
      return invalid(fmt::format("the scalar {} has type {}, but a value of type {} was given", scalars[i].name,
                                 c_type(scalars[i].type, Language::cuda), type_name(scalars_given[i])));
    std::visit(
        [&packed](auto value) {
          const auto bytes = std::as_bytes(std::span(&value, 1));
          packed.insert(packed.end(), bytes.begin(), bytes.end());
        },
        scalars_given[i]);
  }
  return packed;
}

Result<Kernel> Kernel::specialised(const std::vector<Scalar>& scalars_given) const {
  const auto packed = KILN_TRY(pack(scalars_given));
  Kernel special = *this;
  special.scalars.clear();
  std::string sizes;
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (const auto* size = std::get_if<std::int32_t>(&scalars_given[i])) {
      special.parameters[scalars[i].name] = fmt::format("({})", *size);
      sizes += fmt::format("{} ", *size);
    } else {
      special.scalars.push_back(scalars[i]);
    }
  }
  special.name += "_c" + base::sha256(std::as_bytes(std::span(sizes))).hex().substr(0, 8);
  return special;
}

Result<Launch> Kernel::launch(std::array<std::uint32_t, 3> groups, std::vector<const Buffer*> buffers_given,
                              const std::vector<Scalar>& scalars_given) const {
  std::string wrong = wrong_count("buffer", buffers, buffers_given.size());
  if (wrong.empty()) wrong = wrong_buffers(buffers, buffers_given);
  if (!wrong.empty()) return Error(ErrorCode::invalid_request, fmt::format("{}: {}", name, wrong));
  const auto packed = KILN_TRY(pack(scalars_given));
  Launch launch{.groups = groups, .group_size = group_size};
  launch.arguments.assign(buffers_given.begin(), buffers_given.end());
  if (!packed.empty()) launch.arguments.push_back(by_value(packed));
  return launch;
}

}  // namespace kiln
