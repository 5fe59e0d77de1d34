#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include <epoxy/gl.h>

#include "backend/glsl_arguments.hpp"
#include "backend/opengl/program.hpp"
#include "backend/opengl/share_group.hpp"
#include "backend/opengl/staging.hpp"

/// All functions require that a context of the group is current.
namespace kiln::opengl {

/// A launch whose arguments have been checked. Points into the launch.
struct Fitting {
  const LinkedProgram& program;
  Extent groups = {};
  backend::GlslArguments arguments = {};
};

/// The program of a module. Fails with invalid_request if it is of another device, and with unsupported if Kiln
/// cannot know what it takes.
Result<const LinkedProgram*> program_of(const ShareGroup& group, const DeviceInfo& device,
                                        const kiln::Module& module);

/// Checks a launch: the module and the buffers belong to `group`, the arguments are those that the program
/// declares, native objects exist, and the number of groups is within the device's limits.
Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

/// Uniform buffers that hold the values of launches, each for one launch at a time.
class UniformBuffers {
 public:
  explicit UniformBuffers(ShareGroup& group) noexcept : group_(group) {}
  ~UniformBuffers();
  UniformBuffers(const UniformBuffers&) = delete;
  UniformBuffers& operator=(const UniformBuffers&) = delete;

  /// Binds a buffer that holds `bytes`, and that no launch uses, as uniform buffer `unit`.
  void bind(GLuint unit, std::span<const std::byte> bytes);
  /// Declares that all launches have ended.
  void reuse() noexcept { used_ = 0; }

 private:
  struct UniformBuffer {
    GLuint id = 0;
    std::size_t room = 0;
  };

  ShareGroup& group_;
  std::vector<UniformBuffer> buffers_;
  std::size_t used_ = 0;
};

/// Starts a launch of a program object: that of the program, or a copy if its interface sets_state(). Later
/// commands see everything that the launch writes. Restores the bindings of the caller's context; in other
/// contexts, unbinds everything. If the driver refuses an argument, nothing runs.
Result<void> dispatch(ShareGroup& group, const Fitting& fitted, GLuint program, UniformBuffers& uniforms);

}  // namespace kiln::opengl
