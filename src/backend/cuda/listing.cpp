#include <fmt/format.h>

#include "backend/cuda/device.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

std::string numbered(const Platform& platform, std::size_t number) {
  return fmt::format("{}:{}", platform.api, number);
}

DeviceInfo unusable(const Platform& platform, std::string name, const Error& error) {
  return {.name = std::move(name),
          .identity = {.api = std::string(platform.api)},
          .language = platform.language,
          .problem = error.message()};
}

}  // namespace

std::vector<DeviceInfo> list(const Platform& platform) {
  const auto driver = Driver::open(*platform.driver);
  if (!driver) return {unusable(platform, std::string(platform.api), driver.error())};
  const auto count = (*driver)->device_count();
  if (!count) return {unusable(platform, std::string(platform.api), count.error())};
  std::vector<DeviceInfo> infos;
  for (std::size_t number = 0; number < *count; ++number) {
    const std::string name = numbered(platform, number);
    const auto device = (*driver)->device(number);
    infos.push_back(device ? describe(platform, **driver, *device, name)
                           : unusable(platform, name, device.error()));
  }
  return infos;
}

Result<std::shared_ptr<Device>> open(const Platform& platform, std::size_t number) {
  auto driver = KILN_TRY(Driver::open(*platform.driver));
  const std::string name = numbered(platform, number);
  const auto device = driver->device(number);
  if (!device)
    return Error(device.error().code(), fmt::format("there is no {}; {}", name, device.error().message()));
  auto context = Context::primary(std::move(driver), *device);
  if (!context) return Error(context.error().code(), fmt::format("{}: {}", name, context.error().message()));
  return CudaDevice::open(platform, std::move(*context), name);
}

Result<std::shared_ptr<Device>> adopt(const Platform& platform, Handle context) {
  auto driver = KILN_TRY(Driver::open(*platform.driver));
  auto adopted = KILN_TRY(Context::adopt(std::move(driver), context));
  return CudaDevice::open(platform, std::move(adopted), fmt::format("{}:adopted", platform.api));
}

}  // namespace kiln::cuda
