#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

namespace kiln::opengl {

/// A linked OpenGL program object, visible in every context of its device's share group. Made by a device of this
/// API: see Program::as(). All functions may be called from any thread.
class Module : public kiln::Module {
 public:
  /// The program object's name, for glUseProgram, valid until the module is destroyed, in contexts that
  /// make_current() lent or adopt_current() adopted. Kiln does not know other contexts of the application. On
  /// Mesa before 24.1.2, deleting a program in one context can crash dispatches in others, so destroy no
  /// program while those contexts dispatch one.
  virtual std::uint32_t id() const noexcept = 0;
  /// The name of the program's request. Valid until the module is destroyed.
  virtual const std::string& name() const noexcept = 0;
};

/// The buffer object's name, valid in every context of its device's share group until the buffer, which owns it, is
/// destroyed; 0 for a buffer of another API. May be called from any thread.
std::uint32_t memory(const Buffer& buffer) noexcept;

/// The caller's own buffer object as a Buffer of the device, which does not own it: keep the object, and its size,
/// until the Buffer is destroyed. The name is one of the device's share group, so of an adopted context, or of one
/// that make_current() lent. Its size is that of the object. Other contexts see the caller's writes only after they
/// have completed: call glFinish() before Kiln uses the buffer in another context.
///
/// Fails with invalid_request for a device of another API and if there is no buffer object of this name; each use
/// of the Buffer does if the object was deleted or has another size since. May be called from any thread.
Result<std::unique_ptr<Buffer>> wrap(Device& device, std::uint32_t buffer);

/// A level of the caller's texture as an image, for glBindImageTexture(): `format` as in GL_R32F, `access` as in
/// GL_READ_WRITE. If `layered`, all layers of the level, otherwise one. Give it with bound() or named(). The caller
/// owns the texture and keeps it until the launch has ended; the name is one of the device's share group. A launch
/// fails with invalid_request if there is no texture of this name, or if the driver refuses to bind it. A format
/// that does not match that of the texture is not found: the kernel then reads zeros.
Argument image(std::uint32_t texture, std::uint32_t format, std::uint32_t access, std::uint32_t level = 0,
               bool layered = false, std::uint32_t layer = 0);

/// The caller's texture for a sampler of a program: `target` as in GL_TEXTURE_2D, and the parameters of a sampler
/// object, or those of the texture if `sampler` is 0. Give it with bound() or named(). Ownership and failures are
/// those of image(); a launch also fails if the target is not that of the sampler in the source. Completeness is
/// not checked: a texture with one level needs a filter without mipmaps.
Argument texture(std::uint32_t texture, std::uint32_t target, std::uint32_t sampler = 0);

/// Keeps a context of a device current on one thread, for the application's own GL calls. Calls of Kiln in between
/// then need no context switch. The destructor gives the context back and restores the one that was current before.
/// Must be used and destroyed on the thread that called make_current(). It may outlive the device.
class Current {
 public:
  /// For make_current(). The context is given back when the last copy of `lent` is destroyed.
  explicit Current(std::shared_ptr<void> lent) noexcept : lent_(std::move(lent)) {}
  Current(Current&&) noexcept = default;
  Current& operator=(Current&&) = delete;

 private:
  std::shared_ptr<void> lent_;
};

/// Makes a context of `device` current on this thread until the result is destroyed; if one of its contexts is
/// current already, it stays. Fails with invalid_request for a device of another API, and with device_failed or
/// unsupported if the driver cannot create a context or make it current.
///
/// After a launch of Kiln in such a context, no program is in use, texture unit 0 is active, and nothing is bound
/// at the bindings and units of the launch: bind your own objects again.
///
/// On Mesa before 24.1.2, programs that are destroyed while contexts are lent or adopted are deleted later:
/// by a call in that context if it is the only one, otherwise at the next use of the device after the last one is
/// given back.
Result<Current> make_current(Device& device);

/// Launches in the context that is current on this thread: the adopted one, or one that make_current() lent. Each
/// launch is a command of that context, followed by a barrier for everything that later commands read. See
/// kiln::Stream. Order it against other contexts by glFenceSync() and glWaitSync(). The bindings after a launch are
/// those that make_current() and adopt_current() describe, and earlier errors of the context are cleared. The first
/// launch of a program with plain uniforms, images or textures copies the program, which waits (glFinish).
///
/// Every call, and the destructor, must run on a thread on which that context is current; a launch elsewhere fails
/// with invalid_request. Fails with invalid_request for a device of another API, and if no context of the device is
/// current.
Result<std::unique_ptr<Stream>> stream(Device& device);

/// A device on the caller's own OpenGL context, which must be current on this thread and outlive the device and all
/// its programs, buffers and slots. Fails with no_device if no context is current or libEGL or libOpenGL is
/// missing, unsupported before OpenGL 4.3, or device_failed.
///
/// Kiln adds contexts of its own to the share group of an EGL context: every thread may use the device, and
/// programs can be used in the caller's context. With a context of another kind (GLX), or with `share` false, the
/// device works only on threads on which the caller has made that context current: elsewhere its functions fail
/// with device_failed, and programs that are destroyed elsewhere are deleted at its next use.
Result<std::shared_ptr<Device>> adopt_current(const Log& log = {}, bool share = true);

}  // namespace kiln::opengl
