#include <iostream>
#include <string>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

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
  const auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu, {.disk = false});
  const kiln::Request request(
      {.name = "nothing", .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n"});
  const kiln::Program program = cache.get(request).value();
  std::cout << program.name() << " on " << gpu->identity().device << ": " << cache.stats().to_line() << ", one of "
            << devices.size() << "\n";
}
