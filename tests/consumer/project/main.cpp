#include <iostream>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

int main() {
  const auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu, {.disk = false});
  const kiln::Request request(
      {.name = "nothing", .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n"});
  const kiln::Program program = cache.get(request).value();
  std::cout << program.name() << " on " << gpu->identity().device << ": " << cache.stats().to_line() << "\n";
}
