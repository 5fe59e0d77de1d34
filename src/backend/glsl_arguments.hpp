#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/result.hpp>

/// The arguments of programs in GLSL and SPIR-V, which OpenGL and Vulkan take by binding.
namespace kiln::backend {

/// A resource that a program declares. In OpenGL each kind has bindings of its own, in Vulkan all share them.
struct GlslResource {
  enum class Kind : std::uint8_t {
    storage_buffer,
    uniform_buffer,
    image,
    /// An image with a sampler.
    texture,
    /// Without an image; only in Vulkan.
    sampler,
    sampled_image,
    uniform_texel_buffer,
    storage_texel_buffer,
    /// A buffer of atomic counters; only in OpenGL.
    atomic_counters,
  };
  Kind kind = Kind::storage_buffer;
  /// Of the first element.
  Binding place = {};
  /// The length of an array of descriptors. In OpenGL, element i has the binding `place.binding + i`.
  std::uint32_t count = 1;
  /// Of the block or the variable; may be empty.
  std::string name = {};
  /// The least size of a buffer in bytes, without arrays of unknown length; 0 if unknown.
  std::uint64_t bytes = 0;

  bool operator==(const GlslResource&) const = default;
};

/// As in "storage buffer".
std::string_view to_string(GlslResource::Kind kind) noexcept;
/// As in "uniform buffer Params (binding 2)", or "(set 1, binding 2)".
std::string describe(const GlslResource& resource, std::uint32_t element = 0);

/// A member of the block that values without a place fill, or a plain uniform.
struct GlslMember {
  std::string name = {};
  /// In the block; for plain uniforms their location.
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  /// The size of an element of an array of plain uniforms; otherwise 0. Drivers shorten these arrays to the
  /// elements that the program uses, so more elements may be given.
  std::uint32_t element_bytes = 0;

  bool operator==(const GlslMember&) const = default;
};

/// Everything that a program takes.
struct GlslInterface {
  /// Sorted by kind and place. Storage buffers are bound by position too, so their bindings may have holes: a
  /// launch gives those as well.
  std::vector<GlslResource> resources = {};
  /// The push constants of Vulkan, or the members of uniform block 0 of OpenGL, by offset. Empty if they are
  /// unknown: they are given as one value then.
  std::vector<GlslMember> members = {};
  /// The size of that block.
  std::uint32_t parameter_bytes = 0;
  /// Uniform block 0 of OpenGL, which can also be given as a buffer, by its name or, if no other resource has its
  /// binding, by bound(). Its size is 0 if there is none.
  GlslResource parameters = {.kind = GlslResource::Kind::uniform_buffer};
  /// Plain uniforms of OpenGL, without samplers and images.
  std::vector<GlslMember> uniforms = {};
  /// The work items of a group.
  Extent group_size = {1};
  /// OpenGL pads the size of a uniform block to a multiple of 16 bytes, and the elements of an array have bindings
  /// of their own.
  bool is_padded = false;
  bool has_bindings_of_elements = false;
};

/// The arguments of a launch, each with the resource that takes it. Points into the interface and the launch.
struct GlslArguments {
  struct Bound {
    const GlslResource* resource = nullptr;
    std::uint32_t element = 0;
    const Argument* argument = nullptr;
  };
  struct Uniform {
    const GlslMember* member = nullptr;
    std::span<const std::byte> value = {};
  };
  std::vector<Bound> bound = {};
  std::vector<Uniform> uniforms = {};

  /// The whole block of parameters; empty if the program has none.
  std::span<const std::byte> parameters() const noexcept { return packed.empty() ? whole : packed; }

  /// One of these holds the parameters.
  std::span<const std::byte> whole = {};
  std::vector<std::byte> packed = {};
};

/// Finds the resource of each argument. Fails with invalid_request if an argument has none, has a wrong size or
/// kind, or is given twice, and if a resource, a member or a uniform has no argument; the error names both.
Result<GlslArguments> assign(std::string_view program, const GlslInterface& takes, const Launch& launch);

/// Everything that a program takes, for people.
std::vector<Parameter> parameters_of(const GlslInterface& takes);

/// Checks the group size and the fields of a launch that are for other APIs. Returns the work groups.
Result<Extent> check_extents(std::string_view program, const GlslInterface& takes, const Launch& launch,
                             const DeviceLimits& limits, std::string_view api);

}  // namespace kiln::backend
