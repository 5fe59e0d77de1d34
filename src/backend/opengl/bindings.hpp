#pragma once

#include <vector>

#include <epoxy/gl.h>

namespace kiln::opengl {

/// One buffer binding, put back as it was on destruction.
class BufferBinding {
 public:
  BufferBinding(GLenum target, GLenum query) : target_(target) { glGetIntegerv(query, &before_); }
  ~BufferBinding() { bind(static_cast<GLuint>(before_)); }
  BufferBinding(const BufferBinding&) = delete;
  BufferBinding& operator=(const BufferBinding&) = delete;

  void bind(GLuint buffer) const { glBindBuffer(target_, buffer); }

 private:
  GLenum target_;
  GLint before_ = 0;
};

/// All that a launch changes in a context, put back as it was on destruction.
class LaunchBindings {
 public:
  explicit LaunchBindings(GLuint storage_buffers)
      : storage_(GL_SHADER_STORAGE_BUFFER, GL_SHADER_STORAGE_BUFFER_BINDING),
        uniform_(GL_UNIFORM_BUFFER, GL_UNIFORM_BUFFER_BINDING) {
    glGetIntegerv(GL_CURRENT_PROGRAM, &program_);
    for (GLuint i = 0; i < storage_buffers; ++i)
      ranges_.push_back(read(GL_SHADER_STORAGE_BUFFER, i, GL_SHADER_STORAGE_BUFFER_BINDING,
                             GL_SHADER_STORAGE_BUFFER_START, GL_SHADER_STORAGE_BUFFER_SIZE));
    ranges_.push_back(
        read(GL_UNIFORM_BUFFER, 0, GL_UNIFORM_BUFFER_BINDING, GL_UNIFORM_BUFFER_START, GL_UNIFORM_BUFFER_SIZE));
  }
  ~LaunchBindings() {
    glUseProgram(static_cast<GLuint>(program_));
    for (const Range& range : ranges_) {
      if (range.size != 0) {
        glBindBufferRange(range.target, range.index, static_cast<GLuint>(range.buffer),
                          static_cast<GLintptr>(range.start), static_cast<GLsizeiptr>(range.size));
      } else {
        glBindBufferBase(range.target, range.index, static_cast<GLuint>(range.buffer));
      }
    }
  }
  LaunchBindings(const LaunchBindings&) = delete;
  LaunchBindings& operator=(const LaunchBindings&) = delete;

 private:
  struct Range {
    GLenum target = 0;
    GLuint index = 0;
    GLint buffer = 0;
    GLint64 start = 0;
    GLint64 size = 0;
  };
  static Range read(GLenum target, GLuint index, GLenum binding, GLenum start, GLenum size) {
    Range range{target, index, 0, 0, 0};
    glGetIntegeri_v(binding, index, &range.buffer);
    glGetInteger64i_v(start, index, &range.start);
    glGetInteger64i_v(size, index, &range.size);
    return range;
  }

  // Destroyed after the body of the destructor: the plain bindings are put back last.
  BufferBinding storage_;
  BufferBinding uniform_;
  GLint program_ = 0;
  std::vector<Range> ranges_;
};

}  // namespace kiln::opengl
