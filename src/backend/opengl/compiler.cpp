#include "backend/opengl/compiler.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/staging.hpp"
#include "backend/quirks/mesa_spirv_binary.hpp"
#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "backend/vulkan/spirv.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

/// Owns a shader object. The destructor deletes it in the current context.
class Shader {
 public:
  Shader() : id_(glCreateShader(GL_COMPUTE_SHADER)) {}
  ~Shader() { glDeleteShader(id_); }
  Shader(const Shader&) = delete;
  Shader& operator=(const Shader&) = delete;
  GLuint id() const noexcept { return id_; }

 private:
  GLuint id_;
};

class ProgramObject {
 public:
  ProgramObject() : id_(glCreateProgram()) {}
  ~ProgramObject() {
    if (id_ != 0) glDeleteProgram(id_);
  }
  ProgramObject(const ProgramObject&) = delete;
  ProgramObject& operator=(const ProgramObject&) = delete;
  GLuint id() const noexcept { return id_; }
  GLuint release() noexcept { return std::exchange(id_, 0); }

 private:
  GLuint id_;
};

template <class Get, class GetLog>
std::string info_log(GLuint id, Get get, GetLog get_log) {
  GLint length = 0;
  get(id, GL_INFO_LOG_LENGTH, &length);
  std::string log(static_cast<std::size_t>(std::max(length, 0)), '\0');
  GLsizei written = 0;
  if (length > 0) get_log(id, length, &written, log.data());
  log.resize(static_cast<std::size_t>(written));
  return log;
}

/// Other contexts see a shared object only after the commands that changed it have completed.
void finish_for_others() { glFinish(); }

/// The error if the driver failed for lack of memory or a lost context; nullopt if it rejected its input.
std::optional<Error> drivers_fault(std::string_view doing, std::string_view name, const std::string& log) {
  const GLenum error = take_error();
  if (error != GL_OUT_OF_MEMORY && error != GL_CONTEXT_LOST) return std::nullopt;
  return gl_error(error, fmt::format("{} {}", doing, name), log);
}

Error refused(const Request& request, std::string log) {
  if (auto fault = drivers_fault("compiling", request.name(), log)) return std::move(*fault);
  return backend::refusal(request, std::move(log));
}

struct Image {
  GLenum format = 0;
  std::vector<std::byte> bytes;
};

/// The driver's binary of a linked program; no bytes if the driver provides none.
Image image_of(GLuint program) {
  GLint size = 0;
  glGetProgramiv(program, GL_PROGRAM_BINARY_LENGTH, &size);
  Image image;
  if (size <= 0) return image;
  image.bytes.resize(static_cast<std::size_t>(size));
  GLsizei written = 0;
  glGetProgramBinary(program, size, &written, &image.format, image.bytes.data());
  image.bytes.resize(static_cast<std::size_t>(std::max(written, 0)));
  return image;
}

/// One property of every active resource of a program's interface.
std::vector<GLint> properties(GLuint program, GLenum interface, GLenum property) {
  GLint count = 0;
  glGetProgramInterfaceiv(program, interface, GL_ACTIVE_RESOURCES, &count);
  std::vector<GLint> values(static_cast<std::size_t>(std::max(count, 0)));
  for (std::size_t i = 0; i < values.size(); ++i)
    glGetProgramResourceiv(program, interface, static_cast<GLuint>(i), 1, &property, 1, nullptr, &values[i]);
  return values;
}

}  // namespace

const backend::GlslInterface& LinkedProgram::takes() const {
  std::call_once(takes_read_, [this] {
    takes_.is_padded = true;
    takes_.has_bindings_of_elements = true;
    for (const GLint binding : properties(id_, GL_SHADER_STORAGE_BLOCK, GL_BUFFER_BINDING))
      takes_.resources.push_back({.place = {.binding = static_cast<std::uint32_t>(binding)}});
    const auto bindings = properties(id_, GL_UNIFORM_BLOCK, GL_BUFFER_BINDING);
    const auto sizes = properties(id_, GL_UNIFORM_BLOCK, GL_BUFFER_DATA_SIZE);
    for (std::size_t i = 0; i < bindings.size(); ++i)
      if (bindings[i] == 0) takes_.parameter_bytes = static_cast<std::uint32_t>(sizes[i]);
    std::array<GLint, 3> size = {1, 1, 1};
    glGetProgramiv(id_, GL_COMPUTE_WORK_GROUP_SIZE, size.data());
    takes_.group_size = {size[0], size[1], size[2]};
  });
  return takes_;
}

namespace {

/// The section of a binary that holds the names: the program's, and behind a NUL the entry point's, unless that is
/// main.
std::string to_text(const ProgramName& name) {
  const bool is_plain = name.entry == "main" && name.program.find('\0') == std::string::npos;
  return is_plain ? name.program : name.program + '\0' + name.entry;
}

ProgramName name_in(std::string_view text) {
  const std::size_t end = text.rfind('\0');
  if (end == std::string_view::npos) return {std::string(text)};
  return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
}

/// The entry point of a SPIR-V module that the request names. A program object has one.
Result<vulkan::ShaderEntry> spirv_entry(const Request& request, std::span<const std::uint32_t> words) {
  constexpr std::uint32_t version_1_0 = 0x00010000;
  const auto entries = vulkan::read_spirv(words, version_1_0, vulkan::Resources::any);
  if (!entries)
    return Error(ErrorCode::compile_failed, fmt::format("{}: {}", request.name(), entries.error().message()));
  if (request.entries().size() > 1 || (request.entries().empty() && entries->size() > 1))
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has several entry points, but an OpenGL program has one; make a request for each",
                             request.name()));
  if (request.entries().empty()) return entries->front();
  const auto found = std::ranges::find(*entries, request.entries()[0], &vulkan::ShaderEntry::name);
  if (found == entries->end())
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} has no compute entry point called {}", request.name(), request.entries()[0]));
  return *found;
}

/// The capabilities of GL_ARB_gl_spirv that compute shaders can use.
std::vector<spv::Capability> capabilities() {
  using enum spv::Capability;
  std::vector<spv::Capability> enabled = {Matrix,
                                          Shader,
                                          Float64,
                                          AtomicStorage,
                                          ImageGatherExtended,
                                          StorageImageMultisample,
                                          UniformBufferArrayDynamicIndexing,
                                          SampledImageArrayDynamicIndexing,
                                          StorageBufferArrayDynamicIndexing,
                                          StorageImageArrayDynamicIndexing,
                                          ImageCubeArray,
                                          ImageRect,
                                          SampledRect,
                                          Sampled1D,
                                          Image1D,
                                          SampledCubeArray,
                                          SampledBuffer,
                                          ImageBuffer,
                                          ImageMSArray,
                                          StorageImageExtendedFormats,
                                          ImageQuery,
                                          StorageImageWriteWithoutFormat};
  const auto add = [&enabled](const char* extension, spv::Capability one) {
    if (epoxy_has_gl_extension(extension)) enabled.push_back(one);
  };
  add("GL_ARB_gpu_shader_int64", Int64);
  add("GL_ARB_shader_ballot", SubgroupBallotKHR);
  add("GL_ARB_shader_group_vote", SubgroupVoteKHR);
  add("GL_ARB_sparse_texture2", SparseResidency);
  return enabled;
}

/// Checks SPIR-V as far as a driver may crash on it. Returns the entry point.
Result<std::string> check_spirv(const Request& request, std::span<const std::uint32_t> words,
                                const DeviceLimits& limits, const vulkan::SpirvValidator& validator) {
  auto entry = KILN_TRY(spirv_entry(request, words));
  KILN_TRY(validator.validate(request.name(), words, vulkan::SpirvEnvironment::opengl));
  KILN_TRY(vulkan::check_capabilities(request.name(), words, capabilities()));
  const vulkan::ShaderInterface& declared = entry.interface;
  KILN_TRY(backend::check_group_size(request.name(), declared.group_size, declared.shared_bytes, limits));
  GLint buffers = 0;
  glGetIntegerv(GL_MAX_SHADER_STORAGE_BUFFER_BINDINGS, &buffers);
  if (declared.buffers > static_cast<std::uint32_t>(std::max(buffers, 0)))
    return Error(ErrorCode::unsupported, fmt::format("{} takes {} storage buffers; the device allows at most {}",
                                                     request.name(), declared.buffers, buffers));
  return std::move(entry.name);
}

/// Puts SPIR-V into a shader object. Returns the entry point.
Result<std::string> specialise(const Shader& shader, const Request& request, const DeviceLimits& limits,
                               const vulkan::SpirvValidator& validator) {
  if (!epoxy_has_gl_extension("GL_ARB_gl_spirv"))
    return Error(ErrorCode::unsupported,
                 fmt::format("{} is SPIR-V, but the driver lacks GL_ARB_gl_spirv", request.name()));
  const auto words = vulkan::spirv_words(std::as_bytes(std::span(request.source())));
  auto entry = KILN_TRY(check_spirv(request, words, limits, validator));
  const GLuint id = shader.id();
  glShaderBinary(1, &id, GL_SHADER_BINARY_FORMAT_SPIR_V_ARB, words.data(), static_cast<GLsizei>(4 * words.size()));
  glSpecializeShaderARB(id, entry.c_str(), 0, nullptr, nullptr);
  return entry;
}

std::string_view text_of(const GLubyte* text) { return text != nullptr ? reinterpret_cast<const char*>(text) : ""; }

/// Compiles GLSL. Returns the entry point.
std::string compile(const Shader& shader, const std::string& source) {
  const char* text = source.data();
  const auto length = static_cast<GLint>(source.size());
  glShaderSource(shader.id(), 1, &text, &length);
  glCompileShader(shader.id());
  return "main";
}

}  // namespace

Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const DeviceLimits& limits,
                                 const vulkan::SpirvValidator& validator, const Request& request) {
  KILN_TRY(backend::check_language(request, {Language::glsl, Language::spirv}));
  const Shader shader;
  ProgramName name{request.name()};
  if (request.language() == Language::spirv)
    name.entry = KILN_TRY(specialise(shader, request, limits, validator));
  else
    name.entry = compile(shader, backend::with_defines(request));
  GLint ok = GL_FALSE;
  glGetShaderiv(shader.id(), GL_COMPILE_STATUS, &ok);
  if (ok != GL_TRUE) return refused(request, info_log(shader.id(), glGetShaderiv, glGetShaderInfoLog));

  ProgramObject program;
  glProgramParameteri(program.id(), GL_PROGRAM_BINARY_RETRIEVABLE_HINT, GL_TRUE);
  glAttachShader(program.id(), shader.id());
  glLinkProgram(program.id());
  glGetProgramiv(program.id(), GL_LINK_STATUS, &ok);
  if (ok != GL_TRUE) return refused(request, info_log(program.id(), glGetProgramiv, glGetProgramInfoLog));
  glDetachShader(program.id(), shader.id());
  finish_for_others();

  std::optional<Binary> binary;
  const bool has_binary = request.language() != Language::spirv ||
                          !backend::quirks::MesaSpirvBinary::affects(text_of(glGetString(GL_VERSION)));
  const Image image = has_binary ? image_of(program.id()) : Image{};
  // The image comes first, at offset 8, so that it is aligned as drivers may expect.
  if (!image.bytes.empty())
    binary = Binary{image.format, backend::join_sections({image.bytes, backend::as_section(to_text(name))})};
  const std::size_t bytes = binary ? image.bytes.size() : request.source().size();
  return Compiled{std::make_unique<LinkedProgram>(group, program.release(), std::move(name), bytes),
                  std::move(binary)};
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary) {
  const auto sections = backend::split_sections(binary.bytes, 2);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its sections cannot be read");
  const auto image = (*sections)[0];
  ProgramName name = name_in(backend::as_text((*sections)[1]));
  ProgramObject program;
  glProgramBinary(program.id(), binary.format, image.data(), static_cast<GLsizei>(image.size()));
  // glProgramBinary reports no error for a binary that does not fit.
  GLint ok = GL_FALSE;
  glGetProgramiv(program.id(), GL_LINK_STATUS, &ok);
  if (ok != GL_TRUE) {
    const std::string log = info_log(program.id(), glGetProgramiv, glGetProgramInfoLog);
    if (auto fault = drivers_fault("loading", name.program, log)) return std::move(*fault);
    return Error(ErrorCode::load_failed, fmt::format("the driver refuses the binary of {}: {}", name.program, log));
  }
  finish_for_others();
  return std::unique_ptr<kiln::Module>(
      std::make_unique<LinkedProgram>(group, program.release(), std::move(name), image.size()));
}

namespace {

/// Uniform blocks end at a multiple of a vec4, whatever they contain.
std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = dynamic_cast<const LinkedProgram*>(&module);
  if (program == nullptr || &program->group() != &group)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  // Drivers do not check that a program's buffers are bound.
  const backend::GlslInterface& takes = program->takes();
  Fitting fitted{.program = *program};
  fitted.groups = KILN_TRY(backend::check_extents(program->name(), takes, launch, device.limits, "OpenGL"));
  fitted.arguments = KILN_TRY(backend::assign(program->name(), takes, launch));
  for (const auto& bound : fitted.arguments.bound)
    fitted.buffers.push_back(
        KILN_TRY(backend::own_argument<GlBuffer>(*bound.argument->as<Argument::Range>(), group, device.name, [&] {
          return fmt::format("{}: buffer {}", program->name(), bound.resource->place.binding);
        })));
  return fitted;
}

void UniformBuffer::bind(std::span<const std::byte> parameters) {
  if (id_ == 0) glGenBuffers(1, &id_);
  glBindBufferBase(GL_UNIFORM_BUFFER, 0, id_);
  // Pad the buffer: drivers do not read from a buffer that is smaller than the block.
  if (room_ < parameters.size()) {
    room_ = padded(parameters.size());
    glBufferData(GL_UNIFORM_BUFFER, static_cast<GLsizeiptr>(room_), nullptr, GL_DYNAMIC_DRAW);
  }
  glBufferSubData(GL_UNIFORM_BUFFER, 0, static_cast<GLsizeiptr>(parameters.size()), parameters.data());
}

void dispatch(ShareGroup& group, const Fitting& fitted, UniformBuffer& parameters) {
  GLuint count = 0;
  for (const auto& bound : fitted.arguments.bound) count = std::max(count, bound.resource->place.binding + 1);
  std::optional<LaunchBindings> callers;
  if (group.in_callers_context()) callers.emplace(count);
  for (std::size_t i = 0; i < fitted.buffers.size(); ++i)
    glBindBufferBase(GL_SHADER_STORAGE_BUFFER, fitted.arguments.bound[i].resource->place.binding,
                     fitted.buffers[i]->id());
  if (!fitted.arguments.parameters().empty()) parameters.bind(fitted.arguments.parameters());
  {
    std::optional<backend::quirks::MesaProgramDeletion::Launch> quirk;
    if (auto* deletion = group.mesa_program_deletion()) quirk.emplace(*deletion, fitted.program.id());
    glUseProgram(fitted.program.id());
    glDispatchCompute(fitted.groups[0], fitted.groups[1], fitted.groups[2]);
  }
  glMemoryBarrier(GL_ALL_BARRIER_BITS);
  if (callers) return;
  // Unbind everything: an object that is bound in an idle context would survive its deletion.
  glUseProgram(0);
  for (GLuint i = 0; i < count; ++i) glBindBufferBase(GL_SHADER_STORAGE_BUFFER, i, 0);
  glBindBufferBase(GL_UNIFORM_BUFFER, 0, 0);
}

}  // namespace kiln::opengl
