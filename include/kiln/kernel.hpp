#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The type of a scalar, or of an element of a buffer or a shared array. f16 is for buffers only; kernels read and
/// write it as float by load_half(), load_half2() and store_half2().
enum class Type { f32, i32, u32, f32x2, f32x4, i32x4, u32x4, f16 };

/// How a kernel uses a buffer.
enum class Access { read, write, read_write };

/// A buffer that a kernel works on: `name[i]` in its source.
struct KernelBuffer {
  std::string name = {};
  Type type = Type::f32;
  Access access = Access::read;

  bool operator==(const KernelBuffer&) const = default;
};

/// A number that is passed to a kernel with each launch: f32, i32 or u32.
struct KernelScalar {
  std::string name = {};
  Type type = Type::i32;

  bool operator==(const KernelScalar&) const = default;
};

/// An array that the work items of a group share: `name[i]`, `name[i][j]` with two extents, and so on.
struct SharedArray {
  std::string name = {};
  Type type = Type::f32;
  /// Constant expressions, which may use parameters; at least one.
  std::vector<std::string> extents = {};

  bool operator==(const SharedArray&) const = default;
};

/// The value of a KernelScalar, whose type it must have.
using Scalar = std::variant<float, std::int32_t, std::uint32_t>;

/// One kernel for every API: Kiln writes its signature in each language, its source is the same in all.
///
/// The source is functions, each preceded by FUNCTION, and then `KERNEL { … }`, in the C that all languages share:
/// no pointers, no references, no recursion, `1.0f` for constants, to_float(x) for casts. docs/kernels.md lists the
/// words beyond plain C: group_id_x, local_id_x, group_barrier(), atomicAdd(a[i], n), fma, float4, UNROLL, …
/// Native instructions can be limited to one language by `#if KILN_CUDA` (KILN_HIP, KILN_OPENCL, KILN_OPENGL,
/// KILN_VULKAN). A compiler's errors name the lines of this source.
///
/// A value. All functions are const and depend on nothing else, so any number of threads may call them. Wrong
/// kernels and arguments are invalid_request errors that name the part at fault.
struct Kernel {
  /// For listings and errors; must not be empty. Part of the key.
  std::string name = {};
  /// The arguments, in the order of a launch. Two may be the same memory only if both are only read.
  std::vector<KernelBuffer> buffers = {};
  std::vector<KernelScalar> scalars = {};
  std::vector<SharedArray> shared = {};
  /// Work items in a group, at least 1 in each dimension; GROUP_X, GROUP_Y and GROUP_Z in the source.
  std::array<std::uint32_t, 3> group_size = {64, 1, 1};
  /// How many groups a multiprocessor should hold at once, which limits the registers of a work item. Used by CUDA
  /// only; 0: the compiler decides.
  std::uint32_t min_groups = 0;
  /// Constants of the source, by name, in which the variants of a kernel differ.
  std::map<std::string, std::string> parameters = {};
  std::string source = {};

  bool operator==(const Kernel&) const = default;

  /// The source text for one language. Fails with invalid_request; a name that any of the languages reserves is
  /// refused for all.
  Result<std::string> emit(Language language) const;
  /// The request for Cache::get(), for a language or for a device. Fails as emit() does and, for a device, as
  /// fits() does.
  Result<Request> request(Language language) const;
  Result<Request> request(const Device& device) const;
  /// Whether the device can run groups of `group_size`; if not, unsupported says how large they may be.
  Result<void> fits(const Device& device) const;

  /// The same kernel for these sizes only: scalars of type i32 become constants of its source and are no longer
  /// arguments. A digest of their values is appended to its name. Fails as pack() does.
  Result<Kernel> specialised(const std::vector<Scalar>& scalars_given) const;

  /// The scalars as the bytes of one struct. In a launch, its value is the argument after the buffers; a kernel
  /// without scalars has none. Fails with invalid_request if their number or a type is wrong.
  Result<std::vector<std::byte>> pack(const std::vector<Scalar>& scalars_given) const;
  /// One run of the kernel. The buffers are not owned. Fails with invalid_request if the number or a type of the
  /// arguments is wrong, if a buffer is null or does not hold a whole number of elements, or if a buffer is given
  /// twice and the kernel does not only read both.
  Result<Launch> launch(std::array<std::uint32_t, 3> groups, std::vector<const Buffer*> buffers_given,
                        const std::vector<Scalar>& scalars_given) const;
};

}  // namespace kiln
