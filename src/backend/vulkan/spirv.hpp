#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <spirv/unified1/spirv.hpp11>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "backend/glsl_arguments.hpp"

namespace kiln::vulkan {

/// Values of specialisation constants, by id.
using Constants = std::map<std::uint32_t, Constant>;

/// A specialisation constant that a module declares.
struct SpecConstant {
  enum class Kind : std::uint8_t { boolean, signed_integer, unsigned_integer, real };
  std::uint32_t id = 0;
  Kind kind = Kind::boolean;
  /// 8, 16, 32 or 64; 32 for a boolean.
  std::uint8_t bits = 32;
  /// Whether the request gives the value. Otherwise it is the default.
  bool is_given = false;
  std::uint64_t value = 0;
  /// May be empty.
  std::string name = {};

  friend bool operator==(const SpecConstant&, const SpecConstant&) = default;
};

/// The set and the binding of a resource, in this order.
constexpr std::pair<std::uint32_t, std::uint32_t> place_of(const backend::GlslResource& resource) noexcept {
  return {resource.place.set, resource.place.binding};
}

/// What a launch of a compute entry point must provide, as read from its SPIR-V.
struct ShaderInterface {
  /// By set, binding and kind. In Vulkan, one for each binding.
  std::vector<backend::GlslResource> resources = {};
  /// The members of the push-constant block, by offset; empty if they are unknown or too many.
  std::vector<backend::GlslMember> members = {};
  /// Of OpenGL: the highest location of a plain uniform. Not stored.
  std::optional<std::uint32_t> last_location = {};
  /// The size of the push-constant block.
  std::uint32_t parameter_bytes = 0;
  /// A lower bound of the memory a group shares: padding is not counted.
  std::uint64_t shared_bytes = 0;
  std::array<std::uint32_t, 3> group_size = {};
  /// Of the whole module, by id.
  std::vector<SpecConstant> constants = {};

  /// One more than the highest binding of a storage buffer of set 0: a launch that gives buffers without bindings
  /// gives this number.
  std::uint32_t buffers() const noexcept;

  friend bool operator==(const ShaderInterface&, const ShaderInterface&) = default;
};

/// The bytes as words; empty if the last word is incomplete.
std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes);

/// A compute entry point and its interface.
struct ShaderEntry {
  std::string name;
  ShaderInterface interface;

  friend bool operator==(const ShaderEntry&, const ShaderEntry&) = default;
};

/// Bounds of a module that is read. A longer name of a resource, member or constant counts as none.
constexpr std::size_t max_entries = 1024;
constexpr std::size_t max_entry_name = 4096;
constexpr std::size_t max_name = 255;
/// Resources, members and constants of all entry points together.
constexpr std::size_t max_declarations = 1U << 16;
constexpr std::uint32_t max_binding = 65535;
constexpr std::size_t max_members = 256;

/// Entry points as bytes, and back; nullopt if the bytes are damaged.
std::vector<std::byte> to_bytes(const std::vector<ShaderEntry>& entries);
std::optional<std::vector<ShaderEntry>> entries_from(std::span<const std::byte> bytes);

/// The highest version of SPIR-V that a version of Vulkan takes, as in a module's header: 0x00010300 for 1.3.
std::uint32_t spirv_version_of(std::uint32_t vulkan_version) noexcept;

/// How a module is read.
struct SpirvOptions {
  std::uint32_t max_version = 0x00010300;
  /// OpenGL has atomic counters and plain uniforms, and the kinds of resources have bindings of their own.
  enum class Api { vulkan, opengl } api = Api::vulkan;
  /// used: an entry point has the resources, parameters and shared memory that it uses. declared: all of the
  /// module.
  enum class Count { used, declared } count = Count::used;
  /// Values of specialisation constants. Ids and types that the module does not have are ignored here: see
  /// check_constants().
  const Constants* constants = nullptr;
};

/// Reads a module that has only compute entry points, at least one. Safe on arbitrary words; the time is linear in
/// their number. Fails with load_failed if the module is malformed or of a later version, and with unsupported if
/// it exceeds a bound above, nests types more than 255 deep, uses decoration groups, which hide a part of the
/// interface, or has a resource that a launch cannot give.
///
/// Only the instructions that determine the interface are checked. The others are not: the driver gets only modules
/// that a compiler made or that passed Shaderc::validate(), and whose checksum shows that they are unchanged since.
Result<std::vector<ShaderEntry>> read_spirv(std::span<const std::uint32_t> words, const SpirvOptions& options = {});

/// A module with one of its entry points only. `words` must be a module that read_spirv() takes.
std::vector<std::uint32_t> with_entry_only(std::span<const std::uint32_t> words, std::string_view name);

/// The bits of a value for a constant; nullopt if it has another type. Integers may have the other sign if the
/// value fits.
std::optional<std::uint64_t> bits_for(const SpecConstant& declared, const Constant& value) noexcept;

/// Fails with invalid_request if a value has an id or a type that the module does not have. The error names the
/// program and the constant.
Result<void> check_constants(const std::string& program, const Constants& given,
                             const std::vector<SpecConstant>& declared);

/// Fails with unsupported if a module declares a capability that is not in `enabled`. The error has the name of the
/// program and of the capability. A malformed module passes: see read_spirv().
Result<void> check_capabilities(const std::string& program, std::span<const std::uint32_t> words,
                                std::span<const spv::Capability> enabled);

}  // namespace kiln::vulkan
