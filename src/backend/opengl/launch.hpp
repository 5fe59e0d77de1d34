#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <kiln/opengl.hpp>

#include "backend/opengl/memory.hpp"

/// All with a context of the group current.
namespace kiln::opengl {

/// A launch that was found to fit: its program and its buffers as this backend knows them.
struct Fitting {
  const Module& program;
  std::vector<const GlBuffer*> buffers;
};

/// Sees whether a launch gives a program of `group` what it declares, within what the device has.
Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

/// The uniform buffer of one launch at a time: uniforms would live in the program that all threads share.
class UniformBuffer {
 public:
  explicit UniformBuffer(ShareGroup& group) noexcept : group_(group) {}
  ~UniformBuffer() {
    if (id_ != 0) group_.delete_buffer(id_);
  }
  UniformBuffer(const UniformBuffer&) = delete;
  UniformBuffer& operator=(const UniformBuffer&) = delete;

  /// Binds it as uniform buffer 0, with these parameters in it. No launch may be using it any more.
  void bind(std::span<const std::byte> parameters);

 private:
  ShareGroup& group_;
  GLuint id_ = 0;
  std::size_t room_ = 0;
};

/// Has the device begin with a launch, and leaves the context's bindings as they were. What comes after it sees
/// what it wrote. `parameters` stays as it is until the launch has ended.
void dispatch(ShareGroup& group, const Fitting& fitted, const Launch& launch, UniformBuffer& parameters);

}  // namespace kiln::opengl
