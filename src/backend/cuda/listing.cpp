#include <fmt/format.h>

#include "backend/cuda/device.hpp"

namespace kiln::cuda {
namespace {

std::string numbered(const Dialect& dialect, std::size_t number) {
  return fmt::format("{}:{}", dialect.api, number);
}

DeviceInfo unusable(const Dialect& dialect, std::string name, const Error& error) {
  return {.name = std::move(name),
          .identity = {.api = std::string(dialect.api)},
          .language = dialect.language,
          .problem = error.message()};
}

}  // namespace

std::vector<DeviceInfo> list(const Dialect& dialect) {
  const auto driver = Driver::open(*dialect.driver);
  if (!driver) return {unusable(dialect, std::string(dialect.api), driver.error())};
  const auto count = (*driver)->device_count();
  if (!count) return {unusable(dialect, std::string(dialect.api), count.error())};
  std::vector<DeviceInfo> infos;
  for (std::size_t number = 0; number < *count; ++number) {
    const std::string name = numbered(dialect, number);
    const auto device = (*driver)->device(number);
    infos.push_back(device ? describe(dialect, **driver, *device, name) : unusable(dialect, name, device.error()));
  }
  return infos;
}

Result<std::shared_ptr<Device>> open(const Dialect& dialect, std::size_t number) {
  auto driver = Driver::open(*dialect.driver);
  if (!driver) return std::move(driver).error();
  const std::string name = numbered(dialect, number);
  const auto device = (*driver)->device(number);
  if (!device)
    return Error(device.error().code(), fmt::format("there is no {}; {}", name, device.error().message()));
  auto context = Context::primary(std::move(*driver), *device);
  if (!context) return Error(context.error().code(), fmt::format("{}: {}", name, context.error().message()));
  return CudaDevice::open(dialect, std::move(*context), name);
}

Result<std::shared_ptr<Device>> adopt(const Dialect& dialect, Handle context) {
  auto driver = Driver::open(*dialect.driver);
  if (!driver) return std::move(driver).error();
  auto adopted = Context::adopt(std::move(*driver), context);
  if (!adopted) return std::move(adopted).error();
  return CudaDevice::open(dialect, std::move(*adopted), fmt::format("{}:adopted", dialect.api));
}

}  // namespace kiln::cuda
