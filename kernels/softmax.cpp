#include "kernels/rows.hpp"

#include <limits>

#include "base/try.hpp"
#include "kernels/native.hpp"
#include "kernels/plan.hpp"
#include "kernels/tuned.hpp"

namespace kiln::kernels {
namespace {

// Elements of -inf have weight 0, whatever exp() returns. A NaN or +inf makes the sum NaN, and with it the row. For
// rows that are not held in registers, the first pass rescales its sum when it finds a larger element.
constexpr std::string_view softmax_source = R"(
#define SUM(a, b) ((a) + (b))
FUNCTION float weight(float value, float most) { return value == -INFINITY ? 0.0f : EXP(value - most); }
FUNCTION float4 weights(float4 v, float most) {
  return make_float4(weight(v.x, most), weight(v.y, most), weight(v.z, most), weight(v.w, most));
}
FUNCTION float most_of(float4 v) { return fmax(fmax(v.x, v.y), fmax(v.z, v.w)); }
FUNCTION float sum_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }

#if VECTORS
#if KILN_OPENGL || KILN_VULKAN
// Compilers of GLSL wait for each load behind a branch in turn; loading something in any case keeps them from it.
FUNCTION float4 if_there(bool there, float4 v) {
  return there ? v : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
}
#define LOAD_VALUES(v, quad) \
  v = if_there(row < rows && 4 * (quad) < width, \
               values[row < rows && 4 * (quad) < width ? row * (width / 4) + (quad) : 0]);
#else
#define LOAD_VALUES(v, quad) \
  v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY); \
  if (row < rows && 4 * (quad) < width) v = values[row * (width / 4) + (quad)];
#endif
#define ADD_MASK(v, quad) \
  if (row < rows && 4 * (quad) < width) v += mask[row % mask_rows * (width / 4) + (quad)];
#define STORE(v, quad) if (row < rows && 4 * (quad) < width) result[row * (width / 4) + (quad)] = v;
#else
#define VALUE(column) (row < rows && (column) < width ? values[row * width + (column)] : -INFINITY)
#define LOAD_VALUES(v, quad) \
  v = make_float4(VALUE(4 * (quad)), VALUE(4 * (quad) + 1), VALUE(4 * (quad) + 2), VALUE(4 * (quad) + 3));
#define MASK(column) (row < rows && (column) < width ? mask[row % mask_rows * width + (column)] : 0.0f)
#define ADD_MASK(v, quad) \
  v += make_float4(MASK(4 * (quad)), MASK(4 * (quad) + 1), MASK(4 * (quad) + 2), MASK(4 * (quad) + 3));
#define STORE_ONE(value, column) if (row < rows && (column) < width) result[row * width + (column)] = value;
#define STORE(v, quad) \
  STORE_ONE(v.x, 4 * (quad)) \
  STORE_ONE(v.y, 4 * (quad) + 1) \
  STORE_ONE(v.z, 4 * (quad) + 2) \
  STORE_ONE(v.w, 4 * (quad) + 3)
#endif
#define LOAD(v, quad) \
  LOAD_VALUES(v, quad) \
  if (mask_rows > 0) { ADD_MASK(v, quad) }

KERNEL {
  for (int first = group_id_x * GROUP_Y; first < rows; first += group_count_x * GROUP_Y) {
    int row = first + local_id_y;
    float most = -INFINITY;
    float sum = 0.0f;
#if HOLD > 0
    float4 held[HOLD];
    UNROLL for (int i = 0; i < HOLD; ++i) { LOAD_VALUES(held[i], i * GROUP_X + local_id_x) }
    if (mask_rows > 0) {
      UNROLL for (int i = 0; i < HOLD; ++i) { ADD_MASK(held[i], i * GROUP_X + local_id_x) }
    }
    UNROLL for (int i = 0; i < HOLD; ++i) most = fmax(most, most_of(held[i]));
    FOLD(most, fmax)
    if (most == -INFINITY) most = 0.0f;
    UNROLL for (int i = 0; i < HOLD; ++i) {
      held[i] = weights(held[i], most);
      sum += sum_of(held[i]);
    }
    FOLD(sum, SUM)
    float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    UNROLL for (int i = 0; i < HOLD; ++i) {
      float4 value = held[i] * inverse;
      STORE(value, i * GROUP_X + local_id_x)
    }
#else
    int quads = (width + 3) / 4;
    for (int i = local_id_x; i < quads; i += GROUP_X) {
      float4 v;
      LOAD(v, i)
      float larger = fmax(most, most_of(v));
      float finite = larger == -INFINITY ? 0.0f : larger;
      sum = sum * weight(most, finite) + sum_of(weights(v, finite));
      most = larger;
    }
    float own = most;
    FOLD(most, fmax)
    if (most == -INFINITY) most = 0.0f;
    sum *= weight(own, most);
    FOLD(sum, SUM)
    float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int i = local_id_x; i < quads; i += GROUP_X) {
      float4 v;
      LOAD(v, i)
      float4 value = weights(v, most) * inverse;
      STORE(value, i)
    }
#endif
  }
}
)";

/// The number of rows after which the mask repeats; fails if the mask's shape is no suffix of x's.
Result<std::int64_t> mask_rows(const Shape& x, const Shape& mask) {
  if (mask.empty()) return unfit("softmax: mask has no dimensions; it must have 1 or more");
  std::size_t skipped = 0;
  while (mask.size() - skipped > 1 && (mask[skipped] == 1 || mask.size() - skipped > x.size())) {
    if (mask[skipped] != 1) return unfit("softmax: mask has {} dimensions, but x has {}", mask.size(), x.size());
    ++skipped;
  }
  for (std::size_t i = 0; i < mask.size() - skipped; ++i) {
    const std::size_t of_mask = mask.size() - 1 - i;
    const std::size_t of_x = x.size() - 1 - i;
    if (mask[of_mask] != x[of_x])
      return unfit("softmax: mask has {} in dimension {}, but x has {} in dimension {}; they must be equal",
                   mask[of_mask], of_mask, x[of_x], of_x);
  }
  return rows_of(mask).count;
}

SoftmaxVariant variant_for(const DeviceInfo& device, std::int64_t width) {
  const RowGroup group = row_group_for(width);
  SoftmaxVariant variant{.group = group, .hold = 1, .vectors = !device.software && width % 4 == 0};
  if (width > variant.widest()) variant.hold = device.software ? 0 : 8;
  if (variant.hold != 0 && width > variant.widest()) variant.hold = 0;
  return variant;
}

SoftmaxVariant variant_of(const Variant& numbers) {
  return {{static_cast<std::uint32_t>(numbers[0]), static_cast<std::uint32_t>(numbers[1])},
          numbers[2],
          numbers[3] != 0};
}

/// The variant that the plan's tuner chooses, or the default if it has none.
SoftmaxVariant choose(Plan& plan, const Shape& x) {
  const DeviceInfo& device = plan.device();
  const Rows rows = rows_of(x);
  if (!plan.tuned()) return variant_for(device, rows.width);
  const std::array<std::int64_t, 2> sizes = {rows.count, rows.width};
  return variant_of(plan.choose("softmax", sizes, [&] { return softmax_tunable(device, x); }));
}

}  // namespace

std::int64_t SoftmaxVariant::widest() const {
  return hold == 0 ? std::numeric_limits<std::int64_t>::max() : std::int64_t{4} * hold * group.items;
}

std::string SoftmaxVariant::name() const {
  return fmt::format("softmax_{}_{}{}", group.name(), hold == 0 ? "stream" : fmt::format("hold{}", hold),
                     vectors ? "_v4" : "");
}

namespace {

std::int64_t loop_steps(const SoftmaxVariant& variant, const Rows& rows) {
  const std::int64_t pass =
      variant.hold == 0 ? quotient_up(rows.width, std::int64_t{4} * variant.group.items) + 1 : 0;
  return pieces_each(quotient_up(rows.count, variant.group.rows)) * (2 * (pass + fold_steps(variant.group)) + 1);
}

}  // namespace

Tunable softmax_tunable(const DeviceInfo& device, const Shape& x) {
  const Rows rows = rows_of(x);
  const SoftmaxVariant initial = variant_for(device, rows.width);
  Tunable tunable{.kernel = "softmax",
                  .sizes = {{"rows", rows.count}, {"width", rows.width}},
                  .parameters = {{"x", {32, 64, 128, 256, 512, 1024}},
                                 {"y", {1, 2, 4, 8}},
                                 {"hold", {0, 1, 2, 4, 8, 16}},
                                 {"v", {0, 1}}},
                  .initial = {static_cast<int>(initial.group.items), static_cast<int>(initial.group.rows),
                              initial.hold, initial.vectors ? 1 : 0},
                  .inputs = {x}};
  tunable.fits = [device, rows](const Variant& numbers) {
    const SoftmaxVariant variant = variant_of(numbers);
    const DeviceLimits& limits = device.limits;
    const std::uint32_t items = variant.group.items * variant.group.rows;
    return items <= limits.max_group_items && variant.group.items <= limits.max_group_size[0] &&
           variant.group.rows <= limits.max_group_size[1] && rows.width <= variant.widest() &&
           (!variant.vectors || rows.width % 4 == 0) && goes_through(device, loop_steps(variant, rows));
  };
  tunable.call = [](const Variant& numbers, const std::vector<Tensor>& inputs) {
    const SoftmaxVariant variant = variant_of(numbers);
    return call_of(inputs, numbers, [&](Runner on) { return softmax(on, inputs[0], {}, &variant); });
  };
  return with_constants(std::move(tunable));
}

Kernel softmax_kernel(const SoftmaxVariant& variant) {
  const Type type = variant.vectors ? Type::f32x4 : Type::f32;
  return {.name = variant.name(),
          .buffers = {{"values", type}, {"mask", type}, {"result", type, Access::write}},
          .scalars = {{"rows"}, {"width"}, {"mask_rows"}},
          .shared = {partial_array()},
          .group_size = variant.group.size(),
          .parameters = {{"HOLD", std::to_string(variant.hold)}, {"VECTORS", flag(variant.vectors)}},
          .source = std::string(native_source) + std::string(fold_source) + std::string(softmax_source)};
}

Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options, const SoftmaxVariant* given) {
  std::vector<std::pair<const char*, const Tensor*>> tensors = {{"x", &x}};
  if (options.mask) tensors.emplace_back("mask", &*options.mask);
  auto plan = KILN_TRY(Plan::of("softmax", on, tensors));
  if (x.shape().empty()) return unfit("softmax: x has no dimensions; it must have 1 or more");
  std::int64_t masked = 0;
  if (options.mask) {
    auto repeated = KILN_TRY(mask_rows(x.shape(), options.mask->shape()));
    masked = repeated;
  }
  const Rows rows = rows_of(x.shape());
  const SoftmaxVariant variant = given != nullptr ? *given : choose(plan, x.shape());
  const auto values = plan.read(x);
  const auto mask = options.mask ? plan.read(*options.mask) : values;
  if (options.mask) plan.do_not_tell();
  const auto result = plan.write(x.shape(), options.output);
  const auto count = static_cast<double>(x.count());
  const std::int64_t pieces = quotient_up(rows.count, variant.group.rows);
  plan.step(softmax_kernel(variant), groups_for(pieces), {values, mask, result},
            {number(rows.count), number(rows.width), number(masked)},
            {.flops = 5 * count,
             .bytes = 4 * count * (variant.hold == 0 ? 3 : 2),
             .loop_steps = loop_steps(variant, rows)});
  return std::move(plan).finish();
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options) {
  return kernels::softmax(on, x, options, nullptr);
}

}  // namespace kiln
