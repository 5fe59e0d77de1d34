#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <kiln/result.hpp>

#include "backend/calls.hpp"
#include "base/dynamic_library.hpp"

namespace kiln::cuda {

/// CUresult and hipError_t, whose numbers agree where both have a meaning.
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

/// CUcontext, CUmodule, CUfunction, CUstream, CUevent and HIP's; the tables below agree on them in all but the
/// names.
using Handle = void*;
/// CUdeviceptr, and the void* that HIP has for it.
using Address = std::uintptr_t;

/// The functions of a driver, under names that suit CUDA and HIP.
struct Functions {
  Status (*init)(unsigned flags) = nullptr;
  Status (*driver_version)(int* version) = nullptr;
  Status (*device_count)(int* count) = nullptr;
  Status (*device_get)(int* device, int ordinal) = nullptr;
  Status (*device_name)(char* name, int length, int device) = nullptr;
  Status (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Status (*device_pci_id)(char* id, int length, int device) = nullptr;
  Status (*context_retain)(Handle* context, int device) = nullptr;
  Status (*context_release)(int device) = nullptr;
  Status (*context_push)(Handle context) = nullptr;
  Status (*context_pop)(Handle* context) = nullptr;
  Status (*context_device)(int* device) = nullptr;
  Status (*module_load)(Handle* module, const void* image) = nullptr;
  Status (*module_unload)(Handle module) = nullptr;
  Status (*module_function)(Handle* function, Handle module, const char* name) = nullptr;
  Status (*function_attribute)(int* value, int attribute, Handle function) = nullptr;
  Status (*memory_allocate)(Address* address, std::size_t bytes) = nullptr;
  Status (*memory_free)(Address address) = nullptr;
  Status (*host_allocate)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  Status (*host_free)(void* memory) = nullptr;
  Status (*copy_to_device)(Address to, const void* from, std::size_t bytes, Handle stream) = nullptr;
  Status (*copy_to_host)(void* to, Address from, std::size_t bytes, Handle stream) = nullptr;
  Status (*stream_create)(Handle* stream, unsigned flags) = nullptr;
  Status (*stream_query)(Handle stream) = nullptr;
  Status (*stream_wait)(Handle stream) = nullptr;
  Status (*stream_destroy)(Handle stream) = nullptr;
  Status (*event_create)(Handle* event, unsigned flags) = nullptr;
  Status (*event_record)(Handle event, Handle stream) = nullptr;
  Status (*event_elapsed)(float* milliseconds, Handle from, Handle to) = nullptr;
  Status (*event_destroy)(Handle event) = nullptr;
  Status (*launch)(Handle function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned size_x,
                   unsigned size_y, unsigned size_z, unsigned shared_bytes, Handle stream, void** arguments,
                   void** extra) = nullptr;

  /// Since CUDA 12.4, and not in HIP: null where the driver has none.
  Status (*parameter_info)(Handle function, std::size_t index, std::size_t* offset, std::size_t* bytes) = nullptr;
  /// CUDA's way to the name of an error, and HIP's; one of both is null.
  Status (*error_name)(Status error, const char** name) = nullptr;
  const char* (*error_name_of)(Status error) = nullptr;
};

/// What one driver calls each of the Functions; null where it has none.
struct Symbols {
  const char* init;
  const char* driver_version;
  const char* device_count;
  const char* device_get;
  const char* device_name;
  const char* device_attribute;
  const char* device_pci_id;
  const char* context_retain;
  const char* context_release;
  const char* context_push;
  const char* context_pop;
  const char* context_device;
  const char* module_load;
  const char* module_unload;
  const char* module_function;
  const char* function_attribute;
  const char* memory_allocate;
  const char* memory_free;
  const char* host_allocate;
  const char* host_free;
  const char* copy_to_device;
  const char* copy_to_host;
  const char* stream_create;
  const char* stream_query;
  const char* stream_wait;
  const char* stream_destroy;
  const char* event_create;
  const char* event_record;
  const char* event_elapsed;
  const char* event_destroy;
  const char* launch;
  const char* parameter_info;
  const char* error_name;
  const char* error_name_of;
};

/// The numbers by which a driver knows what can be asked of a device. Those of three dimensions follow each other.
struct Attributes {
  int max_group_items;
  int max_group_size_x;
  int max_groups_x;
  int shared_bytes;
  int subgroup_width;
  int compute_units;
};

/// Where a driver is found, and what its parts are called.
struct DriverNames {
  std::string_view title;
  /// Who makes the devices.
  std::string_view maker;
  std::span<const char* const> libraries;
  /// What to install where there is none.
  std::string_view provider;
  Symbols symbols;
  Attributes attributes;
};

/// A driver that has been opened and has a device. Safe to use from any thread.
class Driver {
 public:
  /// The error says which library, symbol or device is missing, and what provides it.
  static Result<std::shared_ptr<const Driver>> open(const DriverNames& names);

  Driver(const DriverNames& names, base::DynamicLibrary library, const Functions& functions, int version);

  const Functions* operator->() const noexcept { return functions_.operator->(); }
  const DriverNames& names() const noexcept { return *names_; }
  /// For what the same library may hold besides the driver.
  const base::DynamicLibrary& library() const noexcept { return library_; }
  /// As the driver tells it: 1000 * major + 10 * minor in CUDA.
  int version() const noexcept { return version_; }
  /// A device's number, by its place in the order of the driver; an error where it has fewer.
  Result<int> device(std::size_t number) const;
  Result<std::size_t> device_count() const;
  int attribute(int device, int attribute) const;

  /// "CUDA_ERROR_INVALID_VALUE".
  std::string error_name(Status status) const;
  /// The error of a call that failed while `doing` something, as in "writing 12 bytes".
  Error error(Status status, std::string_view doing) const;

 private:
  const DriverNames* names_;
  base::DynamicLibrary library_;
  backend::Calls<Functions> functions_;
  int version_;
};

/// Whether a device is of no use to this process any more after such an error.
bool is_lasting(Status status) noexcept;

}  // namespace kiln::cuda
