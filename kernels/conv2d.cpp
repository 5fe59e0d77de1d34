#include "kernels/conv2d.hpp"

#include "base/try.hpp"
#include "kernels/plan.hpp"
#include "kernels/tuned.hpp"
#include "kernels/winograd.hpp"

namespace kiln::kernels {
namespace {

/// Whether a variant with vectors can be used.
bool takes_vectors(const Conv2dSize& size) {
  return size.taps() % 4 == 0 && size.out_height * size.out_width % 4 == 0;
}

/// Whether Winograd's algorithm saves more time than its transforms take.
bool worth_winograd(const Conv2dSize& size) {
  return size.channels >= 64 && size.filters >= 64 && winograd_slices(size).tiles >= 128;
}

std::int64_t tiles_of(const Conv2dSize& size, std::int64_t groups, const Tile& tile) {
  return quotient_up(size.filters / groups, tile.rows) * quotient_up(size.pixels(), tile.columns) * groups;
}

Conv2dVariant variant_for(const DeviceInfo& device, const Conv2dSize& size, const Conv2dOptions& options) {
  Conv2dVariant variant{.tile = Tile{}.on(device)};
  // These square filters are common enough for their own programs, in which divisors are constants.
  if (size.filter_height == size.filter_width &&
      (size.filter_height == 1 || size.filter_height == 3 || size.filter_height == 5))
    variant.filter_height = variant.filter_width = static_cast<int>(size.filter_height);
  variant.rows_of_quads = size.out_width % 4 == 0;
  if (device.software) return variant;
  variant.turned = is_slow_to_scatter(device);
  if (const Precision precision = precision_on(device, options.precision); precision != Precision::f32) {
    variant.vectors = takes_vectors(size);
    variant.tile = tile_for(device, size.filters / options.groups, size.pixels(), options.groups, precision);
    return variant;
  }
  if (takes_winograd(size, options) && worth_winograd(size)) {
    variant.winograd = variant.vectors = true;
    variant.tile = tile_for(device, size.filters, winograd_slices(size).columns, winograd_products);
    return variant;
  }
  variant.vectors = takes_vectors(size);
  // On Vulkan, only storing pixels one by one is slow; it splits quads of filters well.
  variant.turned = variant.turned || device.language == Language::vulkan_glsl;
  const std::int64_t groups = options.groups;
  const std::int64_t filters = size.filters / groups;
  constexpr Tile large = {.rows = 64, .columns = 128, .depth = 8, .item_rows = 8, .item_columns = 8};
  constexpr Tile medium = {.rows = 64, .columns = 64, .depth = 16, .item_rows = 4, .item_columns = 4};
  if (filters > 32 && tiles_of(size, groups, large) >= 200 && large.fits(device.limits))
    variant.tile = large.on(device);
  else if (filters > 32 && tiles_of(size, groups, medium) >= 64 && medium.fits(device.limits))
    variant.tile = medium.on(device);
  return variant;
}

/// The variant with a tuner's values, for filters as in `like`.
Conv2dVariant variant_of(const Variant& numbers, Conv2dVariant like) {
  like.tile = Tile::of(numbers, like.tile.precision);
  like.vectors = numbers[6] != 0;
  like.winograd = numbers[7] != 0;
  like.turned = numbers[8] != 0;
  return like;
}

std::int64_t loop_steps(const Conv2dSize& size, std::int64_t groups, const Tile& tile) {
  const std::int64_t quads = tile.item_columns / 4;
  return pieces_each(tiles_of(size, groups, tile)) * (tile.loop_steps(size.taps()) + 5 * quads);
}

std::string tuned_name(const Conv2dSize& size, const Conv2dOptions& options, Precision precision) {
  return fmt::format("conv2d_{}x{}_s{}x{}_p{}x{}_d{}x{}{}{}", size.filter_height, size.filter_width,
                     options.stride[0], options.stride[1], options.padding[0], options.padding[1],
                     options.dilation[0], options.dilation[1], takes_winograd(size, options) ? "_winograd" : "",
                     suffix_of(precision));
}

Tunable tunable_of(const DeviceInfo& device, const Shape& x, const Shape& w, const Conv2dSize& size,
                   const Conv2dOptions& options) {
  const Conv2dVariant initial = variant_for(device, size, options);
  Tunable tunable{.kernel = tuned_name(size, options, initial.tile.precision),
                  .sizes = {{"n", size.images},
                            {"c", size.channels},
                            {"h", size.height},
                            {"w", size.width},
                            {"k", size.filters},
                            {"groups", options.groups}},
                  .parameters = Tile::tunable(),
                  .initial = initial.tile.numbers(),
                  .inputs = {x, w}};
  tunable.parameters.push_back({"v", {0, 1}});
  tunable.initial.push_back(initial.vectors ? 1 : 0);
  tunable.parameters.push_back(
      {"winograd", takes_winograd(size, options) ? std::vector<int>{0, 1} : std::vector<int>{0}});
  tunable.initial.push_back(initial.winograd ? 1 : 0);
  tunable.parameters.push_back({"turned", {0, 1}});
  tunable.initial.push_back(initial.turned ? 1 : 0);
  tunable.fits = [device, size, groups = options.groups, vectors = takes_vectors(size),
                  initial](const Variant& numbers) {
    const Conv2dVariant variant = variant_of(numbers, initial);
    const Tile& tile = variant.tile;
    if (!tile.sound() || !tile.fits(device.limits)) return false;
    if (variant.winograd) return tile.precision == Precision::f32;
    if (!goes_through(device, loop_steps(size, groups, tile))) return false;
    if (variant.vectors && !vectors) return false;
    // A work item loads one column of the panel or part of it. A turned variant loads four columns, which every
    // sound tile allows.
    const int items = static_cast<int>(tile.items());
    return variant.turned || (items % tile.columns == 0 && tile.depth % (items / tile.columns) == 0);
  };
  const Conv2dOptions plain{.stride = options.stride,
                            .padding = options.padding,
                            .dilation = options.dilation,
                            .groups = options.groups,
                            .allow_winograd = options.allow_winograd,
                            .precision = options.precision};
  tunable.call = [plain, initial](const Variant& numbers, const std::vector<Tensor>& inputs) {
    const Conv2dVariant variant = variant_of(numbers, initial);
    return call_of(inputs, numbers, [&](Runner on) { return conv2d(on, inputs[0], inputs[1], plain, &variant); });
  };
  return with_constants(std::move(tunable));
}

/// The variant that the plan's tuner chooses, or the default if it has none.
Conv2dVariant choose(Plan& plan, const Tensor& x, const Tensor& w, const Conv2dSize& size,
                     const Conv2dOptions& options) {
  const DeviceInfo& device = plan.device();
  const Conv2dVariant initial = variant_for(device, size, options);
  if (!plan.tuned()) return initial;
  const std::array<std::int64_t, 6> sizes = {size.images, size.channels, size.height,
                                             size.width,  size.filters,  options.groups};
  return variant_of(plan.choose(tuned_name(size, options, initial.tile.precision), sizes,
                                [&] { return tunable_of(device, x.shape(), w.shape(), size, options); }),
                    initial);
}

}  // namespace

Result<Tunable> conv2d_tunable(const DeviceInfo& device, const Shape& x, const Shape& w,
                               const Conv2dOptions& options) {
  const auto size = KILN_TRY(conv2d_size(x, w, options));
  return tunable_of(device, x, w, size, options);
}

Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                      const Conv2dVariant* given) {
  std::vector<std::pair<const char*, const Tensor*>> tensors = {{"x", &x}, {"w", &w}};
  if (options.bias) tensors.emplace_back("bias", &*options.bias);
  auto plan = KILN_TRY(Plan::of("conv2d", on, tensors));
  const auto size = KILN_TRY(conv2d_size(x.shape(), w.shape(), options));
  if (size.pixels() > Tensor::max_count)
    return Error(ErrorCode::unsupported, fmt::format("conv2d: the output has {} pixels, more than the limit of {}",
                                                     size.pixels(), Tensor::max_count));
  const Conv2dVariant variant = given != nullptr ? *given : choose(plan, x, w, size, options);
  if (variant.winograd && !takes_winograd(size, options))
    return Error(
        ErrorCode::unsupported,
        "conv2d: Winograd's algorithm needs filters of 3 x 3, stride 1, dilation 1, one group and options that "
        "allow it");
  const auto x_place = plan.read(x);
  const auto w_place = plan.read(w);
  const auto bias = options.bias ? plan.read(*options.bias) : w_place;
  const auto result = plan.write({size.images, size.filters, size.out_height, size.out_width}, options.output);
  if (variant.winograd) {
    add_winograd(plan, {.tile = variant.tile, .vectors = variant.vectors, .turned = variant.turned}, size, options,
                 {.x = x_place, .w = w_place, .bias = bias, .result = result});
    return std::move(plan).finish();
  }
  const std::int64_t m = size.filters / options.groups;
  const double outputs = static_cast<double>(size.pixels()) * static_cast<double>(size.filters);
  plan.step(
      conv2d_kernel(variant), groups_for(tiles_of(size, options.groups, variant.tile)),
      {x_place, w_place, bias, result},
      {number(m), number(size.taps()), number(size.pixels()), number(size.out_height * size.out_width),
       number(size.out_width), number(size.channels), number(size.height), number(size.width),
       number(size.filter_height), number(size.filter_width), number(options.stride[0]), number(options.stride[1]),
       number(options.padding[0]), number(options.padding[1]), number(options.dilation[0]),
       number(options.dilation[1]), number(options.groups), number(options.bias ? 1 : 0)},
      {.flops = 2 * outputs * static_cast<double>(size.taps()),
       .bytes = 4 * (outputs + static_cast<double>(x.count() + w.count())),
       .loop_steps = loop_steps(size, options.groups, variant.tile)});
  return std::move(plan).finish();
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  return kernels::conv2d(on, x, w, options, nullptr);
}

}  // namespace kiln
