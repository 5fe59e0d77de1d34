#include "backend/api.hpp"

#include <algorithm>
#include <array>

#include "backend/cuda/cuda.hpp"
#include "backend/hip/hip.hpp"
#include "backend/opencl/device.hpp"
#include "backend/opengl/device.hpp"
#include "backend/vulkan/device.hpp"

namespace kiln::backend {
namespace {

constexpr std::array all_apis = {
    Api{"cuda", cuda::list_cuda_devices, cuda::open_cuda_device},
    Api{"hip", hip::list_hip_devices, hip::open_hip_device},
    Api{"vulkan", vulkan::list_vulkan_devices, vulkan::open_vulkan_device},
    Api{"opengl", opengl::list_gl_devices, opengl::open_gl_device},
    Api{"opencl", opencl::list_cl_devices, opencl::open_cl_device},
};

}  // namespace

std::span<const Api> apis() noexcept { return all_apis; }

const Api* find_api(std::string_view name) noexcept {
  const auto* found =
      std::find_if(all_apis.begin(), all_apis.end(), [&](const Api& api) { return api.name == name; });
  return found != all_apis.end() ? found : nullptr;
}

}  // namespace kiln::backend
