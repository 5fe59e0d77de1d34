#include "kernels/rows.hpp"

#include "base/try.hpp"
#include "kernels/native.hpp"

namespace kiln::kernels {
namespace {

constexpr std::string_view reduce_source = R"(
FUNCTION bool is_nan(float x) { return (as_uint(x) & 0x7fffffffu) > 0x7f800000u; }
FUNCTION float larger(float first, float other) { return first > other || is_nan(first) ? first : other; }
FUNCTION float smaller(float first, float other) { return first < other || is_nan(first) ? first : other; }
#define SUM(first, other) ((first) + (other))

KERNEL {
  for (int start = group_id_x * GROUP_Y; start < pieces; start += group_count_x * GROUP_Y) {
    int piece = start + local_id_y;
    int row = piece / chunks;
    int begin = (piece - row * chunks) * chunk_width;
    int length = piece < pieces ? min(width - begin, chunk_width) : 0;
    float value = NOTHING;
#if VECTORS
    int base = (row * width + begin) / 4;
    for (int i = local_id_x; 4 * i < length; i += GROUP_X) {
      float4 quad = values[base + i];
      value = OF_TWO(value, OF_TWO(OF_TWO(quad.x, quad.y), OF_TWO(quad.z, quad.w)));
    }
#else
    int base = row * width + begin;
    for (int i = local_id_x; i < length; i += GROUP_X) value = OF_TWO(value, values[base + i]);
#endif
    FOLD(value, OF_TWO)
    if (local_id_x == 0 && piece < pieces) result[piece] = value * factor;
  }
}
)";

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
    case Reduction::mean: return "sum";
  }
  return "";
}

}  // namespace

std::string ReduceVariant::name() const {
  return fmt::format("reduce_{}_{}{}", name_of(reduction), group.name(), vectors ? "_v4" : "");
}

ReduceVariant reduce_variant(const DeviceInfo& device, std::int64_t width, Reduction reduction) {
  return {.group = row_group_for(width), .reduction = reduction, .vectors = !device.software && width % 4 == 0};
}

Kernel reduce_kernel(const ReduceVariant& variant) {
  const bool max = variant.reduction == Reduction::max;
  const bool min = variant.reduction == Reduction::min;
  return {.name = variant.name(),
          .buffers = {{"values", variant.vectors ? Type::f32x4 : Type::f32}, {"result", Type::f32, Access::write}},
          .scalars = {{"pieces"}, {"chunks"}, {"width"}, {"chunk_width"}, {"factor", Type::f32}},
          .shared = {partial_array()},
          .group_size = variant.group.size(),
          .parameters = {{"VECTORS", flag(variant.vectors)},
                         {"OF_TWO", max   ? "larger"
                                    : min ? "smaller"
                                          : "SUM"},
                         {"NOTHING", max   ? "(-INFINITY)"
                                     : min ? "INFINITY"
                                           : "0.0f"}},
          .source = std::string(native_source) + std::string(fold_source) + std::string(reduce_source)};
}

Chunks chunks_for(const Rows& rows) {
  constexpr std::int64_t width = 16384;
  if (rows.width <= 2 * width || rows.count >= 256) return {.count = 1, .width = rows.width};
  return {.count = quotient_up(rows.width, width), .width = width};
}

void add_reduce(Plan& plan, const ReduceVariant& variant, const Rows& rows, const Chunks& chunks, Plan::Place from,
                Plan::Place to, float scale) {
  const std::int64_t pieces = rows.count * chunks.count;
  const auto count = static_cast<double>(rows.count) * static_cast<double>(rows.width);
  const std::int64_t of_group = quotient_up(pieces, variant.group.rows);
  const std::int64_t steps = quotient_up(chunks.width, variant.group.items) + fold_steps(variant.group) + 2;
  plan.step(reduce_kernel(variant), groups_for(of_group), {from, to},
            {number(pieces), number(chunks.count), number(rows.width), number(chunks.width), scale},
            {.flops = count,
             .bytes = 4 * (count + static_cast<double>(pieces)),
             .loop_steps = pieces_each(of_group) * steps});
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> reduce(Runner on, const Tensor& x, Reduction reduction, const ReduceOptions& options) {
  using namespace kernels;
  auto plan = KILN_TRY(Plan::of("reduce", on, {{"x", &x}}));
  if (x.shape().empty()) return unfit("reduce: x has no dimensions; it must have 1 or more");
  const Rows rows = rows_of(x.shape());
  const Chunks chunks = chunks_for(rows);
  const float scale = reduction == Reduction::mean ? 1.0F / static_cast<float>(rows.width) : 1.0F;
  const auto from = plan.read(x);
  const auto to = plan.write(Shape(x.shape().begin(), x.shape().end() - 1), options.output);
  const ReduceVariant variant = reduce_variant(plan.device(), rows.width, reduction);
  if (chunks.count == 1) {
    add_reduce(plan, variant, rows, chunks, from, to, scale);
  } else {
    const auto partial = plan.scratch(rows.count * chunks.count);
    add_reduce(plan, variant, rows, chunks, from, partial, 1);
    const Rows rest{.count = rows.count, .width = chunks.count};
    add_reduce(plan, reduce_variant(plan.device(), rest.width, reduction), rest, {.width = rest.width}, partial, to,
               scale);
  }
  return std::move(plan).finish();
}

}  // namespace kiln
