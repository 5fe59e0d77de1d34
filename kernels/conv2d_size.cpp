#include "base/try.hpp"
#include "kernels/conv2d.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {
namespace {

Result<std::int64_t> out_extent(const char* what, std::size_t dimension, std::int64_t in, std::int64_t filter,
                                const Conv2dOptions& options) {
  const std::size_t i = dimension - 2;
  const std::int64_t padded = in + 2 * std::int64_t{options.padding[i]};
  const std::int64_t span = options.dilation[i] * (filter - 1) + 1;
  if (filter == 0) return unfit("conv2d: w has filters of 0 {} (dimension {})", what, dimension);
  if (span > padded)
    return unfit("conv2d: w spans {} {} (dimension {}), but x has only {} with its padding", span, what, dimension,
                 padded);
  return (padded - span) / options.stride[i] + 1;
}

}  // namespace

Result<Conv2dSize> conv2d_size(const Shape& x, const Shape& w, const Conv2dOptions& options) {
  for (const auto& [name, shape] : {std::pair("x", &x), std::pair("w", &w)})
    if (shape->size() != 4) return unfit("conv2d: {} has {} dimensions; it must have 4", name, shape->size());
  for (std::size_t i = 0; i < 2; ++i) {
    const char* which = i == 0 ? "height" : "width";
    if (options.stride[i] < 1)
      return unfit("conv2d: a stride of {} in {}; it must be 1 or more", options.stride[i], which);
    if (options.dilation[i] < 1)
      return unfit("conv2d: a dilation of {} in {}; it must be 1 or more", options.dilation[i], which);
    if (options.padding[i] < 0)
      return unfit("conv2d: a padding of {} in {}; it must be 0 or more", options.padding[i], which);
  }
  if (options.groups < 1) return unfit("conv2d: groups is {}; it must be 1 or more", options.groups);
  const std::int64_t groups = options.groups;
  if (x[1] % groups != 0)
    return unfit("conv2d: x has {} channels (dimension 1), which is not a multiple of groups, {}", x[1], groups);
  if (w[0] % groups != 0)
    return unfit("conv2d: w has {} filters (dimension 0), which is not a multiple of groups, {}", w[0], groups);
  if (w[1] != x[1] / groups)
    return unfit("conv2d: w has {} input channels (dimension 1); x has {} and groups is {}, so it must have {}",
                 w[1], x[1], groups, x[1] / groups);
  if (options.bias && options.bias->shape() != Shape{w[0]})
    return unfit("conv2d: bias has shape {}; w has {} filters (dimension 0), so it must be [{}]",
                 to_string(options.bias->shape()), w[0], w[0]);
  const auto height = KILN_TRY(out_extent("rows", 2, x[2], w[2], options));
  const auto width = KILN_TRY(out_extent("columns", 3, x[3], w[3], options));
  return Conv2dSize{.images = x[0],
                    .channels = w[1],
                    .height = x[2],
                    .width = x[3],
                    .filters = w[0],
                    .filter_height = w[2],
                    .filter_width = w[3],
                    .out_height = height,
                    .out_width = width};
}

}  // namespace kiln::kernels
