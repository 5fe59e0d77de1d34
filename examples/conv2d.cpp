// Finds the edges of a picture on the best device here: a convolution of the library's, compiled once and kept.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>

int main() try {
  const auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu);

  // A bright square in the dark: one picture, one channel, 12 x 24 pixels.
  std::vector<float> picture(12 * 24);
  for (std::size_t row = 3; row < 9; ++row)
    for (std::size_t column = 6; column < 18; ++column) picture[row * 24 + column] = 1;
  const auto x = kiln::Tensor::from(gpu, {1, 1, 12, 24}, picture).value();
  const std::vector<float> laplace = {0, 1, 0, 1, -4, 1, 0, 1, 0};
  const auto filter = kiln::Tensor::from(gpu, {1, 1, 3, 3}, laplace).value();

  const kiln::Tensor edges = kiln::conv2d(cache, x, filter, {.padding = {1, 1}}).value();
  const std::vector<float> values = edges.read().value();
  for (std::size_t row = 0; row < 12; ++row) {
    for (std::size_t column = 0; column < 24; ++column) {
      const float value = values[row * 24 + column];
      std::cout << (value < 0 ? '#' : value > 0 ? '+' : '.');
    }
    std::cout << '\n';
  }
  std::cout << "on " << gpu->info().name << ": " << cache.stats().to_line() << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
