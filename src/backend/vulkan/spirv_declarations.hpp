#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/result.hpp>

#include "backend/vulkan/spirv.hpp"
#include "backend/vulkan/spirv_instructions.hpp"

/// The types, constants and decorations of a SPIR-V module.
namespace kiln::vulkan::spirv {

/// SPIR-V's universal limit on the nesting of structures, here for all types.
constexpr std::uint32_t max_depth = 255;

/// Lengths come from the module: sums and products saturate instead of wrapping around.
constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return b > huge - a ? huge : a + b; }
constexpr std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a != 0 && b > huge / a ? huge : a * b; }

/// Decorations of a member of a struct.
struct Member {
  std::optional<std::uint32_t> offset = {};
  std::optional<std::uint32_t> matrix_stride = {};
  bool row_major = false;
  std::string_view name = {};
};

struct Type {
  enum class Shape : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    vector,
    matrix,
    array,
    runtime_array,
    structure,
    pointer,
    image,
    sampler,
    sampled_image,
    other,
  };
  Shape shape = Shape::none;
  /// Of integers.
  bool is_signed = false;
  /// How deep it nests others; 1 for scalars.
  std::uint32_t depth = 0;
  /// Of scalars.
  std::uint32_t bits = 0;
  /// By the decorations of arrays and structs, as in buffers and push constants.
  std::uint64_t size = 0;
  /// Without them: drivers lay out shared memory themselves.
  std::uint64_t packed = 0;
  /// Whether it has an array whose length is an expression that evaluate() does not know. Its sizes are too small
  /// then.
  bool has_unknown_length = false;
  /// Of vectors, or the rows of matrices.
  std::uint32_t components = 0;
  std::uint32_t columns = 0;
  /// Of arrays; nullopt if the driver computes it.
  std::optional<std::uint64_t> length = {};
  /// Of arrays, pointers and sampled images.
  std::uint32_t element = 0;
  spv::StorageClass storage_class = {};
  spv::Dim dim = {};
  /// Of images: 1 for use with a sampler, 2 without.
  std::uint32_t sampled = 0;
  /// Of structs.
  Words members = {};
};

/// Decorations and declaration of an id. Everything is empty for an id that the module only references.
struct Id {
  std::optional<std::uint32_t> binding = {};
  std::optional<std::uint32_t> set = {};
  std::optional<std::uint32_t> location = {};
  std::optional<std::uint32_t> offset = {};
  std::optional<std::uint32_t> array_stride = {};
  std::optional<std::uint32_t> spec_id = {};
  bool buffer_block = false;
  bool workgroup_size = false;
  std::string_view name = {};
  std::map<std::uint32_t, Member> members = {};
  Type type = {};
  /// Of a constant: its type, its bits if they are known, and the ids of a composite's parts.
  std::uint32_t constant_type = 0;
  std::optional<std::uint64_t> constant = {};
  Words parts = {};
  /// Of a function: its index plus 1.
  std::uint32_t function = 0;
  /// Of a type: how many variables are of it, or arrays of it.
  std::uint32_t blocks = 0;
};

/// The ids of a module. References stay valid.
class Ids {
 public:
  /// `id` must be less than max_bound.
  Id& operator[](std::uint32_t id);

 private:
  std::vector<std::uint32_t> index_;
  std::deque<Id> ids_;
};

/// The bits of OpSpecConstantOp with these operands, without result; nullopt if it is not a known operation on
/// known scalars.
std::optional<std::uint64_t> evaluate(Ids& ids, spv::Op op, Words operands, const Type& type);

/// What the instructions of a module declare of its ids, apart from functions and variables. The first problem is
/// kept: nothing is read after it.
class Declarations {
 public:
  /// `bound` is that of the module's header. `given` may be null.
  Declarations(std::uint32_t bound, const Constants* given) : bound_(bound), given_(given) {}

  /// Reads a decoration or a name. Call it for all instructions first.
  void decorate(spv::Op op, Words operands);
  /// Reads a type or a constant. Ignores other instructions.
  void declare(spv::Op op, Words operands);

  /// Whether there are at least `count` operands, the first `ids` of which are ids. If not, the module is
  /// malformed.
  bool has(Words operands, std::size_t count, std::size_t ids);
  bool is_id(std::uint32_t id);
  void malformed(const char* why) { problem_ = why; }
  void unsupported(std::string why) { unsupported_ = std::move(why); }
  bool has_problem() const noexcept { return problem_ != nullptr || !unsupported_.empty(); }
  /// Fails with load_failed or unsupported if there was a problem.
  Result<void> check() const;

  Id& operator[](std::uint32_t id) { return ids_[id]; }
  Type& type(std::uint32_t id) { return ids_[id].type; }
  /// The type of the elements of arrays of arrays.
  std::uint32_t innermost(std::uint32_t type_id);
  /// The place of a member of a struct whose earlier members end at `end`.
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };
  Span place_of(const Id& id, std::uint32_t member, std::uint32_t type_id, std::uint64_t end);
  /// The values of constants; 0 for what is none.
  std::array<std::uint32_t, 3> constants_of(std::array<std::uint32_t, 3> ids);
  /// That of a constant which is decorated as WorkgroupSize.
  const std::optional<std::array<std::uint32_t, 3>>& group_size() const noexcept { return group_size_; }
  const std::vector<SpecConstant>& constants() const noexcept { return constants_; }

 private:
  std::optional<std::uint32_t> argument(Words operands, std::size_t at);
  std::optional<std::uint32_t> stride(Words operands, std::size_t at);
  void declare_type(std::uint32_t id, Type made, Words parts = {});
  void declare_array(Words operands);
  void declare_struct(Words operands);
  void declare_pointer(spv::Op op, Words operands);
  void declare_constant(spv::Op op, Words operands, std::uint64_t value);
  void declare_operation(Words operands);
  void declare_composite(Words operands);

  const std::uint32_t bound_;
  const Constants* const given_;
  const char* problem_ = nullptr;
  std::string unsupported_;
  Ids ids_;
  std::optional<std::array<std::uint32_t, 3>> group_size_;
  std::vector<SpecConstant> constants_;
};

/// An error for a module that is malformed.
Error malformed(std::string_view why);

/// The name; empty if it is too long to be kept.
std::string short_name(std::string_view name);

}  // namespace kiln::vulkan::spirv
