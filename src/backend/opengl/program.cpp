#include "backend/opengl/program.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "backend/opengl/egl.hpp"
#include "base/try.hpp"

namespace kiln::opengl {

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

bool is_linked(GLuint program) {
  GLint ok = GL_FALSE;
  glGetProgramiv(program, GL_LINK_STATUS, &ok);
  return ok == GL_TRUE;
}

std::string log_of(GLuint program) {
  GLint length = 0;
  glGetProgramiv(program, GL_INFO_LOG_LENGTH, &length);
  std::string log(static_cast<std::size_t>(std::max(length, 0)), '\0');
  GLsizei written = 0;
  if (length > 0) glGetProgramInfoLog(program, length, &written, log.data());
  log.resize(static_cast<std::size_t>(written));
  return log;
}

const ProgramInterface& LinkedProgram::interface() const {
  std::call_once(interface_read_, [this] {
    interface_ = read_interface(id_);
    if (!problem_.empty()) interface_.problem = problem_;
  });
  return interface_;
}

Result<ProgramLoan> LinkedProgram::borrow() const {
  return ProgramLoan(copies_, KILN_TRY(copies_->pool.borrow([this] { return make_copy(); })));
}

Result<std::unique_ptr<ProgramCopy>> LinkedProgram::make_copy() const {
  const base::MutexLock lock(copies_->copying);
  ProgramObject copy;
  if (origin_ == Origin::binary) {
    const Image image = image_of(id_);
    if (!image.bytes.empty())
      glProgramBinary(copy.id(), image.format, image.bytes.data(), static_cast<GLsizei>(image.bytes.size()));
  } else {
    GLuint shader = 0;
    GLsizei count = 0;
    glGetAttachedShaders(id_, 1, &count, &shader);
    glAttachShader(copy.id(), shader);
    glLinkProgram(copy.id());
  }
  KILN_TRY(check_gl(fmt::format("copying {}", name_.program)));
  if (!is_linked(copy.id()))
    return Error(ErrorCode::device_failed,
                 fmt::format("{} has uniforms, images or textures, so each launch needs a copy of it, which the "
                             "driver cannot make: {}",
                             name_.program, log_of(copy.id())));
  set_units(copy.id(), interface());
  // Other contexts see the copy only after the commands that made it have completed.
  glFinish();
  return std::make_unique<ProgramCopy>(group_, copy.release());
}

}  // namespace kiln::opengl
