#pragma once

#include <memory>

#include <kiln/backend.hpp>
#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/shaderc.hpp"

namespace kiln::vulkan {

/// The only format of Kiln's Vulkan binaries: sealed, the SPIR-V, what was read from it (see Shape), the driver's
/// pipeline cache, the program's name.
constexpr std::uint32_t binary_format = 2;

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request);

/// The driver sees nothing of a binary that is not as it gave it out.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary);

}  // namespace kiln::vulkan
