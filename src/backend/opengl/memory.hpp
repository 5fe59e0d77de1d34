#pragma once

#include <cstddef>
#include <memory>

#include <kiln/device.hpp>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// A buffer object.
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

}  // namespace kiln::opengl
