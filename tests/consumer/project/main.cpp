// Compiles and runs one kernel on the first device of each API that works here.
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>
#include <kiln/kernel.hpp>

namespace {

bool runs_on(const std::string& api) {
  const auto gpu = kiln::open_device(api).value();
  kiln::Cache cache(gpu, {.disk = false});
  const kiln::Kernel twice = {.name = "twice",
                              .buffers = {{"data", kiln::Type::f32, kiln::Access::read_write}},
                              .source = "KERNEL { data[global_id_x] *= 2.0f; }"};
  const kiln::Program program = cache.get(twice.request(*gpu).value()).value();
  const auto buffer = kiln::upload(*gpu, std::vector<float>(64, 21.0F)).value();
  gpu->launch(program.module(), twice.launch({1, 1, 1}, {buffer.get()}, {}).value()).value();
  const bool right = kiln::download<float>(*gpu, *buffer).value()[63] == 42.0F;
  std::cout << program.name() << " on " << gpu->identity().device << " by " << api << ": "
            << cache.stats().to_line() << (right ? "\n" : ", with a wrong result\n");
  return right;
}

}  // namespace

int main() {
  std::string messages;
  const kiln::Log log(kiln::LogLevel::debug,
                      [&](const kiln::LogRecord& record) { messages += record.message + "\n"; });
  const auto devices = kiln::list_devices(log);
  if (messages.find("kiln-helper") == std::string::npos ||
      messages.find("into this process") != std::string::npos) {
    std::cerr << "the installed kiln-helper is not used: " << messages;
    return 1;
  }
  std::set<std::string> apis;
  for (const auto& device : devices) {
    if (device.problem.empty()) apis.insert(device.identity.api);
    std::cout << device.name << ": " << (device.problem.empty() ? "works" : device.problem) << "\n";
  }
  // The packages that the tests install provide these on the CPU.
  for (const char* api : {"opengl", "opencl", "vulkan"})
    if (!apis.contains(api)) return 1;
  bool right = true;
  for (const std::string& api : apis) right = runs_on(api) && right;
  return right ? 0 : 1;
}
