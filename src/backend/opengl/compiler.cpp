#include "backend/opengl/compiler.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "key/source_scanner.hpp"

namespace kiln::opengl {
namespace {

/// A GL object that is deleted with its owner, in the context that is current then.
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

bool ran_out_of_memory() {
  bool out = false;
  for (GLenum error = glGetError(); error != GL_NO_ERROR; error = glGetError())
    out = out || error == GL_OUT_OF_MEMORY;
  return out;
}

Error refused(const Request& request, std::string log) {
  if (ran_out_of_memory())
    return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory compiling {}", request.name()),
                 log);
  std::string message = compile_message(request, log);
  return Error(ErrorCode::compile_failed, std::move(message), std::move(log));
}

/// Where in the sources a line of a log points: "1:12(5)" on Mesa, "1(12)" on NVIDIA.
struct Place {
  std::size_t file;
  std::size_t line;
  std::size_t length;
};

std::optional<Place> place_of(std::string_view text) {
  const auto number = [&text](std::size_t& at) -> std::optional<std::size_t> {
    std::size_t value = 0;
    const std::size_t begin = at;
    while (at < text.size() && at - begin < 9 && std::isdigit(static_cast<unsigned char>(text[at])) != 0)
      value = 10 * value + static_cast<std::size_t>(text[at++] - '0');
    return at > begin ? std::optional(value) : std::nullopt;
  };
  std::size_t at = 0;
  const auto file = number(at);
  if (!file || at >= text.size() || (text[at] != ':' && text[at] != '(')) return std::nullopt;
  ++at;
  const auto line = number(at);
  if (!line) return std::nullopt;
  // Over the column and the punctuation, to the words.
  at = std::min(text.find_first_of(" \t", at), text.size());
  at = std::min(text.find_first_not_of(" \t:", at), text.size());
  return Place{*file, *line, at};
}

}  // namespace

Module::Module(std::shared_ptr<ShareGroup> group, std::uint32_t id, std::size_t bytes) noexcept
    : group_(std::move(group)), id_(id), bytes_(bytes) {}

Module::~Module() { group_->delete_program(id_); }

std::string with_defines(const Request& request) {
  const std::string& source = request.source();
  if (request.defines().empty()) return source;
  std::size_t begin = 0;
  std::size_t line = 1;
  key::SourceScanner scanner(source);
  if (const auto first = scanner.next(); first && first->name == "version") {
    // Behind its number and profile; what else is on the line may be the beginning of a comment.
    begin = std::min(source.find_first_not_of(" \t0123456789", first->rest_begin), source.size());
    for (const std::string_view profile : {"core", "compatibility", "es"})
      if (std::string_view(source).substr(begin).starts_with(profile)) begin += profile.size();
    line = first->line;
  }
  std::string text = source.substr(0, begin);
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (const auto& [name, value] : request.defines()) text += fmt::format("#define {} {}\n", name, value);
  text += fmt::format("#line {} 0\n", line);
  return text += source.substr(begin);
}

std::string compile_message(const Request& request, const std::string& log) {
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = std::string_view(log).substr(begin, end - begin);
    begin = end + 1;
    if (line.find("error") == std::string_view::npos) continue;
    const auto place = place_of(line);
    if (!place) return fmt::format("{} does not compile: {}", request.name(), line);
    const std::string_view words = line.substr(place->length);
    if (place->file > 0 && place->file < request.files().size())
      return fmt::format("{} does not compile, {} line {}: {}", request.name(), request.files()[place->file],
                         place->line, words);
    // Mesa forgets the file in some of its messages and calls it 0.
    const char* unsure = request.files().size() > 1 ? " (of it or of a file it includes)" : "";
    return fmt::format("{} does not compile, line {}{}: {}", request.name(), place->line, unsure, words);
  }
  return fmt::format("{} does not compile", request.name());
}

Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const Request& request) {
  if (request.entry() != "main")
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} asks for the entry point {}; GLSL programs begin at main", request.name(),
                             request.entry()));
  const std::string source = with_defines(request);
  const char* text = source.data();
  const auto length = static_cast<GLint>(source.size());
  const Shader shader;
  glShaderSource(shader.id(), 1, &text, &length);
  glCompileShader(shader.id());
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

  std::optional<Binary> binary;
  GLint size = 0;
  glGetProgramiv(program.id(), GL_PROGRAM_BINARY_LENGTH, &size);
  if (size > 0) {
    Binary taken;
    taken.bytes.resize(static_cast<std::size_t>(size));
    GLsizei written = 0;
    GLenum format = 0;
    glGetProgramBinary(program.id(), size, &written, &format, taken.bytes.data());
    taken.bytes.resize(static_cast<std::size_t>(std::max(written, 0)));
    taken.format = format;
    if (written > 0) binary = std::move(taken);
  }
  const std::size_t bytes = binary ? binary->bytes.size() : source.size();
  return Compiled{std::make_unique<Module>(group, program.release(), bytes), std::move(binary)};
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary) {
  ProgramObject program;
  glProgramBinary(program.id(), binary.format, binary.bytes.data(), static_cast<GLsizei>(binary.bytes.size()));
  // The call itself reports nothing about a binary that does not fit.
  GLint ok = GL_FALSE;
  glGetProgramiv(program.id(), GL_LINK_STATUS, &ok);
  if (ok != GL_TRUE) {
    if (ran_out_of_memory())
      return Error(ErrorCode::out_of_memory, "the device ran out of memory loading a program");
    return Error(ErrorCode::load_failed,
                 "the driver refuses the binary: " + info_log(program.id(), glGetProgramiv, glGetProgramInfoLog));
  }
  return std::unique_ptr<kiln::Module>(std::make_unique<Module>(group, program.release(), binary.bytes.size()));
}

}  // namespace kiln::opengl
