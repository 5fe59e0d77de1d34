#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <kiln/device.hpp>

namespace kiln::opengl {

class ShareGroup;

/// A linked OpenGL program object, visible in every context of its device's share group.
class Module : public kiln::Module {
 public:
  /// The program object's name, for glUseProgram, in contexts that make_current() lent or adopt_current() adopted.
  /// Kiln does not know other contexts of the application. On Mesa, deleting a program in one context can crash
  /// dispatches in others, so destroy none while one is dispatched there.
  virtual std::uint32_t id() const noexcept = 0;
  /// The name of the program's request.
  virtual const std::string& name() const noexcept = 0;
};

/// The buffer object's name, the buffer's until it is destroyed, in every context of its device's share group; 0
/// for a buffer of another API.
std::uint32_t memory(const Buffer& buffer) noexcept;

/// Makes a context of the device current on this thread, for GL calls of one's own and so that calls of
/// Kiln's in between need not switch; gives it back, and restores what was current before, on destruction.
/// Owned by the thread that made it.
class Current {
 public:
  Current(Current&& other) noexcept;
  Current& operator=(Current&&) = delete;
  ~Current();

 private:
  friend class ShareGroup;
  struct State;
  explicit Current(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Lends this thread a context of `device`, which must be an OpenGL one.
///
/// On Mesa, programs destroyed while contexts are lent or adopted are deleted when a call is made in the only one,
/// or when the last is given back and the device is used again.
Result<Current> make_current(Device& device);

/// A device on the caller's own OpenGL context, which is current on this thread and outlives it.
///
/// An EGL context is joined by contexts of Kiln's in its share group: every thread may use the device, and
/// programs can be used in the caller's context. With a context of another kind (GLX), or with `share` false,
/// the device works only on threads where the caller has made that context current; programs destroyed
/// elsewhere are deleted at its next use.
Result<std::shared_ptr<Device>> adopt_current(const Log& log = {}, bool share = true);

}  // namespace kiln::opengl
