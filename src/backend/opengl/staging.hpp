#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <epoxy/gl.h>

#include <kiln/device.hpp>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// Saves a buffer binding, and restores it on destruction.
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

/// Saves the state that a launch changes in a context, and restores it on destruction.
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

  // Destroyed after the body of the destructor, so the non-indexed bindings are restored last.
  BufferBinding storage_;
  BufferBinding uniform_;
  GLint program_ = 0;
  std::vector<Range> ranges_;
};

/// Owns a buffer object.
class GlBuffer final : public Buffer {
 public:
  GlBuffer(std::shared_ptr<ShareGroup> group, GLuint id, std::size_t size) noexcept
      : group_(std::move(group)), id_(id), size_(size) {}
  ~GlBuffer() override { group_->delete_buffer(id_); }

  std::size_t size() const noexcept override { return size_; }
  GLuint id() const noexcept { return id_; }
  const ShareGroup* owner() const noexcept { return group_.get(); }

 private:
  std::shared_ptr<ShareGroup> group_;
  GLuint id_;
  std::size_t size_;
};

/// Host memory that the device copies from and to. All functions except the destructor require that a context of
/// the group is current.
class Staging {
 public:
  /// mapped: the device copies from and to the memory itself. copied: the driver copies it on the caller's thread,
  /// because OpenGL is too old for persistent mapping.
  enum class Kind { mapped, copied };
  /// The best kind that the current context supports.
  static Kind best();

  Staging(std::shared_ptr<ShareGroup> group, Kind kind) noexcept : group_(std::move(group)), kind_(kind) {}
  ~Staging() { free(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Replaces the memory. The device must no longer use the old memory.
  Result<void> allocate(std::size_t bytes);
  std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// Each queues a copy between offset `staged` of the memory and a buffer. Both ranges must be valid.
  void upload(GLuint to, std::size_t offset, std::size_t staged, std::size_t bytes);
  void download(GLuint from, std::size_t offset, std::size_t staged, std::size_t bytes);
  /// Makes downloaded bytes visible to the host. For Kind::copied, waits for work that has not ended.
  void collect();

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void free() noexcept;

  const std::shared_ptr<ShareGroup> group_;
  const Kind kind_;
  GLuint id_ = 0;
  std::span<std::byte> bytes_;
  // For Kind::copied: the host memory, and the ranges that are newer in the buffer.
  std::vector<std::byte> copied_;
  std::vector<Range> downloaded_;
};

}  // namespace kiln::opengl
