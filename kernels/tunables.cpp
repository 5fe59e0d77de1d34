#include <algorithm>
#include <cstdio>

#include "kernels/conv2d.hpp"
#include "kernels/flash_attention.hpp"
#include "kernels/gemm.hpp"
#include "kernels/rows.hpp"

namespace kiln {
namespace {

using kernels::GemmSize;
using kernels::unfit;

/// The error for a wrong number of extents.
Error needs(std::string_view kernel, std::string_view extents, const Shape& given) {
  return unfit("{} takes {}, but was given {}", kernel, extents, to_string(given));
}

/// The precision in a kernel's name, which is its suffix.
Precision precision_of(std::string_view kernel) {
  for (const Precision precision : {Precision::tf32, Precision::f16})
    if (kernel.ends_with(kernels::suffix_of(precision))) return precision;
  return Precision::f32;
}

Result<Tunable> gemm_tunable(const DeviceInfo& device, std::string_view kernel, const Shape& extents) {
  if (extents.size() != 3 && extents.size() != 4) return needs(kernel, "M N K, or M N K and a batch", extents);
  GemmSize size{.batch = extents.size() == 4 ? extents[3] : 1, .m = extents[0], .n = extents[1], .k = extents[2]};
  size.precision = kernels::precision_on(device, precision_of(kernel));
  kernel.remove_suffix(kernels::suffix_of(precision_of(kernel)).size());
  if (kernel.size() > 4) {
    size.transpose_a = kernel[5] == 't';
    size.transpose_b = kernel[6] == 't';
  }
  if (size.batch > 1) {
    size.a_batch = size.m * size.k;
    size.b_batch = size.k * size.n;
  }
  return kernels::gemm_tunable(device, "gemm", size);
}

/// The sizes of a record with these names, in this order; nothing if it has other sizes.
std::optional<Shape> sizes_of(const TuneRecord& record, std::initializer_list<std::string_view> names) {
  Shape sizes;
  for (const std::string_view name : names) {
    const auto found = std::ranges::find(record.sizes, name, &TuneSize::name);
    if (found == record.sizes.end() || found->value < 1) return std::nullopt;
    sizes.push_back(found->value);
  }
  return sizes.size() == record.sizes.size() ? std::optional(sizes) : std::nullopt;
}

Result<Tunable> conv2d_of(const DeviceInfo& device, const TuneRecord& record, const Shape& s) {
  int r = 0;
  int q = 0;
  Conv2dOptions o{.groups = static_cast<int>(s[5]),
                  .allow_winograd = record.kernel.find("_winograd") != std::string::npos,
                  .precision = precision_of(record.kernel)};
  if (std::sscanf(record.kernel.c_str(), "conv2d_%dx%d_s%dx%d_p%dx%d_d%dx%d", &r, &q, &o.stride[0], &o.stride[1],
                  &o.padding[0], &o.padding[1], &o.dilation[0], &o.dilation[1]) != 8)
    return unfit("{} is not a convolution", record.kernel);
  return kernels::conv2d_tunable(device, {s[0], s[1] * s[5], s[2], s[3]}, {s[4], s[1], r, q}, o);
}

}  // namespace

Result<Tunable> tunable(const Device& device, std::string_view kernel, const Shape& e) {
  const DeviceInfo& info = device.info();
  if (std::any_of(e.begin(), e.end(), [](std::int64_t extent) { return extent < 1; }))
    return unfit("{}: {} has an extent less than 1", kernel, to_string(e));
  const std::string_view plain = kernel.substr(0, kernel.size() - kernels::suffix_of(precision_of(kernel)).size());
  if (plain == "gemm" || plain == "gemm_nn" || plain == "gemm_nt" || plain == "gemm_tn" || plain == "gemm_tt")
    return gemm_tunable(info, kernel, e);
  if (kernel == "weighted_matmul") {
    if (e.size() != 5) return needs(kernel, "B H Q K D", e);
    const GemmSize size{
        .batch = e[0] * e[1], .m = e[2], .n = e[4], .k = e[3], .a_batch = e[2] * e[3], .b_batch = e[3] * e[4]};
    return kernels::gemm_tunable(info, kernel, size);
  }
  if (kernel == "conv2d" || kernel == "conv2d_winograd") {
    if (e.size() != 7) return needs(kernel, "N C H W K R S", e);
    return kernels::conv2d_tunable(info, {e[0], e[1], e[2], e[3]}, {e[4], e[1], e[5], e[6]},
                                   {.padding = {static_cast<int>(e[5] / 2), static_cast<int>(e[6] / 2)},
                                    .allow_winograd = kernel == "conv2d_winograd"});
  }
  if (kernel == "softmax") {
    if (e.size() != 2) return needs(kernel, "rows and their width", e);
    return kernels::softmax_tunable(info, e);
  }
  if (kernel == "flash_attention" || kernel == "flash_attention_causal") {
    if (e.size() != 4 && e.size() != 5) return needs(kernel, "B H Q D, or B H Q K D", e);
    const std::int64_t keys = e.size() == 5 ? e[3] : e[2];
    if (e.back() > 256) return unfit("{}: the head dimension is {}; the limit is 256", kernel, e.back());
    return kernels::flash_attention_tunable(info, {e[0], e[1], e[2], e.back()}, {e[0], e[1], keys, e.back()},
                                            {.causal = kernel == "flash_attention_causal"});
  }
  return unfit(
      "there is no kernel {} to tune; the kernels are gemm, gemm_nt, gemm_tn, gemm_tt, weighted_matmul, conv2d, "
      "conv2d_winograd, softmax, flash_attention and flash_attention_causal",
      kernel);
}

Result<Tunable> tunable(const Device& device, const TuneRecord& record) {
  const std::string& kernel = record.kernel;
  if (kernel.starts_with("gemm_"))
    if (const auto s = sizes_of(record, {"m", "n", "k", "batch"})) return tunable(device, kernel, *s);
  if (kernel == "weighted_matmul_nn")
    if (const auto s = sizes_of(record, {"m", "n", "k", "batch"}))
      return tunable(device, "weighted_matmul", {1, (*s)[3], (*s)[0], (*s)[2], (*s)[1]});
  if (kernel.starts_with("conv2d_"))
    if (const auto s = sizes_of(record, {"n", "c", "h", "w", "k", "groups"}))
      return conv2d_of(device.info(), record, *s);
  if (kernel == "softmax")
    if (const auto s = sizes_of(record, {"rows", "width"})) return tunable(device, kernel, *s);
  if (kernel == "flash_attention" || kernel == "flash_attention_causal")
    if (const auto s = sizes_of(record, {"heads", "queries", "keys", "d"}))
      return tunable(device, kernel, {1, (*s)[0], (*s)[1], (*s)[2], (*s)[3]});
  return unfit("{} is not a kernel of this version of the library", kernel);
}

}  // namespace kiln
