#include "backend/opengl/launch.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/launch_bindings.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

using backend::GlslArguments;
using Kind = backend::GlslResource::Kind;

GLuint unit_of(const ProgramInterface& interface, const GlslArguments::Bound& bound) {
  return interface.port_of(*bound.resource).unit + bound.element;
}

GLenum target_of_buffer(Kind kind) {
  switch (kind) {
    case Kind::uniform_buffer: return GL_UNIFORM_BUFFER;
    case Kind::atomic_counters: return GL_ATOMIC_COUNTER_BUFFER;
    default: return GL_SHADER_STORAGE_BUFFER;
  }
}

/// The multiple of bytes at which a range of a buffer may begin.
std::size_t offset_alignment(Kind kind) {
  GLint alignment = 4;
  if (kind == Kind::storage_buffer) glGetIntegerv(GL_SHADER_STORAGE_BUFFER_OFFSET_ALIGNMENT, &alignment);
  if (kind == Kind::uniform_buffer) glGetIntegerv(GL_UNIFORM_BUFFER_OFFSET_ALIGNMENT, &alignment);
  return static_cast<std::size_t>(std::max(alignment, 1));
}

/// Checks the arguments of one launch.
class Checks {
 public:
  Checks(const ShareGroup& group, const DeviceInfo& device, const LinkedProgram& program,
         const Launch& launch) noexcept
      : group_(group), device_(device), program_(program), launch_(launch) {}

  Result<void> check(const GlslArguments::Bound& bound) const {
    if (const auto* range = bound.argument->as<Argument::Range>()) return check_range(bound, *range);
    const auto* object = bound.argument->as<NativeObject>();
    if (object == nullptr) return {};
    const GLenum type = program_.interface().port_of(*bound.resource).type;
    return bound.resource->kind == Kind::image ? check_image(bound, *object, type)
                                               : check_texture(bound, *object, type);
  }

 private:
  /// As in "scale: argument 1" or "scale: the image to (binding 2)".
  std::string what(const GlslArguments::Bound& bound) const {
    if (std::holds_alternative<std::monostate>(bound.argument->place()))
      return fmt::format("{}: argument {}", program_.name(), bound.argument - launch_.arguments.data());
    return fmt::format("{}: the {}", program_.name(), backend::describe(*bound.resource, bound.element));
  }
  Error refuse(const GlslArguments::Bound& bound, std::string_view why) const {
    return Error(ErrorCode::invalid_request, fmt::format("{} {}", what(bound), why));
  }

  Result<void> check_range(const GlslArguments::Bound& bound, const Argument::Range& range) const {
    const auto* own =
        KILN_TRY(backend::own_argument<GlBuffer>(range, group_, device_.name, [&] { return what(bound); }));
    KILN_TRY(own->check());
    if (range.offset == 0) return {};
    if (range.offset == own->size()) return refuse(bound, "begins at the end of its buffer");
    const std::size_t alignment = offset_alignment(bound.resource->kind);
    if (range.offset % alignment != 0)
      return refuse(bound, fmt::format("begins at byte {} of its buffer; {} requires a multiple of {}",
                                       range.offset, device_.name, alignment));
    return {};
  }

  Result<void> check_image(const GlslArguments::Bound& bound, const NativeObject& object, GLenum type) const {
    const auto [format, access, level, packed] = object.numbers;
    static_cast<void>(format);
    static_cast<void>(access);
    const auto texture = static_cast<GLuint>(object.handle);
    if (glIsTexture(texture) != GL_TRUE)
      return refuse(bound, fmt::format("is given {}, which is no texture", texture));
    // Older contexts cannot ask without binding the texture.
    if (epoxy_gl_version() < 45 && !epoxy_has_gl_extension("GL_ARB_direct_state_access")) return {};
    GLint own_target = 0;
    glGetTextureParameteriv(texture, GL_TEXTURE_TARGET, &own_target);
    const bool layered = (packed >> 31) != 0;
    const GLenum wanted = target_of(type).target;
    const GLenum given =
        layered ? static_cast<GLenum>(own_target) : target_of_layer(static_cast<GLenum>(own_target));
    if (given != wanted)
      return refuse(bound, fmt::format("has the target {:#x}; the texture's is {:#x}{}", wanted, own_target,
                                       layered ? "" : ", of which one layer is given"));
    if (wanted == GL_TEXTURE_BUFFER) return {};
    GLint width = 0;
    glGetTextureLevelParameteriv(texture, static_cast<GLint>(level), GL_TEXTURE_WIDTH, &width);
    if (take_error() != GL_NO_ERROR || width == 0)
      return refuse(bound, fmt::format("is given level {}, which the texture does not have", level));
    return {};
  }
  /// The target that one layer of a texture has as an image.
  static GLenum target_of_layer(GLenum target) {
    switch (target) {
      case GL_TEXTURE_1D_ARRAY: return GL_TEXTURE_1D;
      case GL_TEXTURE_3D:
      case GL_TEXTURE_CUBE_MAP:
      case GL_TEXTURE_2D_ARRAY:
      case GL_TEXTURE_CUBE_MAP_ARRAY: return GL_TEXTURE_2D;
      case GL_TEXTURE_2D_MULTISAMPLE_ARRAY: return GL_TEXTURE_2D_MULTISAMPLE;
      default: return target;
    }
  }

  Result<void> check_texture(const GlslArguments::Bound& bound, const NativeObject& object, GLenum type) const {
    const auto texture = static_cast<GLuint>(object.handle);
    const auto sampler = static_cast<GLuint>(object.sampler);
    if (glIsTexture(texture) != GL_TRUE)
      return refuse(bound, fmt::format("is given {}, which is no texture", texture));
    if (sampler != 0 && glIsSampler(sampler) != GL_TRUE)
      return refuse(bound, fmt::format("is given the sampler {}, which does not exist", sampler));
    if (object.numbers[0] != target_of(type).target)
      return refuse(bound, fmt::format("has the target {:#x}; a texture of the target {:#x} was given",
                                       target_of(type).target, object.numbers[0]));
    return {};
  }

  const ShareGroup& group_;
  const DeviceInfo& device_;
  const LinkedProgram& program_;
  const Launch& launch_;
};

void bind_buffer(GLenum target, GLuint unit, const Argument::Range& range) {
  const auto& buffer = static_cast<const GlBuffer&>(*range.buffer);
  if (range.offset == 0)
    glBindBufferBase(target, unit, buffer.id());
  else
    glBindBufferRange(target, unit, buffer.id(), static_cast<GLintptr>(range.offset),
                      static_cast<GLsizeiptr>(buffer.room() - range.offset));
}

void bind(const GlslArguments::Bound& bound, GLuint unit, LaunchBindings& bindings, UniformBuffers& uniforms) {
  if (const auto* object = bound.argument->as<NativeObject>()) {
    const auto& numbers = object->numbers;
    if (bound.resource->kind == Kind::image) {
      bindings.save_image(unit);
      glBindImageTexture(unit, static_cast<GLuint>(object->handle), static_cast<GLint>(numbers[2]),
                         (numbers[3] >> 31) != 0 ? GL_TRUE : GL_FALSE, static_cast<GLint>(numbers[3] & 0x7fffffff),
                         numbers[1], numbers[0]);
    } else {
      bindings.save_texture(unit, find_target(numbers[0]));
      glBindTexture(numbers[0], static_cast<GLuint>(object->handle));
      glBindSampler(unit, static_cast<GLuint>(object->sampler));
    }
    return;
  }
  const GLenum target = target_of_buffer(bound.resource->kind);
  bindings.save_buffer(target, unit);
  if (const auto* range = bound.argument->as<Argument::Range>())
    bind_buffer(target, unit, *range);
  else if (const auto* value = bound.argument->as<Argument::Value>())
    uniforms.bind(unit, value->bytes());
}

/// Uniform blocks end at a multiple of a vec4, whatever they contain.
std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

Result<const LinkedProgram*> program_of(const ShareGroup& group, const DeviceInfo& device,
                                        const kiln::Module& module) {
  const auto* program = dynamic_cast<const LinkedProgram*>(&module);
  if (program == nullptr || &program->group() != &group)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  if (const std::string& problem = program->interface().problem; !problem.empty())
    return Error(ErrorCode::unsupported, fmt::format("{}: {}", program->name(), problem));
  return program;
}

Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = KILN_TRY(program_of(group, device, module));
  const ProgramInterface& interface = program->interface();
  Fitting fitted{.program = *program};
  fitted.groups =
      KILN_TRY(backend::check_extents(program->name(), interface.takes, launch, device.limits, "OpenGL"));
  fitted.arguments = KILN_TRY(backend::assign(program->name(), interface.takes, launch));
  const Checks checks(group, device, *program, launch);
  for (const auto& bound : fitted.arguments.bound) KILN_TRY(checks.check(bound));
  return fitted;
}

UniformBuffers::~UniformBuffers() {
  for (const UniformBuffer& buffer : buffers_) group_.delete_buffer(buffer.id);
}

void UniformBuffers::bind(GLuint unit, std::span<const std::byte> bytes) {
  if (used_ == buffers_.size()) {
    buffers_.emplace_back();
    glGenBuffers(1, &buffers_.back().id);
  }
  UniformBuffer& buffer = buffers_[used_++];
  glBindBufferBase(GL_UNIFORM_BUFFER, unit, buffer.id);
  // Drivers do not read from a buffer that is smaller than the block. What the value does not cover is 0.
  std::vector<std::byte> block(bytes.begin(), bytes.end());
  block.resize(padded(bytes.size()));
  if (buffer.room < block.size()) {
    buffer.room = block.size();
    glBufferData(GL_UNIFORM_BUFFER, static_cast<GLsizeiptr>(buffer.room), nullptr, GL_DYNAMIC_DRAW);
  }
  glBufferSubData(GL_UNIFORM_BUFFER, 0, static_cast<GLsizeiptr>(block.size()), block.data());
}

Result<void> dispatch(ShareGroup& group, const Fitting& fitted, GLuint program, UniformBuffers& uniforms) {
  const ProgramInterface& interface = fitted.program.interface();
  LaunchBindings bindings(group.in_callers_context() ? LaunchBindings::Context::callers
                                                     : LaunchBindings::Context::own);
  for (const auto& bound : fitted.arguments.bound) bind(bound, unit_of(interface, bound), bindings, uniforms);
  if (const auto parameters = fitted.arguments.parameters(); !parameters.empty()) {
    bindings.save_buffer(GL_UNIFORM_BUFFER, 0);
    uniforms.bind(0, parameters);
  }
  for (const auto& [member, value] : fitted.arguments.uniforms)
    set_uniform(program, interface.uniforms[static_cast<std::size_t>(member - interface.takes.uniforms.data())],
                value);
  // The program would run without an argument that the driver refuses.
  if (const GLenum error = take_error(); error == GL_OUT_OF_MEMORY || error == GL_CONTEXT_LOST)
    return gl_error(error, fmt::format("launching {}", fitted.program.name()));
  else if (error != GL_NO_ERROR)
    return Error(ErrorCode::invalid_request, fmt::format("{}: the driver refuses an argument (OpenGL error {:#x})",
                                                         fitted.program.name(), error));
  {
    std::optional<backend::quirks::MesaProgramDeletion::Launch> quirk;
    if (auto* deletion = group.mesa_program_deletion()) quirk.emplace(*deletion, program);
    glUseProgram(program);
    glDispatchCompute(fitted.groups[0], fitted.groups[1], fitted.groups[2]);
  }
  glMemoryBarrier(GL_ALL_BARRIER_BITS);
  return {};
}

}  // namespace kiln::opengl
