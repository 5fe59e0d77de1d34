#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <kiln/device.hpp>

// As hip_runtime_api.h declares them, so that this header compiles without it and beside it.
using hipCtx_t = struct ihipCtx_t*;
using hipModule_t = struct ihipModule_t*;
using hipFunction_t = struct ihipModuleSymbol_t*;

namespace kiln::hip {

/// A program loaded into a HIP context. Its functions may be called from any thread.
class Module : public kiln::Module {
 public:
  /// For hipModuleGetGlobal and similar functions. Valid until the module is destroyed.
  virtual hipModule_t native() const noexcept = 0;
  /// The request's entry point, for hipModuleLaunchKernel; looked up at the first call. Null if the driver has
  /// none, which Device::launch explains.
  virtual hipFunction_t function() const noexcept = 0;
};

/// The address of a buffer on its device (a hipDeviceptr_t), the buffer's until it is destroyed; null for a buffer
/// of another API.
void* memory(const Buffer& buffer) noexcept;

/// A device on the caller's own context, which outlives it and everything that came of it. The context need not be
/// current, and what is current on a thread is the same after every call as before.
Result<std::shared_ptr<Device>> adopt(hipCtx_t context, const Log& log = {});

/// The binary of a program for an AMD GPU that need not be here, such as "gfx906": what Device::load takes where it
/// is. Compiled by hipcc in a process of its own; ErrorCode::unsupported where there is no hipcc.
Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log = {});

}  // namespace kiln::hip
