#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

// As hip_runtime_api.h declares them, so that this header compiles without it and beside it.
using hipCtx_t = struct ihipCtx_t*;
using hipModule_t = struct ihipModule_t*;
using hipFunction_t = struct ihipModuleSymbol_t*;
using hipStream_t = struct ihipStream_t*;

namespace kiln::hip {

/// A program loaded into a HIP context, made by a device of this API: see Program::as(). All functions may be
/// called from any thread.
class Module : public kiln::Module {
 public:
  /// The module, for hipModuleGetGlobal and similar functions. Valid until this is destroyed.
  virtual hipModule_t native() const noexcept = 0;
  /// The function of the entry point, for hipModuleLaunchKernel; looked up at the first call. Valid until this is
  /// destroyed. Null if the program has several entry points: see Program::entry(). Also null if the driver does
  /// not find the function; Device::launch() returns the reason.
  virtual hipFunction_t function() const noexcept = 0;
};

/// The address of a buffer on its device (a hipDeviceptr_t). It belongs to the buffer and is valid until that is
/// destroyed; null for a buffer of another API. May be called from any thread.
void* memory(const Buffer& buffer) noexcept;

/// The caller's own memory (a hipDeviceptr_t) as a buffer that does not own it: it must stay until the buffer is
/// destroyed. May be called from any thread. Fails with invalid_request for a device of another API, and if the
/// driver does not know `bytes` bytes there.
Result<std::unique_ptr<Buffer>> wrap(Device& device, void* address, std::size_t bytes);

/// Launches on the caller's own stream of the device's context; null is the default stream. See kiln::Stream. May
/// be called from any thread. Fails with invalid_request for a device of another API.
Result<std::unique_ptr<Stream>> stream(Device& device, hipStream_t stream);

/// A device on the caller's own context, which must outlive the device and all its programs, buffers and slots. The
/// context need not be current, and the context that is current on a thread is the same after every call as before.
/// May be called from any thread. Fails with invalid_request for a null context, no_device without a driver,
/// unsupported if the driver is too old or hipRTC is missing or does not fit, and device_failed.
Result<std::shared_ptr<Device>> adopt(hipCtx_t context, const Log& log = {});

/// Compiles a program for an AMD GPU that need not be in this machine, as in "gfx906" or "gfx90a:xnack-".
/// Device::load() takes the binary on a machine that has it. Runs hipcc in a process of its own, and waits for it.
/// May be called from any thread. Fails with the error of an invalid request, invalid_request for another language
/// or architecture, unsupported without hipcc or in a set-uid program, compile_failed, and io if no temporary file
/// can be written.
Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log = {});

}  // namespace kiln::hip
