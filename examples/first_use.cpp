// Doubles four numbers on the best device here, whatever its API. Run it twice: the second process finds the
// program on disk.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>

int main() try {
  const kiln::Kernel twice = {.name = "twice",
                              .buffers = {{"data", kiln::Type::f32, kiln::Access::read_write}},
                              .group_size = {4, 1, 1},
                              .source = "KERNEL { data[global_id_x] *= 2.0f; }"};
  auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu);
  kiln::Program program = cache.get(twice.request(*gpu).value()).value();

  auto buffer = kiln::upload(*gpu, std::vector<float>{1, 2, 3, 4}).value();
  gpu->launch(program.module(), twice.launch({1, 1, 1}, {buffer.get()}, {}).value()).value();
  const std::vector<float> doubled = kiln::download<float>(*gpu, *buffer).value();
  for (float value : doubled) std::cout << value << ' ';
  std::cout << "on " << gpu->info().name << " by a program from: " << kiln::to_string(program.origin()) << '\n';

  cache.flush();
  std::cout << cache.stats().to_line() << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
