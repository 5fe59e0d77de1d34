// A program that uses the kernels that come with Kiln.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>

int main() {
  const auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu, {.disk = false});
  const std::vector<float> numbers = {1, 2, 3, 4};
  const auto a = kiln::Tensor::from(gpu, {2, 2}, numbers).value();
  const auto product = kiln::gemm(cache, a, a).value();
  const auto result = product.read().value();
  std::cout << result[0] << " on " << gpu->identity().device << "\n";
  return result == std::vector<float>{7, 10, 15, 22} ? 0 : 1;
}
