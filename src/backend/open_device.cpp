#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "backend/opengl/device.hpp"

namespace kiln {

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Log& log) {
  if (name.empty())
    if (const char* wanted = std::getenv("KILN_DEVICE"); wanted != nullptr) name = wanted;
  const std::string_view api = name.substr(0, name.find(':'));
  std::size_t number = 0;
  if (api.size() < name.size()) {
    const std::string_view digits = name.substr(api.size() + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size())
      return Error(ErrorCode::no_device,
                   fmt::format("\"{}\" names no device; write it as opengl or opengl:0", name));
  }
  if (api.empty() || api == "opengl") {
    const bool any = api.size() == name.size();
    auto device = opengl::open_gl_device(number, log);
    // Asked for any, the first that works will do.
    for (const DeviceInfo& info : any && !device ? opengl::list_gl_devices(log) : std::vector<DeviceInfo>{})
      if (info.problem.empty()) return open_device(info.name, log);
    return device;
  }
  return Error(ErrorCode::no_device, fmt::format("\"{}\" names no device; the APIs known are: opengl", name));
}

std::vector<DeviceInfo> list_devices(const Log& log) { return opengl::list_gl_devices(log); }

}  // namespace kiln
