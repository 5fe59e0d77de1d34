#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <epoxy/gl.h>

#include <kiln/device.hpp>

#include "backend/launch_checks.hpp"
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

/// A buffer object: Kiln's own, which the destructor deletes, or the caller's.
class GlBuffer final : public Buffer {
 public:
  enum class Owner { kiln, caller };

  GlBuffer(std::shared_ptr<ShareGroup> group, GLuint id, std::size_t size, Owner owner = Owner::kiln) noexcept
      : group_(std::move(group)), id_(id), size_(size), owner_(owner) {}
  ~GlBuffer() override {
    if (owner_ == Owner::kiln) group_->delete_buffer(id_);
  }

  std::size_t size() const noexcept override { return size_; }
  GLuint id() const noexcept { return id_; }
  const ShareGroup* owner() const noexcept { return group_.get(); }
  /// The size of the buffer object, which may be larger.
  std::size_t room() const noexcept { return owner_ == Owner::kiln ? backend::allocated_bytes(size_) : size_; }
  /// Fails with invalid_request if the caller has deleted the buffer object or changed its size. Requires that a
  /// context of the group is current.
  Result<void> check() const;

 private:
  std::shared_ptr<ShareGroup> group_;
  GLuint id_;
  std::size_t size_;
  Owner owner_;
};

/// The size of a buffer object; nullopt if there is none of this name.
std::optional<std::size_t> size_of_buffer(GLuint id);

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
