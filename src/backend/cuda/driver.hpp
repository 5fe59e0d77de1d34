#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <kiln/result.hpp>

#include "backend/symbols.hpp"
#include "base/dynamic_library.hpp"

namespace kiln::cuda {

/// CUresult or hipError_t. Codes that exist in both have the same number.
using Status = int;

namespace status {
inline constexpr Status success = 0;
inline constexpr Status out_of_memory = 2;
inline constexpr Status deinitialized = 4;
inline constexpr Status no_device = 100;
inline constexpr Status invalid_device = 101;
inline constexpr Status not_found = 500;
inline constexpr Status not_ready = 600;
inline constexpr Status out_of_resources = 701;
}  // namespace status

/// CUcontext, CUmodule, CUfunction, CUstream, CUevent, or HIP's type for it.
using Handle = void*;
/// CUdeviceptr, or the void* that HIP uses for it.
using Address = std::uintptr_t;

/// The functions of both drivers: Kiln's name, CUDA's, HIP's (null if there is none), and the type.
// clang-format off
#define KILN_CUDA_FUNCTIONS(X) \
  X(init, "cuInit", "hipInit", Status(unsigned flags)) \
  X(driver_version, "cuDriverGetVersion", "hipDriverGetVersion", Status(int* version)) \
  X(device_count, "cuDeviceGetCount", "hipGetDeviceCount", Status(int* count)) \
  X(device_get, "cuDeviceGet", "hipDeviceGet", Status(int* device, int ordinal)) \
  X(device_name, "cuDeviceGetName", "hipDeviceGetName", Status(char* name, int length, int device)) \
  X(device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute", Status(int* value, int attribute, int device)) \
  X(device_pci_id, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", Status(char* id, int length, int device)) \
  X(context_retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain", Status(Handle* context, int device)) \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease", Status(int device)) \
  X(context_push, "cuCtxPushCurrent_v2", "hipCtxPushCurrent", Status(Handle context)) \
  X(context_pop, "cuCtxPopCurrent_v2", "hipCtxPopCurrent", Status(Handle* context)) \
  X(context_device, "cuCtxGetDevice", "hipCtxGetDevice", Status(int* device)) \
  X(module_load, "cuModuleLoadData", "hipModuleLoadData", Status(Handle* module, const void* image)) \
  X(module_unload, "cuModuleUnload", "hipModuleUnload", Status(Handle module)) \
  X(module_function, "cuModuleGetFunction", "hipModuleGetFunction", \
    Status(Handle* function, Handle module, const char* name)) \
  X(function_attribute, "cuFuncGetAttribute", "hipFuncGetAttribute", \
    Status(int* value, int attribute, Handle function)) \
  X(memory_allocate, "cuMemAlloc_v2", "hipMalloc", Status(Address* address, std::size_t bytes)) \
  X(memory_free, "cuMemFree_v2", "hipFree", Status(Address address)) \
  X(host_allocate, "cuMemHostAlloc", "hipHostMalloc", Status(void** memory, std::size_t bytes, unsigned flags)) \
  X(host_free, "cuMemFreeHost", "hipHostFree", Status(void* memory)) \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", \
    Status(Address to, const void* from, std::size_t bytes, Handle stream)) \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", \
    Status(void* to, Address from, std::size_t bytes, Handle stream)) \
  X(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags", Status(Handle* stream, unsigned flags)) \
  X(stream_query, "cuStreamQuery", "hipStreamQuery", Status(Handle stream)) \
  X(stream_wait, "cuStreamSynchronize", "hipStreamSynchronize", Status(Handle stream)) \
  X(stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy", Status(Handle stream)) \
  X(event_create, "cuEventCreate", "hipEventCreateWithFlags", Status(Handle* event, unsigned flags)) \
  X(event_record, "cuEventRecord", "hipEventRecord", Status(Handle event, Handle stream)) \
  X(event_query, "cuEventQuery", "hipEventQuery", Status(Handle event)) \
  X(event_wait, "cuEventSynchronize", "hipEventSynchronize", Status(Handle event)) \
  X(event_elapsed, "cuEventElapsedTime", "hipEventElapsedTime", Status(float* milliseconds, Handle from, Handle to)) \
  X(event_destroy, "cuEventDestroy_v2", "hipEventDestroy", Status(Handle event)) \
  X(launch, "cuLaunchKernel", "hipModuleLaunchKernel", \
    Status(Handle function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned size_x, \
      unsigned size_y, unsigned size_z, unsigned shared_bytes, Handle stream, void** arguments, void** extra)) \
  X(error_name, "cuGetErrorName", nullptr, Status(Status error, const char** name)) \
  X(error_name_of, nullptr, "hipGetErrorName", const char*(Status error))
// clang-format on

/// Whether the functions of a library have CUDA's or HIP's names.
enum class SymbolSet { cuda, hip };

struct Functions {
#define KILN_DECLARE(name, in_cuda, in_hip, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  KILN_CUDA_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  /// Functions of newer CUDA drivers; null in older ones and in HIP. cuFuncGetParamInfo, since 12.4:
  Status (*parameter_info)(Handle function, std::size_t index, std::size_t* offset, std::size_t* bytes) = nullptr;
  /// cuModuleGetFunctionCount and cuModuleEnumerateFunctions, since 12.4, and cuFuncGetName, since 12.3.
  Status (*function_count)(unsigned* count, Handle module) = nullptr;
  Status (*list_functions)(Handle* functions, unsigned count, Handle module) = nullptr;
  Status (*function_name)(const char** name, Handle function) = nullptr;
  /// cuLinkCreate_v2, cuLinkAddData_v2, cuLinkComplete and cuLinkDestroy.
  Status (*link_create)(unsigned count, int* options, void** values, Handle* link) = nullptr;
  Status (*link_add)(Handle link, int kind, const void* data, std::size_t bytes, const char* name, unsigned count,
                     int* options, void** values) = nullptr;
  Status (*link_complete)(Handle link, void** image, std::size_t* bytes) = nullptr;
  Status (*link_destroy)(Handle link) = nullptr;
  /// cuFuncSetAttribute, since 9.0. HIP's function takes another handle.
  Status (*function_set_attribute)(Handle function, int attribute, int value) = nullptr;
  /// cuStreamGetCtx, since 9.2, and cuThreadExchangeStreamCaptureMode, since 10.1.
  Status (*stream_context)(Handle stream, Handle* context) = nullptr;
  Status (*exchange_capture_mode)(int* mode) = nullptr;
  /// cuMemGetAddressRange and hipMemGetAddressRange.
  Status (*memory_range)(Address* base, std::size_t* bytes, Address address) = nullptr;
  /// cuDeviceGetUuid_v2, since 11.4, which knows MIG instances, and hipDeviceGetUuid.
  Status (*device_uuid)(std::uint8_t* uuid, int device) = nullptr;
  /// cuStreamIsCapturing and hipStreamIsCapturing.
  Status (*stream_is_capturing)(Handle stream, int* is_capturing) = nullptr;

  template <class Lookup>
  void fill(SymbolSet symbols, Lookup& lookup) {
#define KILN_FILL(name, in_cuda, in_hip, ...) lookup(name, symbols == SymbolSet::cuda ? in_cuda : in_hip);
    KILN_CUDA_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
  /// Finds the functions of both that Kiln can do without.
  template <class Lookup>
  void fill_optional(SymbolSet symbols, Lookup& lookup) {
    const bool cuda = symbols == SymbolSet::cuda;
    lookup.optional(memory_range, cuda ? "cuMemGetAddressRange_v2" : "hipMemGetAddressRange");
    lookup.optional(device_uuid, cuda ? "cuDeviceGetUuid_v2" : "hipDeviceGetUuid");
    lookup.optional(stream_is_capturing, cuda ? "cuStreamIsCapturing" : "hipStreamIsCapturing");
  }
  /// Finds the functions that not all drivers have. Call it for CUDA only.
  template <class Lookup>
  void fill_newer(Lookup& lookup) {
    lookup.optional(parameter_info, "cuFuncGetParamInfo");
    lookup.optional(function_count, "cuModuleGetFunctionCount");
    lookup.optional(list_functions, "cuModuleEnumerateFunctions");
    lookup.optional(function_name, "cuFuncGetName");
    lookup.optional(link_create, "cuLinkCreate_v2");
    lookup.optional(link_add, "cuLinkAddData_v2");
    lookup.optional(link_complete, "cuLinkComplete");
    lookup.optional(link_destroy, "cuLinkDestroy");
    lookup.optional(function_set_attribute, "cuFuncSetAttribute");
    lookup.optional(stream_context, "cuStreamGetCtx");
    lookup.optional(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  }
};

/// The driver's numbers of device attributes. The numbers for y and z follow the one for x.
struct Attributes {
  int max_group_items;
  int max_group_size_x;
  int max_groups_x;
  int shared_bytes;
  int subgroup_width;
  int compute_units;
};

/// The libraries and names of a driver.
struct DriverNames {
  std::string_view title;
  /// The vendor of the devices.
  std::string_view maker;
  std::span<const char* const> libraries;
  /// What to install if no library is found.
  std::string_view provider;
  SymbolSet symbols;
  Attributes attributes;
};

/// An opened driver with at least one device. Thread-safe.
class Driver {
 public:
  /// The error says which library, symbol or device is missing, and what provides it.
  static Result<std::shared_ptr<const Driver>> open(const DriverNames& names);

  Driver(const DriverNames& names, base::DynamicLibrary library, const Functions& functions, int version);

  const Functions* operator->() const noexcept { return functions_.operator->(); }
  const DriverNames& names() const noexcept { return *names_; }
  /// For symbols in the library that do not belong to the driver, such as hipRTC's.
  const base::DynamicLibrary& library() const noexcept { return library_; }
  /// As the driver reports it: 1000 * major + 10 * minor in CUDA.
  int version() const noexcept { return version_; }
  /// The driver's handle for device `number`, counted from 0. Fails if the driver has fewer devices.
  Result<int> device(std::size_t number) const;
  Result<std::size_t> device_count() const;
  /// 0 if the driver does not report it.
  int attribute(int device, int attribute) const;

  /// As in "CUDA_ERROR_INVALID_VALUE".
  std::string error_name(Status status) const;
  /// Converts the status of a call that failed. `doing` names the operation, as in "writing 12 bytes".
  Error error(Status status, std::string_view doing) const;

 private:
  const DriverNames* names_;
  base::DynamicLibrary library_;
  backend::Calls<Functions> functions_;
  int version_;
};

/// Whether the process cannot use the device any more after this error.
bool is_lasting(Status status) noexcept;

}  // namespace kiln::cuda
