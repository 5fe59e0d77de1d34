#include "backend/glsl_arguments.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::backend {
namespace {

using Kind = GlslResource::Kind;

bool takes(Kind kind, const Argument& argument) noexcept {
  if (argument.as<Argument::Range>() != nullptr)
    return kind == Kind::storage_buffer || kind == Kind::uniform_buffer || kind == Kind::atomic_counters;
  if (argument.as<Argument::Value>() != nullptr) return kind == Kind::uniform_buffer;
  const auto* object = argument.as<NativeObject>();
  if (object == nullptr) return false;
  switch (object->kind) {
    case NativeObject::Kind::gl_image:
    case NativeObject::Kind::vk_image: return kind == Kind::image || kind == Kind::sampled_image;
    case NativeObject::Kind::gl_texture:
    case NativeObject::Kind::vk_texture: return kind == Kind::texture;
    case NativeObject::Kind::vk_sampler: return kind == Kind::sampler;
    case NativeObject::Kind::vk_texel_buffer:
      return kind == Kind::uniform_texel_buffer || kind == Kind::storage_texel_buffer;
    default: return false;
  }
}

/// How a launch gives an argument to a resource.
std::string remedy(const GlslResource& resource, std::uint32_t element) {
  std::string place = fmt::format(".binding = {}", resource.place.binding);
  if (resource.place.set != 0) place += fmt::format(", .set = {}", resource.place.set);
  if (element != 0) place += fmt::format(", .element = {}", element);
  const bool has_position = resource.kind == Kind::storage_buffer && resource.place.set == 0 && resource.count == 1;
  return fmt::format("give it {}by bound({{{}}}, …)",
                     has_position ? fmt::format("as buffer {}, or ", resource.place.binding) : "", place);
}

/// Collects the arguments of one launch.
class Assignment {
 public:
  Assignment(std::string_view program, const GlslInterface& interface, const Launch& launch)
      : program_(program), takes_(interface), launch_(launch) {}

  Result<GlslArguments> run() && {
    for (std::size_t i = 0; i < launch_.arguments.size(); ++i) KILN_TRY(add(i, launch_.arguments[i]));
    KILN_TRY(fill_parameters());
    KILN_TRY(check_complete());
    return std::move(made_);
  }

 private:
  Error refuse(std::string why) const {
    return Error(ErrorCode::invalid_request, fmt::format("{}: {}", program_, why));
  }

  Result<void> add(std::size_t index, const Argument& argument) {
    if (argument.as<Argument::Memory>() != nullptr) return outside_of_job(program_);
    if (argument.as<Argument::Local>() != nullptr)
      return refuse(
          fmt::format("argument {} is local memory; declare a shared array in the source instead", index));
    const auto* range = argument.as<Argument::Range>();
    if (argument.as<Argument::Null>() != nullptr || (range != nullptr && range->buffer == nullptr))
      return refuse(fmt::format("argument {} is a null buffer", index));
    if (const auto* name = std::get_if<std::string>(&argument.place())) return add_named(*name, argument);
    if (const auto* binding = std::get_if<Binding>(&argument.place())) return add_bound(*binding, argument);
    if (argument.as<Argument::Value>() != nullptr) {
      values_.push_back(&argument);
      return {};
    }
    if (argument.as<Argument::Range>() != nullptr) return add_buffer(next_buffer_++, argument);
    return refuse(
        fmt::format("argument {} is {}, which needs a place: use bound() or named()", index, content_of(argument)));
  }

  /// How many buffers without a place a resource takes. Elements that share a binding need a place.
  std::uint32_t positions_of(const GlslResource& resource) const {
    if (takes_.has_bindings_of_elements || resource.count == 1) return resource.count;
    return 0;
  }

  /// The i-th buffer without a place.
  Result<void> add_buffer(std::uint32_t i, const Argument& argument) {
    bool is_hole = false;
    bool is_bound = false;
    for (const GlslResource& resource : takes_.resources) {
      if (resource.kind != Kind::storage_buffer || resource.place.set != 0) continue;
      // Blocks may share a binding.
      if (i >= resource.place.binding && i - resource.place.binding < positions_of(resource)) {
        KILN_TRY(bind(resource, i - resource.place.binding, argument));
        is_bound = true;
      }
      is_hole = is_hole || resource.place.binding > i;
    }
    return is_bound || is_hole ? Result<void>() : Result<void>(wrong_count());
  }
  Error wrong_count() const {
    std::uint32_t declared = 0;
    for (const GlslResource& resource : takes_.resources)
      if (resource.kind == Kind::storage_buffer && resource.place.set == 0)
        declared = std::max(declared, resource.place.binding + positions_of(resource));
    const auto given = std::ranges::count_if(launch_.arguments, [](const Argument& argument) {
      return argument.as<Argument::Range>() != nullptr && std::holds_alternative<std::monostate>(argument.place());
    });
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} declares {} buffers; {} were given", program_, declared, given));
  }

  Result<void> add_bound(const Binding& binding, const Argument& argument) {
    const GlslResource* found = nullptr;
    const GlslResource* other = nullptr;
    for (const GlslResource& resource : takes_.resources) {
      const std::uint32_t at = binding.binding - resource.place.binding + binding.element;
      // In OpenGL, the elements of an array have bindings of their own.
      const bool is_here = binding.set == resource.place.set && binding.binding >= resource.place.binding &&
                           (binding.binding == resource.place.binding || takes_.has_bindings_of_elements) &&
                           at < resource.count;
      if (!is_here) continue;
      if (!takes(resource.kind, argument)) {
        other = &resource;
        continue;
      }
      // Resources of one kind may share a binding.
      if (found != nullptr && found->kind != resource.kind)
        return refuse(fmt::format("binding {} is a {} and a {}; use named()", binding.binding, describe(*found),
                                  describe(resource)));
      KILN_TRY(bind(resource, at, argument));
      found = &resource;
    }
    if (found != nullptr) return {};
    if (takes_.parameters.bytes > 0 && binding == takes_.parameters.place &&
        takes(takes_.parameters.kind, argument))
      return bind(takes_.parameters, 0, argument);
    if (other != nullptr)
      return refuse(fmt::format("the {} takes no {}", describe(*other), without_article(content_of(argument))));
    return refuse(binding.set != 0
                      ? fmt::format("it declares nothing in set {}, binding {}", binding.set, binding.binding)
                      : fmt::format("it declares nothing at binding {}{}", binding.binding,
                                    binding.element != 0 ? fmt::format(", element {}", binding.element) : ""));
  }
  static std::string without_article(const std::string& content) {
    return content.starts_with("a ") || content.starts_with("an ") ? content.substr(content.find(' ') + 1)
                                                                   : content;
  }

  Result<void> add_named(const std::string& name, const Argument& argument) {
    for (const GlslResource& resource : takes_.resources)
      if (const auto element = element_of(name, resource.name, resource.count)) {
        if (!takes(resource.kind, argument))
          return refuse(
              fmt::format("the {} takes no {}", describe(resource), without_article(content_of(argument))));
        return bind(resource, *element, argument);
      }
    if (takes_.parameters.bytes > 0 && !name.empty() && name == takes_.parameters.name &&
        takes(takes_.parameters.kind, argument))
      return bind(takes_.parameters, 0, argument);
    const auto* value = argument.as<Argument::Value>();
    for (const GlslMember& uniform : takes_.uniforms)
      if (uniform.name == name) {
        if (value == nullptr || !fits(uniform, value->bytes().size()))
          return refuse(fmt::format("the uniform {} takes a value of {} bytes; {} was given", name, uniform.bytes,
                                    content_of(argument)));
        if (std::ranges::find(made_.uniforms, &uniform, &GlslArguments::Uniform::member) != made_.uniforms.end())
          return refuse(fmt::format("the uniform {} is given twice", name));
        made_.uniforms.push_back({&uniform, value->bytes()});
        return {};
      }
    for (const GlslMember& member : takes_.members)
      if (member.name == name) return fill(member, argument);
    return refuse(fmt::format("it has no uniform, block or parameter called {}", name));
  }
  static bool fits(const GlslMember& uniform, std::size_t bytes) {
    return bytes == uniform.bytes ||
           (uniform.element_bytes != 0 && bytes > uniform.bytes && bytes % uniform.element_bytes == 0);
  }
  /// The element that a name means: "lights" or "lights[2]"; nullopt if it is another name.
  static std::optional<std::uint32_t> element_of(std::string_view name, std::string_view resource,
                                                 std::uint32_t count) {
    if (resource.empty() || !name.starts_with(resource)) return std::nullopt;
    name.remove_prefix(resource.size());
    if (name.empty()) return 0;
    for (std::uint32_t i = 0; i < count; ++i)
      if (name == fmt::format("[{}]", i)) return i;
    return std::nullopt;
  }

  bool is_bound(const GlslResource& resource, std::uint32_t element) const {
    return std::ranges::any_of(made_.bound, [&](const GlslArguments::Bound& bound) {
      return bound.resource == &resource && bound.element == element;
    });
  }
  Result<void> bind(const GlslResource& resource, std::uint32_t element, const Argument& argument) {
    if (is_bound(resource, element))
      return refuse(fmt::format("the {} is given twice", describe(resource, element)));
    if (const auto* range = argument.as<Argument::Range>()) {
      const std::uint64_t size = range->buffer->size();
      if (range->offset > size || size - range->offset < resource.bytes)
        return refuse(fmt::format("the {} needs {} bytes; the buffer has {}{}", describe(resource, element),
                                  resource.bytes, size - std::min<std::uint64_t>(range->offset, size),
                                  range->offset != 0 ? " from its offset on" : ""));
    }
    if (const auto* value = argument.as<Argument::Value>();
        value != nullptr && !is_size_of_block(value->bytes().size(), resource.bytes))
      return refuse(fmt::format("the {} takes {} bytes; {} were given", describe(resource, element), resource.bytes,
                                value->bytes().size()));
    made_.bound.push_back({&resource, element, &argument});
    return {};
  }

  /// Whether a value of `given` bytes is a whole block, perhaps with the padding at its end. OpenGL reports padded
  /// sizes.
  bool is_size_of_block(std::uint64_t given, std::uint64_t declared) const {
    return padded(given) == padded(declared) && (takes_.is_padded || given >= declared);
  }

  Result<void> fill(const GlslMember& member, const Argument& argument) {
    const auto* value = argument.as<Argument::Value>();
    if (value == nullptr || value->bytes().size() != member.bytes)
      return refuse(fmt::format("the parameter {} takes a value of {} bytes; {} was given", member.name,
                                member.bytes, content_of(argument)));
    if (filled_.empty()) {
      filled_.resize(takes_.members.size());
      made_.packed.resize(takes_.parameter_bytes);
    }
    const auto index = static_cast<std::size_t>(&member - takes_.members.data());
    if (filled_[index]) return refuse(fmt::format("the parameter {} is given twice", member.name));
    filled_[index] = true;
    std::ranges::copy(value->bytes(), made_.packed.begin() + member.offset);
    return {};
  }

  /// Uniform blocks of OpenGL end at a multiple of a vec4.
  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }

  Result<void> fill_parameters() {
    if (is_bound(takes_.parameters, 0)) {
      if (values_.empty() && filled_.empty()) return {};
      return refuse(fmt::format("the {} is given twice, whole and by its members", describe(takes_.parameters)));
    }
    if (values_.size() == 1 && filled_.empty()) {
      const auto bytes = values_[0]->as<Argument::Value>()->bytes();
      const bool fits = takes_.is_padded ? padded(bytes.size()) == padded(takes_.parameter_bytes)
                                         : bytes.size() == takes_.parameter_bytes;
      if (fits && takes_.parameter_bytes > 0) {
        made_.whole = bytes;
        return {};
      }
    }
    if (takes_.parameter_bytes == 0 && !values_.empty())
      return refuse(fmt::format("it declares no parameters; {} were given{}", values_.size(),
                                takes_.uniforms.empty() ? "" : "; give uniforms by named()"));
    // Members that are unknown are given as one value.
    if (takes_.members.empty() && takes_.parameter_bytes > 0) return wrong_parameters();
    std::size_t next = 0;
    for (const Argument* value : values_) {
      while (next < filled_.size() && filled_[next]) ++next;
      if (next >= takes_.members.size()) return wrong_parameters();
      KILN_TRY(fill(takes_.members[next++], *value));
    }
    const std::size_t filled = static_cast<std::size_t>(std::ranges::count(filled_, true));
    if (filled == takes_.members.size()) return {};
    if (values_.empty() && filled == 0) return wrong_parameters();
    const auto missing = std::ranges::find(filled_, false) - filled_.begin();
    return refuse(
        fmt::format("the parameter {} has no value", takes_.members[static_cast<std::size_t>(missing)].name));
  }
  Error wrong_parameters() const {
    std::size_t given = 0;
    for (const Argument* value : values_) given += value->as<Argument::Value>()->bytes().size();
    return Error(ErrorCode::invalid_request, fmt::format("{} declares {} bytes of parameters; {} were given",
                                                         program_, takes_.parameter_bytes, given));
  }

  Result<void> check_complete() const {
    std::size_t declared = is_bound(takes_.parameters, 0) ? 1 : 0;
    for (const GlslResource& resource : takes_.resources) declared += resource.count;
    if (made_.bound.size() != declared) return missing_resource();
    if (made_.uniforms.size() == takes_.uniforms.size()) return {};
    for (const GlslMember& uniform : takes_.uniforms)
      if (std::ranges::find(made_.uniforms, &uniform, &GlslArguments::Uniform::member) == made_.uniforms.end())
        return refuse(
            fmt::format("the uniform {} has no value; give it by named(\"{}\", …)", uniform.name, uniform.name));
    return {};
  }
  Error missing_resource() const {
    for (const GlslResource& resource : takes_.resources)
      for (std::uint32_t element = 0; element < resource.count; ++element) {
        if (is_bound(resource, element)) continue;
        // A launch with too few buffers gives none with a place.
        if (resource.kind == Kind::storage_buffer && next_buffer_ <= resource.place.binding && has_only_buffers())
          return wrong_count();
        return refuse(
            fmt::format("nothing is bound to the {}; {}", describe(resource, element), remedy(resource, element)));
      }
    return refuse("a resource is not bound");
  }
  bool has_only_buffers() const {
    return std::ranges::all_of(takes_.resources, [](const GlslResource& resource) {
      return resource.kind == Kind::storage_buffer && resource.place.set == 0 && resource.count == 1;
    });
  }

  const std::string_view program_;
  const GlslInterface& takes_;
  const Launch& launch_;
  GlslArguments made_;
  std::vector<const Argument*> values_;
  std::vector<bool> filled_;
  std::uint32_t next_buffer_ = 0;
};

}  // namespace

std::string_view to_string(GlslResource::Kind kind) noexcept {
  switch (kind) {
    case Kind::storage_buffer: return "storage buffer";
    case Kind::uniform_buffer: return "uniform buffer";
    case Kind::image: return "image";
    case Kind::texture: return "texture";
    case Kind::sampler: return "sampler";
    case Kind::sampled_image: return "sampled image";
    case Kind::uniform_texel_buffer: return "uniform texel buffer";
    case Kind::storage_texel_buffer: return "storage texel buffer";
    case Kind::atomic_counters: return "buffer of atomic counters";
  }
  return {};
}

std::string describe(const GlslResource& resource, std::uint32_t element) {
  std::string text(to_string(resource.kind));
  if (!resource.name.empty()) text += ' ' + resource.name;
  if (resource.count > 1) text += fmt::format("[{}]", element);
  return text + (resource.place.set != 0
                     ? fmt::format(" (set {}, binding {})", resource.place.set, resource.place.binding)
                     : fmt::format(" (binding {})", resource.place.binding));
}

Result<GlslArguments> assign(std::string_view program, const GlslInterface& takes, const Launch& launch) {
  return Assignment(program, takes, launch).run();
}

std::vector<Parameter> parameters_of(const GlslInterface& takes) {
  std::vector<Parameter> parameters;
  for (const GlslResource& resource : takes.resources)
    parameters.push_back(
        {.kind = std::string(to_string(resource.kind)),
         .name = resource.count > 1 ? fmt::format("{}[{}]", resource.name, resource.count) : resource.name,
         .place = resource.place.set != 0
                      ? fmt::format("set {}, binding {}", resource.place.set, resource.place.binding)
                      : fmt::format("binding {}", resource.place.binding),
         .bytes = resource.bytes});
  for (const GlslMember& member : takes.members)
    parameters.push_back({.kind = "value",
                          .name = member.name,
                          .place = fmt::format("parameters, byte {}", member.offset),
                          .bytes = member.bytes});
  if (takes.members.empty() && takes.parameter_bytes > 0)
    parameters.push_back({.kind = "value", .place = "parameters", .bytes = takes.parameter_bytes});
  for (const GlslMember& uniform : takes.uniforms)
    parameters.push_back({.kind = "uniform", .name = uniform.name, .place = "by name", .bytes = uniform.bytes});
  return parameters;
}

Result<Extent> check_extents(std::string_view program, const GlslInterface& takes, const Launch& launch,
                             const DeviceLimits& limits, std::string_view api) {
  KILN_TRY(refuse_offset(launch, program, api));
  KILN_TRY(refuse_shared_bytes(launch, program, "declare a shared array in the source"));
  if (launch.group_size.is_set() && launch.group_size != takes.group_size)
    return other_group_size(program, takes.group_size, launch.group_size);
  return groups_of(launch, takes.group_size, limits, program);
}

}  // namespace kiln::backend
