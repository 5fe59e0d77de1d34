#include "backend/opengl/device.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "backend/device_info.hpp"
#include "backend/launch_checks.hpp"
#include "backend/opengl/compiler.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/launch.hpp"
#include "backend/opengl/slot.hpp"
#include "backend/opengl/staging.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

std::string text_of(GLenum name) {
  const auto* text = reinterpret_cast<const char*>(glGetString(name));
  return text != nullptr ? text : "";
}

/// Makes a context current for one operation, and clears the errors of earlier calls.
Result<std::unique_ptr<Acquired>> begin(ShareGroup& group) {
  auto current = group.acquire();
  if (current) static_cast<void>(take_error());
  return current;
}

Identity read_identity() {
  Identity identity{
      "opengl", text_of(GL_VENDOR), text_of(GL_RENDERER), text_of(GL_VERSION), text_of(GL_SHADING_LANGUAGE_VERSION),
      {}};
  GLint count = 0;
  glGetIntegerv(GL_NUM_PROGRAM_BINARY_FORMATS, &count);
  std::vector<GLint> formats(static_cast<std::size_t>(std::max(count, 0)));
  if (!formats.empty()) glGetIntegerv(GL_PROGRAM_BINARY_FORMATS, formats.data());
  identity.formats.assign(formats.begin(), formats.end());
  if (!formats.empty()) identity.formats.push_back(binary_layout);
  return identity;
}

std::uint32_t limit(GLint value) {
  return value < 0 ? std::numeric_limits<std::uint32_t>::max() : static_cast<std::uint32_t>(value);
}

DeviceLimits read_limits() {
  DeviceLimits limits;
  GLint value = 0;
  for (GLuint i = 0; i < 3; ++i) {
    glGetIntegeri_v(GL_MAX_COMPUTE_WORK_GROUP_COUNT, i, &value);
    limits.max_groups[i] = limit(value);
    glGetIntegeri_v(GL_MAX_COMPUTE_WORK_GROUP_SIZE, i, &value);
    limits.max_group_size[i] = limit(value);
  }
  glGetIntegerv(GL_MAX_COMPUTE_WORK_GROUP_INVOCATIONS, &value);
  limits.max_group_items = limit(value);
  glGetIntegerv(GL_MAX_COMPUTE_SHARED_MEMORY_SIZE, &value);
  limits.shared_bytes = limit(value);
  return limits;
}

DeviceTraits read_traits() {
  const auto has = [](const char* extension) { return epoxy_has_gl_extension(extension); };
  const auto number = [](GLenum name) {
    GLint value = 0;
    glGetIntegerv(name, &value);
    return static_cast<std::uint32_t>(std::max(value, 0));
  };
  DeviceTraits traits{.vendor = backend::vendor_by_name(text_of(GL_VENDOR), text_of(GL_RENDERER)),
                      .fp16 = has("GL_NV_gpu_shader5") || has("GL_AMD_gpu_shader_half_float")};
  const bool tells_warps = has("GL_NV_shader_thread_group");
  if (has("GL_KHR_shader_subgroup"))
    traits.subgroup_width = number(GL_SUBGROUP_SIZE_KHR);
  else if (tells_warps)
    traits.subgroup_width = number(GL_WARP_SIZE_NV);
  if (tells_warps) traits.compute_units = number(GL_SM_COUNT_NV);
  return traits;
}

/// Empty if unknown.
std::string read_uuid() {
  if (!epoxy_has_gl_extension("GL_EXT_memory_object")) return "";
  GLint count = 0;
  std::array<std::uint8_t, GL_UUID_SIZE_EXT> uuid = {};
  glGetIntegerv(GL_NUM_DEVICE_UUIDS_EXT, &count);
  if (count == 1) glGetUnsignedBytei_vEXT(GL_DEVICE_UUID_EXT, 0, uuid.data());
  static_cast<void>(take_error());
  return backend::uuid_text(uuid);
}

/// The size of the device's memory; the maximum of OpenGL's signed sizes if the driver does not report it.
std::size_t read_memory() {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (!epoxy_has_gl_extension("GL_NVX_gpu_memory_info")) return most;
  // NVIDIA's driver allocates terabytes without an error, and fails when they are used.
  GLint kilobytes = 0;
  glGetIntegerv(GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX, &kilobytes);
  return kilobytes > 0 ? static_cast<std::size_t>(kilobytes) * 1024 : most;
}

/// The size of the largest buffer that programs can access in full, in whole words. CPU drivers report 128 MiB, but
/// support every size that fits in a signed 32-bit integer.
std::size_t read_largest_buffer() {
  GLint64 admitted = 0;
  glGetInteger64v(GL_MAX_SHADER_STORAGE_BLOCK_SIZE, &admitted);
  return static_cast<std::size_t>(std::max<GLint64>(admitted, std::numeric_limits<std::int32_t>::max())) / 4 * 4;
}

}  // namespace

Result<std::shared_ptr<Device>> GlDevice::open(std::shared_ptr<ShareGroup> group, std::string name, bool software) {
  auto current = KILN_TRY(group->acquire());
  if (!epoxy_is_desktop_gl() || epoxy_gl_version() < 43)
    return Error(ErrorCode::unsupported, fmt::format("{} offers {}; compute shaders need OpenGL 4.3",
                                                     text_of(GL_RENDERER), text_of(GL_VERSION)));
  DeviceInfo info{.name = std::move(name),
                  .identity = read_identity(),
                  .uuid = read_uuid(),
                  .limits = read_limits(),
                  .traits = read_traits(),
                  .software = software};
  // The display of an adopted context is unknown.
  if (info.identity.device.starts_with("llvmpipe") || info.identity.device.starts_with("softpipe"))
    info.software = true;
  // A GPU switches between contexts, and the switches cost more than a second lane gains.
  if (!info.software) info.lanes = 1;
  if (info.identity.formats.empty())
    group->log().warning(
        fmt::format("the driver of {} returns no program binaries: every process compiles its programs again",
                    info.identity.device));
  base::expect_process_end();
  const bool tells_resets = epoxy_gl_version() >= 45 || epoxy_has_gl_extension("GL_KHR_robustness");
  return std::shared_ptr<Device>(std::make_shared<GlDevice>(std::move(group), std::move(info), tells_resets,
                                                            read_memory(), read_largest_buffer()));
}

unsigned GlDevice::useful_threads() const noexcept {
  // Measured with driver 580 on an H200: each thread needs a context, which takes some 30 ms to create, and the
  // compiler is no faster with several.
  return info_.identity.vendor == "NVIDIA" ? 1 : 0;
}

Result<Compiled> GlDevice::compile(const Request& request) {
  auto current = KILN_TRY(begin(*group_));
  return compile_program(group_, info_.limits, spirv_validator_, request);
}

Result<std::unique_ptr<kiln::Module>> GlDevice::load(const Binary& binary) {
  const auto& formats = info_.identity.formats;
  if (std::find(formats.begin(), formats.end(), binary.format) == formats.end())
    return Error(ErrorCode::load_failed,
                 fmt::format("the driver does not support binary format {:#x}", binary.format));
  if (binary.bytes.size() > static_cast<std::size_t>(std::numeric_limits<GLsizei>::max()))
    return Error(ErrorCode::load_failed,
                 fmt::format("the binary has {} bytes, more than OpenGL can load", binary.bytes.size()));
  auto current = KILN_TRY(begin(*group_));
  return load_program(group_, binary);
}

Result<std::unique_ptr<Buffer>> GlDevice::allocate(std::size_t bytes) {
  if (bytes > memory_)
    return Error(ErrorCode::out_of_memory,
                 fmt::format("{} has {} bytes of memory, but {} were requested", info_.name, memory_, bytes));
  if (bytes > largest_buffer_)
    return Error(ErrorCode::out_of_memory, fmt::format("allocating {} bytes: a buffer can have at most {} on {}",
                                                       bytes, largest_buffer_, info_.name));
  auto current = KILN_TRY(begin(*group_));
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  GLuint id = 0;
  glGenBuffers(1, &id);
  auto buffer = std::make_unique<GlBuffer>(group_, id, bytes);
  binding.bind(id);
  glBufferData(GL_COPY_WRITE_BUFFER, static_cast<GLsizeiptr>(backend::allocated_bytes(bytes)), nullptr,
               GL_DYNAMIC_COPY);
  KILN_TRY(check_gl(fmt::format("allocating {} bytes", bytes)));
  glFinish();
  return std::unique_ptr<Buffer>(std::move(buffer));
}

Result<void> GlDevice::write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<GlBuffer>(buffer, *group_, info_.name, bytes.size(), offset));
  auto current = KILN_TRY(begin(*group_));
  KILN_TRY(own->check());
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  binding.bind(own->id());
  glBufferSubData(GL_COPY_WRITE_BUFFER, static_cast<GLintptr>(offset), static_cast<GLsizeiptr>(bytes.size()),
                  bytes.data());
  // Other contexts see the bytes only after the write has completed.
  glFinish();
  return check_gl(fmt::format("writing {} bytes", bytes.size()));
}

Result<void> GlDevice::read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<GlBuffer>(buffer, *group_, info_.name, bytes.size(), offset));
  auto current = KILN_TRY(begin(*group_));
  KILN_TRY(own->check());
  const BufferBinding binding(GL_COPY_WRITE_BUFFER, GL_COPY_WRITE_BUFFER_BINDING);
  binding.bind(own->id());
  glGetBufferSubData(GL_COPY_WRITE_BUFFER, static_cast<GLintptr>(offset), static_cast<GLsizeiptr>(bytes.size()),
                     bytes.data());
  return check_gl(fmt::format("reading {} bytes", bytes.size()));
}

Result<void> GlDevice::launch(kiln::Module& module, const Launch& launch) {
  auto current = KILN_TRY(begin(*group_));
  const auto fitted = KILN_TRY(fit(*group_, info_, module, launch));
  UniformBuffers uniforms(*group_);
  std::optional<ProgramLoan> copy;
  if (fitted.program.interface().sets_state()) copy.emplace(KILN_TRY(fitted.program.borrow()));
  KILN_TRY(dispatch(*group_, fitted, copy ? copy->id() : fitted.program.id(), uniforms));
  glFinish();
  const std::string doing = fmt::format("running {}", fitted.program.name());
  if (tells_resets_ && glGetGraphicsResetStatus() != GL_NO_ERROR) return gl_error(GL_CONTEXT_LOST, doing);
  return check_gl(doing);
}

Result<std::vector<Parameter>> GlDevice::parameters(kiln::Module& module) {
  auto current = KILN_TRY(begin(*group_));
  const auto* program = KILN_TRY(program_of(*group_, info_, module));
  return backend::parameters_of(program->interface().takes);
}

Result<std::unique_ptr<Slot>> GlDevice::open_slot() { return GlSlot::open(group_, info_, tells_resets_); }

std::uint32_t memory(const Buffer& buffer) noexcept {
  const auto* own = dynamic_cast<const GlBuffer*>(&buffer);
  return own != nullptr ? own->id() : 0;
}

std::vector<DeviceInfo> list_gl_devices(const Log& log) {
  auto displays = list_displays();
  if (!displays) return {{.name = "opengl", .identity = {.api = "opengl"}, .problem = displays.error().message()}};
  std::vector<DeviceInfo> infos;
  for (const Display& display : *displays) {
    const std::size_t number = infos.size();
    auto device = open_gl_device(number, log);
    infos.push_back(device ? (*device)->info()
                           : DeviceInfo{.name = fmt::format("opengl:{}", number),
                                        .identity = {.api = "opengl"},
                                        .software = display.software,
                                        .problem = device.error().message()});
  }
  return infos;
}

Result<std::shared_ptr<Device>> open_gl_device(std::size_t number, const Log& log) {
  auto displays = KILN_TRY(list_displays());
  const std::string name = fmt::format("opengl:{}", number);
  if (number >= displays.size())
    return Error(ErrorCode::no_device, fmt::format("there is no {}; OpenGL has {} device{} here, counted from 0",
                                                   name, displays.size(), displays.size() == 1 ? "" : "s"));
  const Display& display = displays[number];
  if (!display.problem.empty()) return Error(ErrorCode::no_device, fmt::format("{}: {}", name, display.problem));
  auto group = ShareGroup::create(display.display, log);
  if (!group) return Error(group.error().code(), fmt::format("{}: {}", name, group.error().message()));
  return GlDevice::open(std::move(*group), name, display.software);
}

Result<std::unique_ptr<Buffer>> wrap(Device& device, std::uint32_t buffer) {
  auto* own = dynamic_cast<GlDevice*>(&device);
  if (own == nullptr) return Error(ErrorCode::invalid_request, "the device is not an OpenGL device");
  auto current = KILN_TRY(begin(own->group()));
  const auto size = size_of_buffer(buffer);
  if (!size)
    return Error(
        ErrorCode::invalid_request,
        fmt::format("{} has no buffer object {}; a name has one once it has been bound", own->info().name, buffer));
  return std::unique_ptr<Buffer>(
      std::make_unique<GlBuffer>(own->group().shared_from_this(), buffer, *size, GlBuffer::Owner::caller));
}

Argument image(std::uint32_t texture, std::uint32_t format, std::uint32_t access, std::uint32_t level, bool layered,
               std::uint32_t layer) {
  constexpr std::uint32_t layered_bit = 1U << 31;
  return NativeObject{.kind = NativeObject::Kind::gl_image,
                      .handle = texture,
                      .numbers = {format, access, level, layered ? layered_bit : std::min(layer, layered_bit - 1)}};
}

Argument texture(std::uint32_t texture, std::uint32_t target, std::uint32_t sampler) {
  return NativeObject{
      .kind = NativeObject::Kind::gl_texture, .handle = texture, .sampler = sampler, .numbers = {target}};
}

Result<Current> make_current(Device& device) {
  auto* own = dynamic_cast<GlDevice*>(&device);
  if (own == nullptr) return Error(ErrorCode::invalid_request, "the device is not an OpenGL device");
  return Current(KILN_TRY(own->group().show()));
}

Result<std::shared_ptr<Device>> adopt_current(const Log& log, bool share) {
  auto group = KILN_TRY(ShareGroup::adopt(log, share));
  return GlDevice::open(std::move(group), "opengl:adopted", false);
}

}  // namespace kiln::opengl
