#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

// As cuda.h declares them, so that this header compiles without it and beside it.
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;

namespace kiln::cuda {

/// A program loaded into a CUDA context, made by a device of this API: see Program::as(). All functions may be
/// called from any thread.
class Module : public kiln::Module {
 public:
  /// The module, for cuModuleGetGlobal and similar functions. Valid until this is destroyed.
  virtual CUmodule native() const noexcept = 0;
  /// The function of the entry point, for cuLaunchKernel; looked up at the first call. Valid until this is
  /// destroyed. Null if the program has several entry points: see Program::entry(). Also null if the driver does
  /// not find the function; Device::launch() returns the reason.
  virtual CUfunction function() const noexcept = 0;
};

/// The address of a buffer on its device (a CUdeviceptr). It belongs to the buffer and is valid until that is
/// destroyed; 0 for a buffer of another API. May be called from any thread.
std::uintptr_t memory(const Buffer& buffer) noexcept;

/// The caller's own memory (a CUdeviceptr) as a buffer that does not own it: it must stay until the buffer is
/// destroyed. Memory of another library in the same process works if that library uses the device's context: the
/// runtime API, PyTorch and CuPy use the primary context, as open_device() does. May be called from any thread.
/// Fails with invalid_request for a device of another API, and if the driver does not know `bytes` bytes there.
Result<std::unique_ptr<Buffer>> wrap(Device& device, std::uintptr_t address, std::size_t bytes);

/// Launches on the caller's own stream; null is the default stream. See kiln::Stream. While the stream is captured
/// into a graph, launches become nodes of it. Get programs from the cache before the capture begins: loading one is
/// not allowed then. May be called from any thread. Fails with invalid_request for a device of another API, and for
/// a stream of another context than the device's.
Result<std::unique_ptr<Stream>> stream(Device& device, CUstream stream);

/// A device on the caller's own context, which must outlive the device and all its programs, buffers and slots. The
/// context need not be current, and the context that is current on a thread is the same after every call as before.
/// May be called from any thread. Fails with invalid_request for a null context, no_device without a driver,
/// unsupported if the driver is too old or NVRTC is missing or does not fit, and device_failed.
Result<std::shared_ptr<Device>> adopt(CUcontext context, const Log& log = {});

/// Compiles a program for an NVIDIA GPU that need not be in this machine, as in "sm_90" or "sm_90a", or to PTX for
/// later ones too, as in "compute_90". Device::load() takes the binary on a machine that has it. Runs NVRTC in this
/// process, and needs no driver. May be called from any thread. Fails with the error of an invalid request,
/// invalid_request for another language or architecture, or if an option of the request selects an architecture of
/// another number, unsupported without NVRTC or if it does not know the architecture, and compile_failed.
Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log = {});

}  // namespace kiln::cuda
