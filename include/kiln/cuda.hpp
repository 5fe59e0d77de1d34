#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <kiln/device.hpp>

// As cuda.h declares them, so that this header compiles without it and beside it.
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;

namespace kiln::cuda {

/// A program loaded into a CUDA context. Its functions may be called from any thread.
class Module : public kiln::Module {
 public:
  /// For cuModuleGetGlobal and similar functions. Valid until the module is destroyed.
  virtual CUmodule native() const noexcept = 0;
  /// The request's entry point, for cuLaunchKernel; looked up at the first call. Null if the driver has none, which
  /// Device::launch explains.
  virtual CUfunction function() const noexcept = 0;
};

/// The address of a buffer on its device (a CUdeviceptr), the buffer's until it is destroyed; 0 for a buffer of
/// another API.
std::uintptr_t memory(const Buffer& buffer) noexcept;

/// A device on the caller's own context, which outlives it and everything that came of it. The context need not be
/// current, and what is current on a thread is the same after every call as before.
Result<std::shared_ptr<Device>> adopt(CUcontext context, const Log& log = {});

}  // namespace kiln::cuda
