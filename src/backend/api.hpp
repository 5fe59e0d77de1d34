#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::backend {

/// One way to a GPU.
struct Api {
  std::string_view name;
  /// Its devices, GPUs first, those that cannot be used with the reason; one that stands for all where there is no
  /// driver.
  std::vector<DeviceInfo> (*list)(const Log& log);
  Result<std::shared_ptr<Device>> (*open)(std::size_t number, const Log& log);
};

/// All of them, in the order in which GPUs are taken where none is named: the vendor's own way first.
std::span<const Api> apis() noexcept;

/// The API of that name; null where there is none.
const Api* find_api(std::string_view name) noexcept;

}  // namespace kiln::backend
