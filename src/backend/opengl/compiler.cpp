#include "backend/opengl/compiler.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/program.hpp"
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

std::string log_of(const Shader& shader) {
  GLint length = 0;
  glGetShaderiv(shader.id(), GL_INFO_LOG_LENGTH, &length);
  std::string log(static_cast<std::size_t>(std::max(length, 0)), '\0');
  GLsizei written = 0;
  if (length > 0) glGetShaderInfoLog(shader.id(), length, &written, log.data());
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

constexpr std::uint32_t version_1_0 = 0x00010000;

/// The entry point of a SPIR-V module that the request names. A program object has one.
Result<vulkan::ShaderEntry> spirv_entry(const Request& request, std::span<const std::uint32_t> words) {
  const auto entries = vulkan::read_spirv(
      words,
      {.max_version = version_1_0, .api = vulkan::SpirvOptions::Api::opengl, .constants = &request.constants()});
  if (!entries)
    return Error(ErrorCode::compile_failed, fmt::format("{}: {}", request.name(), entries.error().message()));
  if (request.entries().size() > 1 || (request.entries().empty() && entries->size() > 1))
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} has several entry points, but an OpenGL program has one; make a request for each",
                             request.name()));
  KILN_TRY(vulkan::check_constants(request.name(), request.constants(), entries->front().interface.constants));
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

/// Drivers crash on bindings and locations beyond their limits.
Result<void> check_bindings(const Request& request, const vulkan::ShaderInterface& declared) {
  using Kind = backend::GlslResource::Kind;
  const auto limit_of = [](GLenum name) {
    GLint limit = 0;
    glGetIntegerv(name, &limit);
    return static_cast<std::uint64_t>(std::max(limit, 0));
  };
  for (const backend::GlslResource& resource : declared.resources) {
    GLenum limit = GL_MAX_COMBINED_TEXTURE_IMAGE_UNITS;
    if (resource.kind == Kind::storage_buffer) limit = GL_MAX_SHADER_STORAGE_BUFFER_BINDINGS;
    if (resource.kind == Kind::uniform_buffer) limit = GL_MAX_UNIFORM_BUFFER_BINDINGS;
    if (resource.kind == Kind::image) limit = GL_MAX_IMAGE_UNITS;
    if (resource.kind == Kind::atomic_counters) limit = GL_MAX_ATOMIC_COUNTER_BUFFER_BINDINGS;
    const std::uint64_t most = limit_of(limit);
    const std::uint64_t end = std::uint64_t{resource.place.binding} + resource.count;
    if (end > most)
      return Error(
          ErrorCode::unsupported,
          fmt::format("{} declares {} {} with binding {}; the device allows bindings below {}", request.name(),
                      resource.kind == Kind::image ? "an" : "a", backend::to_string(resource.kind), end - 1, most));
  }
  GLint locations = 0;
  glGetIntegerv(GL_MAX_UNIFORM_LOCATIONS, &locations);
  if (declared.last_location && *declared.last_location >= static_cast<std::uint32_t>(std::max(locations, 0)))
    return Error(ErrorCode::unsupported,
                 fmt::format("{} declares a uniform at location {}; the device allows locations below {}",
                             request.name(), *declared.last_location, locations));
  return {};
}

/// Checks SPIR-V as far as a driver may crash on it. Returns the entry point.
Result<vulkan::ShaderEntry> check_spirv(const Request& request, std::span<const std::uint32_t> words,
                                        const DeviceLimits& limits, const vulkan::SpirvValidator& validator) {
  auto entry = KILN_TRY(spirv_entry(request, words));
  KILN_TRY(validator.validate(request.name(), words, vulkan::SpirvEnvironment::opengl));
  KILN_TRY(vulkan::check_capabilities(request.name(), words, capabilities()));
  const vulkan::ShaderInterface& declared = entry.interface;
  KILN_TRY(backend::check_group_size(request.name(), declared.group_size, declared.shared_bytes, limits));
  // Drivers crash on what an entry point does not use, too.
  const auto all = KILN_TRY(vulkan::read_spirv(words, {.max_version = version_1_0,
                                                       .api = vulkan::SpirvOptions::Api::opengl,
                                                       .count = vulkan::SpirvOptions::Count::declared,
                                                       .constants = &request.constants()}));
  KILN_TRY(check_bindings(request, all.front().interface));
  for (const vulkan::SpecConstant& constant : declared.constants)
    if (constant.is_given && constant.bits != 32)
      return Error(ErrorCode::unsupported,
                   fmt::format("the specialisation constant {} of {} has {} bits; OpenGL takes values of 32 bits",
                               constant.id, request.name(), constant.bits));
  return entry;
}

/// Puts SPIR-V into a shader object.
Result<vulkan::ShaderEntry> specialise(const Shader& shader, const Request& request, const DeviceLimits& limits,
                                       const vulkan::SpirvValidator& validator) {
  if (!epoxy_has_gl_extension("GL_ARB_gl_spirv"))
    return Error(ErrorCode::unsupported,
                 fmt::format("{} is SPIR-V, but the driver lacks GL_ARB_gl_spirv", request.name()));
  const auto given = vulkan::spirv_words(std::as_bytes(std::span(request.source())));
  auto entry = KILN_TRY(check_spirv(request, given, limits, validator));
  // NVIDIA's driver crashes on modules with several entry points.
  const auto words = vulkan::with_entry_only(given, entry.name);
  const GLuint id = shader.id();
  glShaderBinary(1, &id, GL_SHADER_BINARY_FORMAT_SPIR_V_ARB, words.data(), static_cast<GLsizei>(4 * words.size()));
  std::vector<GLuint> ids;
  std::vector<GLuint> values;
  for (const vulkan::SpecConstant& constant : entry.interface.constants) {
    if (!constant.is_given || (!ids.empty() && ids.back() == constant.id)) continue;
    ids.push_back(constant.id);
    values.push_back(static_cast<GLuint>(constant.value));
  }
  glSpecializeShaderARB(id, entry.name.c_str(), static_cast<GLuint>(ids.size()), ids.data(), values.data());
  return entry;
}

std::string_view text_of(const GLubyte* text) { return text != nullptr ? reinterpret_cast<const char*>(text) : ""; }

void compile(const Shader& shader, const std::string& source) {
  const char* text = source.data();
  const auto length = static_cast<GLint>(source.size());
  glShaderSource(shader.id(), 1, &text, &length);
  glCompileShader(shader.id());
}

}  // namespace

Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const DeviceLimits& limits,
                                 const vulkan::SpirvValidator& validator, const Request& request) {
  KILN_TRY(backend::check_language(request, {Language::glsl, Language::spirv}));
  const Shader shader;
  ProgramName name{request.name()};
  bool has_inputs = false;
  if (request.language() == Language::spirv) {
    auto entry = KILN_TRY(specialise(shader, request, limits, validator));
    has_inputs = !entry.interface.resources.empty() || entry.interface.last_location;
    name.entry = std::move(entry.name);
  } else {
    compile(shader, backend::with_defines(request));
  }
  GLint ok = GL_FALSE;
  glGetShaderiv(shader.id(), GL_COMPILE_STATUS, &ok);
  if (ok != GL_TRUE) return refused(request, log_of(shader));

  ProgramObject program;
  glProgramParameteri(program.id(), GL_PROGRAM_BINARY_RETRIEVABLE_HINT, GL_TRUE);
  glAttachShader(program.id(), shader.id());
  glLinkProgram(program.id());
  if (!is_linked(program.id())) return refused(request, log_of(program.id()));
  finish_for_others();

  std::optional<Binary> binary;
  // Such a program cannot be launched. It is not saved, because a binary does not say that it has inputs.
  const bool hides_inputs = has_inputs && !read_interface(program.id()).has_inputs();
  const bool has_binary =
      request.language() != Language::spirv ||
      (!hides_inputs && !backend::quirks::MesaSpirvBinary::affects(text_of(glGetString(GL_VERSION))));
  const Image image = has_binary ? image_of(program.id()) : Image{};
  // The image comes first, at offset 8, so that it is aligned as drivers may expect.
  if (!image.bytes.empty())
    binary = Binary{image.format, backend::join_sections({image.bytes, backend::as_section(to_text(name))})};
  const std::size_t bytes = binary ? image.bytes.size() : request.source().size();
  // Without binaries, copies of the program are linked from the shader.
  if (binary) glDetachShader(program.id(), shader.id());
  auto linked =
      std::make_unique<LinkedProgram>(group, program.release(), std::move(name), bytes,
                                      binary ? LinkedProgram::Origin::binary : LinkedProgram::Origin::shader);
  if (hides_inputs)
    linked->refuse_launches(
        "it declares inputs that the driver does not report, so Kiln cannot check that they are "
        "given; compile it from GLSL");
  return Compiled{std::move(linked), std::move(binary)};
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary) {
  const auto sections = backend::split_sections(binary.bytes, 2);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its sections cannot be read");
  const auto image = (*sections)[0];
  ProgramName name = name_in(backend::as_text((*sections)[1]));
  ProgramObject program;
  glProgramBinary(program.id(), binary.format, image.data(), static_cast<GLsizei>(image.size()));
  // glProgramBinary reports no error for a binary that does not fit.
  if (!is_linked(program.id())) {
    const std::string log = log_of(program.id());
    if (auto fault = drivers_fault("loading", name.program, log)) return std::move(*fault);
    return Error(ErrorCode::load_failed, fmt::format("the driver refuses the binary of {}: {}", name.program, log));
  }
  finish_for_others();
  return std::unique_ptr<kiln::Module>(std::make_unique<LinkedProgram>(
      group, program.release(), std::move(name), image.size(), LinkedProgram::Origin::binary));
}

}  // namespace kiln::opengl
