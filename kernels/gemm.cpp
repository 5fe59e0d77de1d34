#include "kernels/gemm.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "kernels/tuned.hpp"

namespace kiln::kernels {
namespace {

/// The largest depth that is summed sequentially. With more, each addend is too small relative to the sum, and
/// Mesa's CPU drivers end the loop.
constexpr std::int64_t most_depth = 65536;

std::int64_t tiles_of(const GemmSize& size, const Tile& tile) {
  return quotient_up(size.m, tile.rows) * quotient_up(size.n, tile.columns) * size.batch;
}

/// With this many tiles a large GPU is busy enough: adding partial sums would take longer than splitting saves.
constexpr std::int64_t enough_tiles = 256;

/// Enough parts to keep a large GPU busy, as long as each has enough depth.
int split_for(const GemmSize& size, const Tile& tile) {
  constexpr std::int64_t least_depth = 256;
  constexpr int most = 64;
  const std::int64_t tiles = tiles_of(size, tile);
  int split = 1;
  if (tiles >= enough_tiles) return split;
  while (split < most && 2 * split * tiles * tile.items() <= items_of_a_busy_gpu &&
         size.k >= 2 * least_depth * split)
    split *= 2;
  return split;
}

/// If there are few tiles the depth is divided, so the smallest tile is not needed.
Tile tile_of(const DeviceInfo& device, const GemmSize& size) {
  constexpr Tile medium = {.rows = 64, .columns = 64, .depth = 16, .item_rows = 8, .item_columns = 4};
  constexpr Tile small = {.rows = 32, .columns = 32, .depth = 16, .item_rows = 4, .item_columns = 4};
  const Tile tile = tile_for(device, size.m, size.n, size.batch, size.precision);
  if (device.software || size.precision != Precision::f32 || tile.rows > medium.rows ||
      tile.columns > medium.columns)
    return tile;
  const bool is_medium = medium.fits(device.limits) && 2 * size.m > medium.rows && 2 * size.n > medium.columns &&
                         tiles_of(size, medium) * split_for(size, medium) >= enough_tiles;
  return (is_medium ? medium : small).on(device);
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
  GemmVariant variant{.tile = tile_of(device, size)};
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
  tunable.parameters.push_back({"split", {1, 2, 4, 8, 16, 32, 64}});
  tunable.initial.push_back(initial.split);
  tunable.parameters.push_back({"turned", {0, 1}});
  tunable.initial.push_back(initial.turned ? 1 : 0);
  tunable.fits = [limits = device.limits, size](const Variant& numbers) {
    const GemmVariant variant = variant_of(numbers, size.precision);
    // Splitting gains nothing if there are many tiles, or little depth.
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

void add_gemm(Plan& plan, std::string_view call, const GemmVariant& chosen, const GemmSize& size,
              const GemmMemory& memory, float alpha, float beta) {
  if (size.batch == 0 || size.m == 0 || size.n == 0) return;
  GemmVariant variant = chosen;
  const Tile& tile = variant.tile;
  std::int64_t least_parts = quotient_up(size.k, most_depth);
  // Half of the limit, as a safety margin.
  if (ends_long_loops(plan.device()))
    least_parts = std::max(least_parts, quotient_up(tile.loop_steps(size.k), most_loop_steps / 2));
  variant.split = std::max(variant.split, static_cast<int>(least_parts));
  const std::int64_t parts = variant.split;
  // A multiple of four, for variants that read four elements at a time.
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
                       (divided ? static_cast<double>(parts) * of_result : of_result + with_c)),
             .loop_steps = pieces_each(tiles_of(size, tile) * parts) * tile.loop_steps(part_depth)});
  if (!divided) return;
  const bool vectors = variant.vectors;
  const int width = vectors ? 4 : 1;
  const Kernel sum = gemm_sum_kernel(vectors);
  const std::int64_t pieces = quotient_up(size.batch * elements / width, sum.group_size[0]);
  plan.step(
      sum, groups_for(pieces), {product, memory.c, memory.result},
      {number(elements / width), number(size.batch), number(parts), number(size.c_batch / width), alpha, beta},
      {.flops = batch * of_result * static_cast<double>(parts),
       .bytes = 4 * batch * (static_cast<double>(parts + 1) * of_result + with_c),
       .loop_steps = pieces_each(pieces) * (parts + 1)});
}

Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options,
                    const GemmVariant* variant, std::string_view call) {
  std::vector<std::pair<const char*, const Tensor*>> tensors = {{"a", &a}, {"b", &b}};
  if (options.c) {
    tensors.emplace_back("c", &*options.c);
  } else if (options.beta != 0) {
    return unfit("gemm: beta is {}, but there is no c", options.beta);
  }
  auto plan = KILN_TRY(Plan::of("gemm", on, tensors));
  auto size = KILN_TRY(gemm_size(a, b, options));
  size.precision = precision_on(plan.device(), options.precision);
  const bool batched =
      a.shape().size() == 3 || b.shape().size() == 3 || (options.c && options.c->shape().size() == 3);
  GemmMemory memory{.a = plan.read(a), .b = plan.read(b)};
  memory.c = options.c && options.beta != 0 ? plan.read(*options.c) : memory.a;
  if (options.beta != 0) plan.do_not_tell();
  memory.result = plan.write(batched ? Shape{size.batch, size.m, size.n} : Shape{size.m, size.n}, options.output);
  add_gemm(plan, call, variant != nullptr ? *variant : gemm_variant(plan, call, size), size, memory, options.alpha,
           options.beta);
  return std::move(plan).finish();
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> gemm(Runner on, const Tensor& a, const Tensor& b, const GemmOptions& options) {
  return kernels::gemm(on, a, b, options, nullptr);
}

}  // namespace kiln
