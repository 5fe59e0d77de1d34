#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace kiln {

class Buffer;

/// A size in up to three dimensions. Dimensions that are not given are 1, so `{64}` is 64 × 1 × 1. A value.
class Extent {
 public:
  /// Not set: 0 in each dimension.
  constexpr Extent() noexcept : sizes_{} {}
  /// A negative number or one above 2³² - 1 becomes 2³² - 1, which no device allows.
  template <std::integral X, std::integral Y = int, std::integral Z = int>
  constexpr Extent(X x, Y y = 1, Z z = 1) noexcept : sizes_{clamped(x), clamped(y), clamped(z)} {}
  constexpr Extent(const std::array<std::uint32_t, 3>& sizes) noexcept : sizes_(sizes) {}

  constexpr std::uint32_t operator[](std::size_t dimension) const noexcept { return sizes_[dimension]; }
  constexpr std::uint32_t& operator[](std::size_t dimension) noexcept { return sizes_[dimension]; }
  constexpr auto begin() const noexcept { return sizes_.begin(); }
  constexpr auto end() const noexcept { return sizes_.end(); }
  constexpr bool is_set() const noexcept { return sizes_ != std::array<std::uint32_t, 3>{}; }
  constexpr const std::array<std::uint32_t, 3>& array() const noexcept { return sizes_; }
  bool operator==(const Extent&) const = default;

 private:
  template <class T>
  static constexpr std::uint32_t clamped(T size) noexcept {
    return std::in_range<std::uint32_t>(size) ? static_cast<std::uint32_t>(size)
                                              : std::numeric_limits<std::uint32_t>::max();
  }

  std::array<std::uint32_t, 3> sizes_;
};

/// Where an OpenGL or Vulkan program takes an argument.
struct Binding {
  std::uint32_t binding = 0;
  /// The descriptor set; always 0 in OpenGL.
  std::uint32_t set = 0;
  /// The index in an array of descriptors.
  std::uint32_t element = 0;

  auto operator<=>(const Binding&) const = default;
};

/// An image, a sampler, or both, of the caller's own, as handles of its API. opencl.hpp, opengl.hpp and vulkan.hpp
/// have the functions that make arguments of them.
struct NativeObject {
  enum class Kind : std::uint8_t {
    cl_image,
    cl_sampler,
    gl_image,
    gl_texture,
    vk_image,
    vk_texture,
    vk_sampler,
    vk_texel_buffer,
  };
  Kind kind = Kind::cl_image;
  /// The API's handle, and that of a sampler that belongs to a texture.
  std::uint64_t handle = 0;
  std::uint64_t sampler = 0;
  /// Numbers of the API, such as a format, an image layout or a texture target.
  std::array<std::uint32_t, 4> numbers = {};
};

/// An argument of a launch. A value, but it does not own buffers and native objects: they must stay until the
/// launch has ended.
///
/// Buffers, scalars and structs convert to arguments, so a launch is written as the kernel declares its arguments:
/// `.arguments = {n, 2.0f, *x, *y}`. The size of a value must be that of the kernel's argument: 2.0 is a double.
class Argument {
 public:
  /// A place in Job::memory, for a step of a job.
  struct Memory {
    std::size_t index = 0;
    std::size_t offset = 0;
  };
  /// No buffer, for a kernel that accepts a null pointer.
  struct Null {};
  /// A buffer from an offset on.
  struct Range {
    const Buffer* buffer = nullptr;
    std::size_t offset = 0;
  };
  /// Memory that the work items of a group share.
  struct Local {
    std::size_t bytes = 0;
  };

  /// Bytes of a value. Small values are not allocated.
  class Value {
   public:
    explicit Value(std::span<const std::byte> bytes) : size_(bytes.size()) {
      if (size_ <= small_.size())
        std::copy(bytes.begin(), bytes.end(), small_.begin());
      else
        large_.assign(bytes.begin(), bytes.end());
    }
    std::span<const std::byte> bytes() const noexcept {
      return large_.empty() ? std::span(small_).first(size_) : std::span<const std::byte>(large_);
    }

   private:
    std::array<std::byte, 16> small_ = {};
    std::size_t size_;
    std::vector<std::byte> large_ = {};
  };
  using Content = std::variant<Null, Range, Value, Local, NativeObject, Memory>;
  /// A place by name or by binding; without one, arguments are in order.
  using Place = std::variant<std::monostate, std::string, Binding>;

  /// A null pointer. Only OpenCL, CUDA and HIP accept it.
  Argument(std::nullptr_t) noexcept : content_(Null{}) {}
  /// A buffer from `offset` bytes on. A pointer must not be null.
  Argument(const Buffer& buffer, std::size_t offset = 0) noexcept : content_(Range{&buffer, offset}) {}
  Argument(const Buffer* buffer, std::size_t offset = 0) noexcept : content_(Range{buffer, offset}) {}
  template <std::derived_from<Buffer> T>
  Argument(const std::unique_ptr<T>& buffer, std::size_t offset = 0) noexcept
      : content_(Range{buffer.get(), offset}) {}
  template <std::derived_from<Buffer> T>
  Argument(const std::shared_ptr<T>& buffer, std::size_t offset = 0) noexcept
      : content_(Range{buffer.get(), offset}) {}
  /// A scalar or a struct, passed by value.
  template <class T>
  requires(!std::is_convertible_v<const T&, const Buffer&> && std::is_trivially_copyable_v<T> &&
           !std::is_pointer_v<T> && !std::is_array_v<T> && !std::ranges::view<T> && !std::derived_from<T, Buffer>)
      Argument(const T& value)
      : content_(Value(std::as_bytes(std::span(&value, 1)))) {}
  Argument(Null) noexcept : content_(Null{}) {}
  Argument(Range range) noexcept : content_(range) {}
  Argument(Local local) noexcept : content_(local) {}
  Argument(const NativeObject& object) noexcept : content_(object) {}
  Argument(Memory memory) noexcept : content_(memory) {}
  Argument(Value value) noexcept : content_(std::move(value)) {}

  const Content& content() const noexcept { return content_; }
  const Place& place() const noexcept { return place_; }
  /// Null if the argument is not of this kind.
  template <class T>
  const T* as() const noexcept {
    return std::get_if<T>(&content_);
  }

  /// The same argument for another place; see named() and bound().
  Argument at(Place place) && {
    place_ = std::move(place);
    return std::move(*this);
  }
  /// The same argument with another content.
  void replace(Content content) { content_ = std::move(content); }

 private:
  Content content_;
  Place place_ = {};
};

/// Memory that the work items of a group share, for a kernel of OpenCL that takes it as an argument.
constexpr Argument::Local local(std::size_t bytes) noexcept { return {bytes}; }

/// The memory of a job at this place of Job::memory, from `offset` bytes on.
constexpr Argument::Memory job_memory(std::size_t index, std::size_t offset = 0) noexcept {
  return {index, offset};
}

/// A value of any size, as its bytes.
inline Argument by_value(std::span<const std::byte> bytes) { return Argument::Value(bytes); }

/// An argument for the uniform or the block of this name, in OpenGL and Vulkan: `named("scale", 2.0f)`.
inline Argument named(std::string name, Argument argument) { return std::move(argument).at(std::move(name)); }

/// An argument for this binding, in OpenGL and Vulkan: `bound({.binding = 3}, *lookup)`.
inline Argument bound(Binding binding, Argument argument) { return std::move(argument).at(binding); }

/// One run of a program: how many work groups, with which arguments.
struct Launch {
  /// Work groups in each dimension. If one is 0, nothing runs.
  Extent groups = {1};
  /// Work items in a group. If unset, as the source declares it. GLSL always declares it, OpenCL C may
  /// (reqd_work_group_size). CUDA and HIP never do, so it is required there. If both set it, they must agree.
  Extent group_size = {};
  /// If set, the work items in each dimension, instead of `groups`. OpenCL then chooses the group size if
  /// `group_size` is unset and the source does not declare it, and runs partial groups at the edges if the device
  /// can. Elsewhere these must be whole groups.
  Extent items = {};
  /// Added to the global index of each work item. Only in OpenCL.
  std::array<std::uint32_t, 3> offset = {};
  /// Dynamic shared memory in bytes (`extern __shared__`). Only in CUDA and HIP.
  std::uint32_t shared_bytes = 0;
  /// In OpenCL, CUDA and HIP: the arguments in the order in which the kernel declares them.
  ///
  /// In OpenGL and Vulkan: without a place, the i-th buffer is storage buffer i (in set 0), and the values are the
  /// members of uniform block 0 or of the push constants, in order, or all of them as one value. Everything else
  /// has a place, by bound() or named().
  std::vector<Argument> arguments = {};

  /// The same launch with buffers in place of job_memory() arguments. `memory` must have a buffer for each.
  Launch with(std::span<const Buffer* const> memory) const {
    Launch resolved = *this;
    for (Argument& argument : resolved.arguments)
      if (const auto* place = argument.as<Argument::Memory>())
        argument.replace(Argument::Range{memory[place->index], place->offset});
    return resolved;
  }
};

/// An argument that an entry point takes, as its binary declares it. For people and tools. A value.
struct Parameter {
  /// As in "buffer", "value", "local memory", "uniform buffer" or "image".
  std::string kind = {};
  /// The type in the source, as in "float*", and the name; empty if they are unknown.
  std::string type = {};
  std::string name = {};
  /// As in "argument 0" or "set 1, binding 2".
  std::string place = {};
  /// The size of a value, or the least size of a block; 0 if it is unknown or any.
  std::uint64_t bytes = 0;
};

/// The size of a launch, for calls such as `program["saxpy"](stream, {groups, group_size}, n, 2.0f, x, y)`.
struct Grid {
  Extent groups = {1};
  Extent group_size = {};
  std::uint32_t shared_bytes = 0;
};

/// Launches a module on a device, a slot or a stream; see EntryPoint.
template <class Target, class Module, class... Arguments>
auto launch_on(Target& target, Module& module, const Grid& grid, Arguments&&... arguments) {
  Launch launch{.groups = grid.groups, .group_size = grid.group_size, .shared_bytes = grid.shared_bytes};
  launch.arguments.reserve(sizeof...(arguments));
  (launch.arguments.emplace_back(std::forward<Arguments>(arguments)), ...);
  return target.launch(module, launch);
}

}  // namespace kiln
