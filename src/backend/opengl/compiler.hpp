#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/opengl.hpp>

#include "backend/opengl/share_group.hpp"
#include "backend/opengl/staging.hpp"

/// All with a context of the group current.
namespace kiln::opengl {

/// How Kiln lays out what the driver gave out; part of the identity, so that no other layout is ever met.
inline constexpr std::uint32_t binary_layout = 1;

/// A program object, deleted with this.
class LinkedProgram final : public Module {
 public:
  LinkedProgram(std::shared_ptr<ShareGroup> group, std::uint32_t id, std::string name, std::size_t bytes) noexcept
      : group_(std::move(group)), id_(id), name_(std::move(name)), bytes_(bytes) {}
  ~LinkedProgram() override { group_->delete_program(id_); }

  std::uint32_t id() const noexcept override { return id_; }
  const std::string& name() const noexcept override { return name_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  /// The contexts in which the program object exists.
  const ShareGroup& group() const noexcept { return *group_; }

  /// What a launch must give the program.
  struct Signature {
    /// One more than the highest storage buffer that the program uses.
    std::uint32_t buffers = 0;
    /// The bytes of its uniform buffer 0.
    std::uint32_t parameter_bytes = 0;
  };
  /// Read at the first call, with a context of the group current.
  const Signature& signature() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  const std::uint32_t id_;
  const std::string name_;
  const std::size_t bytes_;
  mutable std::once_flag signature_read_;
  mutable Signature signature_;
};

/// Compiles and links a compute program; a context of the group is current.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const Request& request);

/// Loads a linked program from its binary; a context of the group is current.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

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
