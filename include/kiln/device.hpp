#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/launch.hpp>
#include <kiln/log.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// Memory of a device, made by Device::allocate(). It shares ownership of the parts of its device that it needs, so
/// it may outlive the device, and it may be destroyed on any thread, once no work uses it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  virtual ~Buffer() = default;

  /// In bytes, as allocated. Does not change.
  virtual std::size_t size() const noexcept = 0;
};

/// Limits of a launch on a device.
struct DeviceLimits {
  /// Work groups in each dimension.
  std::array<std::uint32_t, 3> max_groups = {};
  /// Work items of a group in each dimension.
  std::array<std::uint32_t, 3> max_group_size = {};
  /// Work items of a group in all.
  std::uint32_t max_group_items = 0;
  /// Bytes of memory that the work items of a group can share.
  std::uint64_t shared_bytes = 0;
};

/// Properties of a device, as far as its API reports them. For constraints and defaults of kernels; not part of any
/// key.
struct DeviceTraits {
  /// As in "NVIDIA", "AMD", "Intel", "Mesa" or "Arm", spelled the same for every API.
  std::string vendor = {};
  /// As in "sm_90" or "gfx1030"; empty if unknown.
  std::string architecture = {};
  /// Work items that run in step: a warp, a wave. 0 if unknown.
  std::uint32_t subgroup_width = 0;
  /// Multiprocessors of a GPU, threads of a CPU. 0 if unknown.
  std::uint32_t compute_units = 0;
  /// Whether programs can compute with f16 and keep it in buffers.
  bool fp16 = false;
  /// Whether the device has tensor cores or other units that multiply matrices.
  bool matrix_units = false;

  bool operator==(const DeviceTraits&) const = default;
};

/// The description of a device. A value.
struct DeviceInfo {
  /// The name that open_device() takes, as in "opengl:0"; "opengl:adopted" for a context of the caller's own, and
  /// "opengl" for an API without a driver.
  std::string name = {};
  /// Decides which stored binaries fit. Incomplete if the device cannot be used.
  Identity identity = {};
  /// A name for people, as in "NVIDIA H200"; if empty, use identity.device.
  std::string label = {};
  /// The UUID that the driver gives the device, or the MIG instance, as in "2c7a5a3e-…" with 32 digits in small
  /// letters; empty if unknown. APIs of one driver give the same device the same UUID.
  std::string uuid = {};
  /// The language of its programs.
  Language language = Language::glsl;
  DeviceLimits limits = {};
  DeviceTraits traits = {};
  /// Whether programs run on the CPU.
  bool software = false;
  /// How many lanes an executor opens by default.
  unsigned lanes = 2;
  /// Why the device cannot be used; empty if it can.
  std::string problem = {};
  /// Why the device cannot compile sources, although it can be used: it loads binaries that were compiled
  /// elsewhere. Empty if it can.
  std::string compiler_problem = {};
};

class Slot;

/// A backend with memory, on which programs run. Made by open_device() or by the adopt functions of an API.
///
/// All functions may be called from any number of threads at once, with one exception: a device on an OpenGL
/// context that is not shared works only on threads on which that context is current (see opengl::adopt_current()).
/// Arguments are used only until a function returns. Every function may also fail with device_failed: the driver
/// reported an error or the device was lost. After a device is lost, all calls fail: open it again, or on CUDA and
/// HIP start another process.
///
/// A device and its buffers, modules and slots may be held by static variables. Those that exit() destroys after
/// the driver has shut down are left to the operating system; calls on a device then return device_failed.
class Device : public Backend {
 public:
  /// Does not change; valid as long as the device.
  virtual const DeviceInfo& info() const noexcept = 0;

  /// Memory for `bytes` bytes, of unspecified content; 0 is allowed. Fails with out_of_memory, also if the size
  /// exceeds the device's limit for one buffer.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;
  /// Copies `bytes` into a buffer at `offset`, and waits until they are there. Fails with invalid_request if the
  /// buffer is another device's or too small, and with out_of_memory.
  virtual Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset = 0) = 0;
  /// Copies out of a buffer, from `offset` on, and waits until `bytes` is filled. Fails as write() does.
  virtual Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset = 0) = 0;
  /// Runs the program and waits for its end. Fails with invalid_request, before anything runs, if the module or a
  /// buffer is of another device, if buffers or parameters are not those that the program declares, or if the group
  /// size or the number of groups does not fit; with unsupported if neither the driver nor the binary says which
  /// arguments the program takes; with load_failed if a loaded binary lacks its entry point; and with
  /// out_of_memory. How a program indexes its buffers is not checked.
  virtual Result<void> launch(Module& module, const Launch& launch) = 0;
  /// What an entry point takes, in order. Fails with invalid_request if the module is of another device or has
  /// several entry points, and with unsupported if neither the driver nor the binary says which arguments it takes.
  virtual Result<std::vector<Parameter>> parameters(Module& module) = 0;
  /// Opens a queue for asynchronous work (slot.hpp). It belongs to the calling thread and may outlive the device.
  /// Fails with out_of_memory.
  virtual Result<std::unique_ptr<Slot>> open_slot() = 0;
};

/// A new buffer that holds a copy of `values`. Fails as Device::allocate() and Device::write() do.
template <class T>
requires std::is_trivially_copyable_v<T> Result<std::unique_ptr<Buffer>> upload(Device& device,
                                                                                const std::vector<T>& values) {
  auto buffer = device.allocate(values.size() * sizeof(T));
  if (!buffer) return std::move(buffer).error();
  if (auto written = device.write(**buffer, std::as_bytes(std::span(values))); !written)
    return std::move(written).error();
  return buffer;
}

/// A copy of the whole buffer; bytes after the last whole value are left out. Fails as Device::read() does.
template <class T>
requires std::is_trivially_copyable_v<T> Result<std::vector<T>> download(Device& device, const Buffer& buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  if (auto read = device.read(buffer, std::as_writable_bytes(std::span(values))); !read)
    return std::move(read).error();
  return values;
}

/// Opens a device: the best one for "" (a GPU before a CPU, and a device without a compiler last), the first usable
/// one of an API for "opengl", a particular one for "opencl:1", by its number, or for "cuda:GPU-2c7a5a3e", by its
/// UUID or the beginning of it. The prefixes "GPU-" and "MIG-" may be left out. If `name` is empty, `$KILN_DEVICE`
/// replaces it.
///
/// A device opens without its compiler (NVRTC, hipRTC, shaderc) too: DeviceInfo::compiler_problem says what is
/// missing, and it runs the programs that were compiled elsewhere. For "", a CPU that can compile is preferred to a
/// GPU that cannot; a warning then names the GPU.
///
/// Drivers decide which devices a process sees, and in which order: CUDA by `$CUDA_VISIBLE_DEVICES`. CUDA shows a
/// process one MIG instance at most; to choose it, set `CUDA_VISIBLE_DEVICES=MIG-…` before the first device is
/// opened.
///
/// May be called from any thread; drivers are loaded and opened one at a time. `log` is copied. Each call opens a
/// device of its own, whose buffers and programs do not mix with another's. If neither `name`
/// nor `$KILN_DEVICE` names one, the only error is no_device, with every device that was tried and its problem. A
/// named device fails with no_device or unsupported (the device or its driver is missing or too old), device_failed
/// or out_of_memory.
///
/// For "", the program kiln-helper first lists the devices of each API in a process of its own, so that a driver
/// that crashes or hangs while it is loaded does no harm. If the program is missing, drivers are loaded into this
/// process. An API that is named is opened in this process directly.
Result<std::shared_ptr<Device>> open_device(std::string_view name = "", const Log& log = {});

/// All devices of this machine; DeviceInfo::problem says why one cannot be used. An API without a driver is listed
/// as one device with a problem. Never fails. Drivers are queried as for open_device(""). May be called from any
/// thread.
std::vector<DeviceInfo> list_devices(const Log& log = {});

}  // namespace kiln
