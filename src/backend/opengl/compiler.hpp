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

#include "backend/glsl_arguments.hpp"
#include "backend/opengl/share_group.hpp"
#include "backend/opengl/staging.hpp"
#include "backend/vulkan/shaderc.hpp"

/// All functions require that a context of the group is current.
namespace kiln::opengl {

/// The version of Kiln's layout of binaries. It is part of the identity, so binaries of other layouts are never
/// loaded.
inline constexpr std::uint32_t binary_layout = 1;

/// The names of a program and of its entry point, which is not main in some SPIR-V modules.
struct ProgramName {
  std::string program;
  std::string entry = "main";
};

/// Owns a program object.
class LinkedProgram final : public Module {
 public:
  LinkedProgram(std::shared_ptr<ShareGroup> group, std::uint32_t id, ProgramName name, std::size_t bytes) noexcept
      : group_(std::move(group)), id_(id), name_(std::move(name)), bytes_(bytes) {}
  ~LinkedProgram() override { group_->delete_program(id_); }

  std::uint32_t id() const noexcept override { return id_; }
  const std::string& name() const noexcept override { return name_.program; }
  std::size_t bytes() const noexcept override { return bytes_; }
  std::vector<std::string> entries() const override { return {name_.entry}; }
  kiln::Module* entry(std::string_view name) noexcept override { return name == name_.entry ? this : nullptr; }
  /// The share group in which the program object exists.
  const ShareGroup& group() const noexcept { return *group_; }

  /// The arguments that a launch must give. The first call reads them from the driver and requires that a context
  /// of the group is current.
  const backend::GlslInterface& takes() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  const std::uint32_t id_;
  const ProgramName name_;
  const std::size_t bytes_;
  mutable std::once_flag takes_read_;
  mutable backend::GlslInterface takes_;
};

/// SPIR-V must be within `limits`: drivers crash beyond them.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const DeviceLimits& limits,
                                 const vulkan::SpirvValidator& validator, const Request& request);

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

/// A validated launch: its program and its buffers, downcast to the types of this backend.
struct Fitting {
  const Module& program;
  Extent groups = {};
  std::vector<const GlBuffer*> buffers = {};
  /// Points into the launch.
  backend::GlslArguments arguments = {};
};

/// Validates a launch: the module and the buffers belong to `group`, the arguments are those that the program
/// declares, and the number of groups is within the device's limits.
Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

/// A uniform buffer for one launch at a time. Plain uniforms are part of the program object, which all threads
/// share.
class UniformBuffer {
 public:
  explicit UniformBuffer(ShareGroup& group) noexcept : group_(group) {}
  ~UniformBuffer() {
    if (id_ != 0) group_.delete_buffer(id_);
  }
  UniformBuffer(const UniformBuffer&) = delete;
  UniformBuffer& operator=(const UniformBuffer&) = delete;

  /// Fills the buffer with `parameters` and binds it as uniform buffer 0. No launch in flight may use it.
  void bind(std::span<const std::byte> parameters);

 private:
  ShareGroup& group_;
  GLuint id_ = 0;
  std::size_t room_ = 0;
};

/// Starts a launch. Later commands see everything it writes. Restores the bindings of the caller's context; in
/// other contexts, unbinds everything. `parameters` must not change until the launch has ended.
void dispatch(ShareGroup& group, const Fitting& fitted, UniformBuffer& parameters);

}  // namespace kiln::opengl
