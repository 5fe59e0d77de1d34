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

/// The type of an element of a buffer or a shared array, or of a scalar. f16 is for buffers alone, and read and
/// written as float by load_half(), load_half2() and store_half2().
enum class Type { f32, i32, u32, f32x2, f32x4, i32x4, u32x4, f16 };

/// What a kernel does with a buffer.
enum class Access { read, write, read_write };

/// A buffer a kernel works on: `name[i]` in its source.
struct KernelBuffer {
  std::string name = {};
  Type type = Type::f32;
  Access access = Access::read;

  bool operator==(const KernelBuffer&) const = default;
};

/// A number given to a kernel with each launch: f32, i32 or u32.
struct KernelScalar {
  std::string name = {};
  Type type = Type::i32;

  bool operator==(const KernelScalar&) const = default;
};

/// An array that the work items of a group share: `name[i]`, `name[i][j]` with two extents, and so on.
struct SharedArray {
  std::string name = {};
  Type type = Type::f32;
  /// Constant expressions; parameters may stand in them.
  std::vector<std::string> extents = {};

  bool operator==(const SharedArray&) const = default;
};

/// The value of a scalar.
using Scalar = std::variant<float, std::int32_t, std::uint32_t>;

/// One kernel for every API: the host writes its signature in each language, its source is the same in all.
///
/// The source is functions, each behind FUNCTION, and then `KERNEL { … }`, in the C that all languages share: no
/// pointers, no references, no recursion, `1.0f` for constants, to_float(x) for casts. docs/kernels.md lists what
/// there is beyond plain C: group_id_x, local_id_x, group_barrier(), atomicAdd(a[i], n), fma, float4, UNROLL, …
/// Where a kernel wants a native instruction, `#if KILN_CUDA` (KILN_HIP, KILN_OPENCL, KILN_OPENGL, KILN_VULKAN)
/// keeps it to one language. A compiler's errors name the lines of this source.
struct Kernel {
  std::string name = {};
  /// The arguments, in the order of a launch. No two may be the same memory, unless both are only read.
  std::vector<KernelBuffer> buffers = {};
  std::vector<KernelScalar> scalars = {};
  std::vector<SharedArray> shared = {};
  /// Work items in a group; GROUP_X, GROUP_Y and GROUP_Z in the source.
  std::array<std::uint32_t, 3> group_size = {64, 1, 1};
  /// How many groups a multiprocessor is to hold at once: no work item gets more registers than that leaves. CUDA
  /// alone takes it; 0 leaves it to the compiler.
  std::uint32_t min_groups = 0;
  /// Constants of the source, by name: what tells the variants of a kernel apart.
  std::map<std::string, std::string> parameters = {};
  std::string source = {};

  bool operator==(const Kernel&) const = default;

  /// The text for one language; an error names what is wrong with the kernel, such as a name that is taken in any.
  Result<std::string> emit(Language language) const;
  /// What a cache takes to get the kernel, for a language or for a device, which must be able to run such groups.
  Result<Request> request(Language language) const;
  Result<Request> request(const Device& device) const;
  /// Whether the device can run such groups; the error says how large they may be.
  Result<void> fits(const Device& device) const;

  /// The same kernel for these sizes only: scalars of type i32 become constants of its source and are no longer
  /// arguments. A digest of their values is appended to its name.
  Result<Kernel> specialised(const std::vector<Scalar>& scalars_given) const;

  /// The scalars as a Launch and a Step take them. Of the wrong number or type, they are errors that name the
  /// scalar.
  Result<std::vector<std::byte>> pack(const std::vector<Scalar>& scalars_given) const;
  /// One run of the kernel. Arguments of the wrong number or type, a buffer that is no whole number of elements,
  /// and one that is given twice and not only read are errors that name the argument.
  Result<Launch> launch(std::array<std::uint32_t, 3> groups, std::vector<const Buffer*> buffers_given,
                        const std::vector<Scalar>& scalars_given) const;
};

/// The language of a name, as in `kiln emit --language cuda`; nothing if there is none.
std::optional<Language> language_of(std::string_view name) noexcept;

}  // namespace kiln
