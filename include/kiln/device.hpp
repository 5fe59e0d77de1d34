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
#include <kiln/log.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// Memory of a device. Keeps alive what it needs of its device; destroyed on any thread.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  virtual ~Buffer() = default;

  virtual std::size_t size() const noexcept = 0;
};

/// One run of a program: how many work groups, on which memory. A value; the buffers are the caller's.
struct Launch {
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  /// Work items in a group; {0, 0, 0}: as the source declares. GLSL always declares it, OpenCL C may
  /// (reqd_work_group_size); CUDA and HIP never do, so it is required there.
  std::array<std::uint32_t, 3> group_size = {0, 0, 0};
  /// The i-th is storage buffer i in GLSL (set 0 in Vulkan), and argument i elsewhere.
  std::vector<const Buffer*> buffers = {};
  /// The program's parameters in one block, laid out as it declares them: uniform buffer 0 (std140) for OpenGL, the
  /// push constants for Vulkan, elsewhere one struct, passed by value after the buffers.
  std::vector<std::byte> parameters = {};
};

/// What a device can take.
struct DeviceLimits {
  std::array<std::uint32_t, 3> max_groups = {};
  std::array<std::uint32_t, 3> max_group_size = {};
  /// Work items in a group, over all dimensions.
  std::uint32_t max_group_items = 0;
  /// Memory a group shares.
  std::uint64_t shared_bytes = 0;
};

/// Properties of a device, as far as its API reports them: for constraints and defaults of kernels, never part of a
/// key.
struct DeviceTraits {
  /// As in "NVIDIA", "AMD", "Intel", "Mesa", "Arm": spelled the same by every API.
  std::string vendor = {};
  /// As in "sm_90" or "gfx1030"; empty if unknown.
  std::string architecture = {};
  /// Work items that run in step: a warp, a wave. 0 if unknown.
  std::uint32_t subgroup_width = 0;
  /// Multiprocessors of a GPU, threads of a CPU. 0 if unknown.
  std::uint32_t compute_units = 0;
  /// Whether the API lets programs compute with f16, and keep it in buffers.
  bool fp16 = false;
  /// Whether the device has units that multiply matrices, such as tensor cores.
  bool matrix_units = false;

  bool operator==(const DeviceTraits&) const = default;
};

/// A device as listings show it.
struct DeviceInfo {
  /// What open_device() takes for it, as in "opengl:0".
  std::string name = {};
  Identity identity = {};
  /// A name for people, as in "NVIDIA H200"; if empty, use identity.device.
  std::string label = {};
  /// What programs for it are written in.
  Language language = Language::glsl;
  DeviceLimits limits = {};
  DeviceTraits traits = {};
  /// Whether programs run on the CPU.
  bool software = false;
  /// How many lanes an executor opens by default.
  unsigned lanes = 2;
  /// Why the device cannot be used; empty if it can.
  std::string problem = {};
};

class Slot;

/// A backend with memory, on which programs run. All functions may be called from any number of threads.
///
/// A device and its buffers, modules and slots may be held by static variables. Those that exit() destroys after
/// the driver has shut down are left to the operating system; calls on a device then return an error.
class Device : public Backend {
 public:
  virtual const DeviceInfo& info() const noexcept = 0;

  /// Memory for `bytes` bytes, of unspecified content.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;
  /// Copies into a buffer; done when it returns.
  virtual Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset = 0) = 0;
  /// Copies out of a buffer; done when it returns.
  virtual Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset = 0) = 0;
  /// Runs the program and waits for its end.
  virtual Result<void> launch(Module& module, const Launch& launch) = 0;
  /// Opens a queue for asynchronous work, owned by the calling thread (slot.hpp). It keeps alive what it needs of
  /// the device.
  virtual Result<std::unique_ptr<Slot>> open_slot() = 0;
};

/// A buffer that holds a copy of `values`.
template <class T>
requires std::is_trivially_copyable_v<T> Result<std::unique_ptr<Buffer>> upload(Device& device,
                                                                                const std::vector<T>& values) {
  auto buffer = device.allocate(values.size() * sizeof(T));
  if (!buffer) return std::move(buffer).error();
  if (auto written = device.write(**buffer, std::as_bytes(std::span(values))); !written)
    return std::move(written).error();
  return buffer;
}

/// The whole of a buffer, as values.
template <class T>
requires std::is_trivially_copyable_v<T> Result<std::vector<T>> download(Device& device, const Buffer& buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  if (auto read = device.read(buffer, std::as_writable_bytes(std::span(values))); !read)
    return std::move(read).error();
  return values;
}

/// Opens a device: the best one for "" (a GPU before a CPU), the first of an API for "opengl", a particular one for
/// "opencl:1". If `name` is empty, `KILN_DEVICE` replaces it. The error says what was looked for and what is
/// missing.
///
/// For "", the program kiln-helper lists the devices of each API in a process of its own first, so that a driver
/// that crashes or hangs while it is loaded does no harm; this takes a while. If the program is missing, drivers
/// are loaded into this process. An API that is named is opened in this process at once.
Result<std::shared_ptr<Device>> open_device(std::string_view name = "", const Log& log = {});

/// All devices of this machine, those that cannot be used with the reason. Drivers are asked in the way that
/// open_device("") asks them.
std::vector<DeviceInfo> list_devices(const Log& log = {});

}  // namespace kiln
