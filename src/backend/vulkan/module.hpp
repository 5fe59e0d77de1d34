#pragma once

#include <memory>

#include <kiln/backend.hpp>
#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/shaderc.hpp"

namespace kiln::vulkan {

/// The only format of Kiln's Vulkan binaries: the SPIR-V, the driver's pipeline cache, the program's name.
constexpr std::uint32_t binary_format = 1;

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request);

/// The driver sees nothing of a binary that is not as it gave it out.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary);

}  // namespace kiln::vulkan
