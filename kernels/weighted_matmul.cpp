#include "base/try.hpp"
#include "kernels/gemm.hpp"

namespace kiln {

Result<Tensor> weighted_matmul(Runner on, const Tensor& weights, const Tensor& values,
                               const WeightedMatmulOptions& options) {
  using kernels::unfit;
  auto plan = KILN_TRY(kernels::Plan::of("weighted_matmul", on, {{"weights", &weights}, {"values", &values}}));
  for (const auto& [name, tensor] : {std::pair("weights", &weights), std::pair("values", &values)})
    if (tensor->shape().size() != 4)
      return unfit("weighted_matmul: {} has {} dimensions; it must have 4", name, tensor->shape().size());
  const Shape& w = weights.shape();
  const Shape& v = values.shape();
  for (const auto& [what, of_values, of_weights] :
       {std::tuple("batches", 0U, 0U), std::tuple("heads", 1U, 1U), std::tuple("keys", 2U, 3U)})
    if (v[of_values] != w[of_weights])
      return unfit(
          "weighted_matmul: values has {} {} (dimension {}), but weights has {} (dimension {}); they must be "
          "equal",
          v[of_values], what, of_values, w[of_weights], of_weights);
  const kernels::GemmSize size{
      .batch = w[0] * w[1], .m = w[2], .n = v[3], .k = w[3], .a_batch = w[2] * w[3], .b_batch = v[2] * v[3]};
  kernels::GemmMemory memory{.a = plan.read(weights), .b = plan.read(values)};
  memory.c = memory.a;
  memory.result = plan.write({w[0], w[1], w[2], v[3]}, options.output);
  kernels::add_gemm(plan, "weighted_matmul", kernels::gemm_variant(plan, "weighted_matmul", size), size, memory, 1,
                    0);
  return std::move(plan).finish();
}

}  // namespace kiln
