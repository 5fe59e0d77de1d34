#include "kernels/gemm.hpp"

#include "kernels/native.hpp"
#include "kernels/tuned.hpp"

namespace kiln::kernels {
namespace {

// A group computes one tile of the result after the other, or of a part of the sum: where the depth is divided,
// there are `parts` results for each. Four elements are taken along the dimension in which they lie side by side:
// the depth (K) or the rows of A and columns of B. A matrix that is turned lies along the depth, and four elements
// are taken across it, one by one, so that they can be put into the panel at once; work items side by side take
// those that lie side by side.
constexpr std::string_view source = R"(
// What is no part of a sum has its depth from the call: a register less.
#if DIVIDED
#define DEPTH depth
#define PARTS parts
#else
#define DEPTH k
#define PARTS 1
#endif
#define AT_A(r, d) LOAD_IF((d) < DEPTH, a, a_first + min(top + (r), m - 1) * a_row + (d) * a_depth)
#define AT_B(d, c) LOAD_IF((d) < DEPTH, b, b_first + (d) * b_depth + min(left + (c), n - 1) * b_column)

#if A_ALONG_DEPTH && !A_TURNED
#define A_TAKEN 1
#define A_DEPTH(q) ((q) % (TK / 4) * 4)
#define A_ROW(q) ((q) / (TK / 4))
#define PUT_A PUT_ALONG_DEPTH
#define QUAD_OF_A(r, d) make_float4(AT_A(r, d), AT_A(r, (d) + 1), AT_A(r, (d) + 2), AT_A(r, (d) + 3))
#else
#define A_TAKEN 4
#if A_TURNED
#define A_DEPTH(q) ((q) % TK)
#define A_ROW(q) ((q) / TK * 4)
#else
#define A_DEPTH(q) ((q) / (TM / 4))
#define A_ROW(q) ((q) % (TM / 4) * 4)
#endif
#define PUT_A PUT_ALONG_ROWS
#define QUAD_OF_A(r, d) make_float4(AT_A(r, d), AT_A((r) + 1, d), AT_A((r) + 2, d), AT_A((r) + 3, d))
#endif
#if B_ALONG_DEPTH && !B_TURNED
#define B_TAKEN 1
#define B_DEPTH(q) ((q) % (TK / 4) * 4)
#define B_COLUMN(q) ((q) / (TK / 4))
#define PUT_B PUT_ALONG_DEPTH
#define QUAD_OF_B(d, c) make_float4(AT_B(d, c), AT_B((d) + 1, c), AT_B((d) + 2, c), AT_B((d) + 3, c))
#else
#define B_TAKEN 4
#if B_TURNED
#define B_DEPTH(q) ((q) % TK)
#define B_COLUMN(q) ((q) / TK * 4)
#else
#define B_DEPTH(q) ((q) / (TN / 4))
#define B_COLUMN(q) ((q) % (TN / 4) * 4)
#endif
#define PUT_B PUT_ALONG_ROWS
#define QUAD_OF_B(d, c) make_float4(AT_B(d, c), AT_B(d, (c) + 1), AT_B(d, (c) + 2), AT_B(d, (c) + 3))
#endif

#if VECTORS && !A_TURNED
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int r = min(top + A_ROW(q), m - A_TAKEN); \
    int d = (begin) + A_DEPTH(q); \
    LOAD_QUAD_IF(next_a[i], d < DEPTH, a, (a_first + r * a_row + d * a_depth) >> 2) \
  }
#else
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int d = (begin) + A_DEPTH(q); \
    next_a[i] = QUAD_OF_A(A_ROW(q), d); \
  }
#endif
#if VECTORS && !B_TURNED
#define FETCH_B(begin) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    int c = min(left + B_COLUMN(q), n - B_TAKEN); \
    int d = (begin) + B_DEPTH(q); \
    LOAD_QUAD_IF(next_b[i], d < DEPTH, b, (b_first + d * b_depth + c * b_column) >> 2) \
  }
#else
#define FETCH_B(begin) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    int d = (begin) + B_DEPTH(q); \
    next_b[i] = QUAD_OF_B(d, B_COLUMN(q)); \
  }
#endif
#define STAGE_A(stage) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    PUT_A(panel_a, STRIDE_A, stage, A_DEPTH(q), A_ROW(q), next_a[i]) \
  }
#define STAGE_B(stage) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    PUT_B(panel_b, STRIDE_B, stage, B_DEPTH(q), B_COLUMN(q), next_b[i]) \
  }

#if VECTORS
#define FINISH(i, j) { \
  int at = (base + (left + ITEM_COLUMN(j))) >> 2; \
  float4 value = alpha * sum[i][j]; \
  if (beta != 0.0f) value += beta * c[c_first / 4 + at]; \
  result[result_first / 4 + at] = value; \
}
#else
#define FINISH_ONE(column, value) \
  if ((column) < n) result[result_first + base + (column)] = \
      beta != 0.0f ? alpha * (value) + beta * c[c_first + base + (column)] : alpha * (value);
#define FINISH(i, j) { \
  int column = left + ITEM_COLUMN(j); \
  FINISH_ONE(column, sum[i][j].x) \
  FINISH_ONE(column + 1, sum[i][j].y) \
  FINISH_ONE(column + 2, sum[i][j].z) \
  FINISH_ONE(column + 3, sum[i][j].w) \
}
#endif

KERNEL {
  int item_x = ITEM_X;
  int item_y = ITEM_Y;
  int tiles_across = (n + TN - 1) / TN;
  int tiles_down = (m + TM - 1) / TM;
  int tiles = tiles_across * tiles_down;
  for (int tile = group_id_x; tile < tiles * PARTS * batch; tile += group_count_x) {
    int product = tile / tiles;
#if DIVIDED
    int matrix = product / parts;
    int first_depth = (product - matrix * parts) * part_depth;
    int depth = min(k - first_depth, part_depth);
#else
    int matrix = product;
#endif
    int top = tile % tiles / tiles_across * TM;
    int left = tile % tiles % tiles_across * TN;
    int a_first = matrix * a_batch;
    int b_first = matrix * b_batch;
#if DIVIDED
    a_first += first_depth * a_depth;
    b_first += first_depth * b_depth;
#endif
    int c_first = matrix * c_batch;
    int result_first = product * (m * n);
    float4 next_a[LOADS_A];
    float4 next_b[LOADS_B];
    float4 sum[RM][RN / 4];
    CLEAR_SUM
    MULTIPLY_PANELS(DEPTH)
    UNROLL for (int i = 0; i < RM; ++i) {
      int row = top + ITEM_ROW(i);
      int base = row * n;
      UNROLL for (int j = 0; j < RN / 4; ++j) {
        if (row < m && left + ITEM_COLUMN(j) < n) FINISH(i, j)
      }
    }
  }
}
)";

constexpr std::string_view sum_source = R"(#if VECTORS
#define VALUE float4
#else
#define VALUE float
#endif

KERNEL {
  for (int at = global_id_x; at < elements * batch; at += GROUP_X * group_count_x) {
    int matrix = at / elements;
    int place = at - matrix * elements;
    int first = matrix * parts * elements + place;
    VALUE sum = products[first];
    for (int part = 1; part < parts; ++part) sum += products[first + part * elements];
    sum = alpha * sum;
    if (beta != 0.0f) sum += beta * c[matrix * c_batch + place];
    result[at] = sum;
  }
}
)";
constexpr std::uint32_t sum_items = 64;

}  // namespace

std::string GemmVariant::name(std::string_view call) const {
  return fmt::format("{}_{}{}{}{}", call, tile.name(), vectors ? "_v4" : "", turned ? "_turned" : "",
                     split > 1 ? "_parts" : "");
}

namespace {

std::int64_t tiles_of(const GemmSize& size, const Tile& tile) {
  return quotient_up(size.m, tile.rows) * quotient_up(size.n, tile.columns) * size.batch;
}

/// As many as give a large GPU a group for each of its processors, as long as each has enough to add up.
int split_for(const GemmSize& size, const Tile& tile) {
  constexpr std::int64_t groups = 128;
  constexpr std::int64_t least_depth = 256;
  constexpr int most = 16;
  const std::int64_t tiles = tiles_of(size, tile);
  int split = 1;
  while (split < most && tiles * split < groups && size.k >= 2 * least_depth * split) split *= 2;
  return split;
}

std::uint32_t groups_at_once(const Tile& tile) {
  return tile.precision == Precision::f32 && tile.is_short_of_registers() ? 2 : 0;
}

GemmVariant variant_of(const Variant& numbers, Precision precision) {
  return {Tile::of(numbers, precision), numbers[6] != 0, numbers[7], numbers[8] != 0};
}

std::string tuned_name(std::string_view call, const GemmSize& size) {
  return fmt::format("{}_{}{}{}", call, size.transpose_a ? 't' : 'n', size.transpose_b ? 't' : 'n',
                     suffix_of(size.precision));
}

}  // namespace

GemmVariant gemm_variant(const DeviceInfo& device, const GemmSize& size) {
  GemmVariant variant{.tile = tile_for(device, size.m, size.n, size.batch, size.precision)};
  if (device.software) return variant;
  variant.vectors = size.takes_vectors();
  variant.split = split_for(size, variant.tile);
  variant.turned = size.takes_turned() && is_slow_to_scatter(device);
  return variant;
}

Tunable gemm_tunable(const DeviceInfo& device, std::string_view call, const GemmSize& size) {
  const GemmVariant initial = gemm_variant(device, size);
  Tunable tunable{.kernel = tuned_name(call, size),
                  .sizes = {{"m", size.m}, {"n", size.n}, {"k", size.k}, {"batch", size.batch}},
                  .parameters = Tile::tunable(),
                  .initial = initial.tile.numbers()};
  tunable.parameters.push_back({"v", {0, 1}});
  tunable.initial.push_back(initial.vectors ? 1 : 0);
  tunable.parameters.push_back({"split", {1, 2, 4, 8, 16}});
  tunable.initial.push_back(initial.split);
  tunable.parameters.push_back({"turned", {0, 1}});
  tunable.initial.push_back(initial.turned ? 1 : 0);
  tunable.fits = [limits = device.limits, size](const Variant& numbers) {
    const GemmVariant variant = variant_of(numbers, size.precision);
    // What has many tiles, or little to add up for each, gains nothing.
    const bool split = variant.split == 1 || (tiles_of(size, variant.tile) * variant.split <= 1024 &&
                                              size.k >= std::int64_t{64} * variant.split);
    return variant.tile.sound() && variant.tile.fits(limits) && (!variant.vectors || size.takes_vectors()) &&
           (!variant.turned || size.takes_turned()) && split;
  };
  const auto matrix = [&size](std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return stride == 0 ? Shape{rows, columns} : Shape{size.batch, rows, columns};
  };
  tunable.inputs = {size.transpose_a ? matrix(size.k, size.m, size.a_batch) : matrix(size.m, size.k, size.a_batch),
                    size.transpose_b ? matrix(size.n, size.k, size.b_batch) : matrix(size.k, size.n, size.b_batch)};
  const GemmOptions options{
      .transpose_a = size.transpose_a, .transpose_b = size.transpose_b, .precision = size.precision};
  tunable.call = [options, named = std::string(call)](const Variant& numbers, const std::vector<Tensor>& inputs) {
    const GemmVariant variant = variant_of(numbers, options.precision);
    return call_of(inputs, numbers,
                   [&](Runner on) { return gemm(on, inputs[0], inputs[1], options, &variant, named); });
  };
  return with_constants(std::move(tunable));
}

GemmVariant gemm_variant(Plan& plan, std::string_view call, const GemmSize& size) {
  const DeviceInfo& device = plan.device();
  if (!plan.tuned()) return gemm_variant(device, size);
  const std::array<std::int64_t, 4> sizes = {size.m, size.n, size.k, size.batch};
  return variant_of(plan.choose(tuned_name(call, size), sizes, [&] { return gemm_tunable(device, call, size); }),
                    size.precision);
}

Kernel gemm_kernel(std::string_view call, const GemmVariant& variant, bool transpose_a, bool transpose_b) {
  const bool turned_a = variant.turned && !transpose_a;
  const bool turned_b = variant.turned && transpose_b;
  const auto type = [&variant](bool turned) { return variant.vectors && !turned ? Type::f32x4 : Type::f32; };
  auto parameters = variant.tile.parameters();
  parameters["VECTORS"] = flag(variant.vectors);
  parameters["DIVIDED"] = flag(variant.split > 1);
  parameters["A_ALONG_DEPTH"] = flag(!transpose_a);
  parameters["B_ALONG_DEPTH"] = flag(transpose_b);
  parameters["A_TURNED"] = flag(turned_a);
  parameters["B_TURNED"] = flag(turned_b);
  return {.name = fmt::format("{}_{}{}", variant.name(call), transpose_a ? 't' : 'n', transpose_b ? 't' : 'n'),
          .buffers = {{"a", type(turned_a)},
                      {"b", type(turned_b)},
                      {"c", type(false)},
                      {"result", type(false), Access::write}},
          .scalars = {{"m"},
                      {"n"},
                      {"k"},
                      {"batch"},
                      {"parts"},
                      {"part_depth"},
                      {"a_row"},
                      {"a_depth"},
                      {"a_batch"},
                      {"b_depth"},
                      {"b_column"},
                      {"b_batch"},
                      {"c_batch"},
                      {"alpha", Type::f32},
                      {"beta", Type::f32}},
          .shared = variant.tile.shared(),
          .group_size = {variant.tile.items(), 1, 1},
          .min_groups = groups_at_once(variant.tile),
          .parameters = std::move(parameters),
          .source = std::string(native_source) + std::string(tile_source) + std::string(source)};
}

Kernel gemm_sum_kernel(bool vectors) {
  const Type type = vectors ? Type::f32x4 : Type::f32;
  return {.name = vectors ? "gemm_sum_v4" : "gemm_sum",
          .buffers = {{"products", type}, {"c", type}, {"result", type, Access::write}},
          .scalars = {{"elements"}, {"batch"}, {"parts"}, {"c_batch"}, {"alpha", Type::f32}, {"beta", Type::f32}},
          .group_size = {sum_items, 1, 1},
          .parameters = {{"VECTORS", flag(vectors)}},
          .source = std::string(sum_source)};
}

void add_gemm(Plan& plan, std::string_view call, const GemmVariant& variant, const GemmSize& size,
              const GemmMemory& memory, float alpha, float beta) {
  const Tile& tile = variant.tile;
  const std::int64_t parts = variant.split;
  // A multiple of four, for those that read so many at once.
  const std::int64_t part_depth =
      parts == 1 ? size.k : quotient_up(quotient_up(size.k, parts), tile.depth) * tile.depth;
  const std::int64_t elements = size.m * size.n;
  const bool divided = parts > 1;
  const Plan::Place product = divided ? plan.scratch(size.batch * parts * elements) : memory.result;
  const auto batch = static_cast<double>(size.batch);
  const auto of_result = static_cast<double>(elements);
  const double with_c = beta != 0 ? of_result : 0;
  plan.step(gemm_kernel(call, variant, size.transpose_a, size.transpose_b),
            groups_for(tiles_of(size, tile) * parts), {memory.a, memory.b, memory.c, product},
            {number(size.m), number(size.n), number(size.k), number(size.batch), number(parts), number(part_depth),
             number(size.transpose_a ? 1 : size.k), number(size.transpose_a ? size.m : 1), number(size.a_batch),
             number(size.transpose_b ? 1 : size.n), number(size.transpose_b ? size.k : 1), number(size.b_batch),
             number(size.c_batch), divided ? 1.0F : alpha, divided ? 0.0F : beta},
            {.flops = 2 * batch * of_result * static_cast<double>(size.k),
             .bytes = 4 * batch *
                      (static_cast<double>(size.m * size.k + size.k * size.n) +
                       (divided ? static_cast<double>(parts) * of_result : of_result + with_c))});
  if (!divided) return;
  const bool vectors = variant.vectors;
  const int width = vectors ? 4 : 1;
  plan.step(
      gemm_sum_kernel(vectors), groups_for(quotient_up(size.batch * elements / width, sum_items)),
      {product, memory.c, memory.result},
      {number(elements / width), number(size.batch), number(parts), number(size.c_batch / width), alpha, beta},
      {.flops = batch * of_result * static_cast<double>(parts),
       .bytes = 4 * batch * (static_cast<double>(parts + 1) * of_result + with_c)});
}

Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options,
                    const GemmVariant* variant, std::string_view call) {
  std::vector<std::pair<const char*, const Tensor*>> tensors = {{"a", &a}, {"b", &b}};
  if (options.c) {
    tensors.emplace_back("c", &*options.c);
  } else if (options.beta != 0) {
    return unfit("gemm: beta is {} and there is no c", options.beta);
  }
  auto plan = Plan::of("gemm", on, tensors);
  if (!plan) return std::move(plan).error();
  auto size = gemm_size(a, b, options);
  if (!size) return size.error();
  size->precision = precision_on(plan->device(), options.precision);
  const bool batched =
      a.shape().size() == 3 || b.shape().size() == 3 || (options.c && options.c->shape().size() == 3);
  GemmMemory memory{.a = plan->read(a), .b = plan->read(b)};
  memory.c = options.c && options.beta != 0 ? plan->read(*options.c) : memory.a;
  if (options.beta != 0) plan->do_not_tell();
  memory.result =
      plan->write(batched ? Shape{size->batch, size->m, size->n} : Shape{size->m, size->n}, options.output);
  add_gemm(*plan, call, variant != nullptr ? *variant : gemm_variant(*plan, call, *size), *size, memory,
           options.alpha, options.beta);
  return std::move(*plan).finish();
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options) {
  return kernels::gemm(on, a, b, options, nullptr);
}

}  // namespace kiln
