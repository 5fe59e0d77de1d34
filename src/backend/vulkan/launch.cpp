#include "backend/vulkan/launch.hpp"

#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/vulkan/module.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {

Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = dynamic_cast<const PipelineModule*>(&module);
  if (program == nullptr || &program->context() != &context)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  const auto refuse = [](std::string why) { return Error(ErrorCode::invalid_request, std::move(why)); };
  KILN_TRY(backend::check_groups(launch, device.limits, program->name()));
  if (launch.buffers.size() != program->buffers())
    return refuse(fmt::format("{} declares {} buffers; {} were given", program->name(), program->buffers(),
                              launch.buffers.size()));
  if (launch.parameters.size() != program->parameter_bytes())
    return refuse(fmt::format("{} declares {} bytes of parameters; {} were given", program->name(),
                              program->parameter_bytes(), launch.parameters.size()));
  auto buffers = KILN_TRY(backend::own_buffers<DeviceBuffer>(launch, context, device.name, program->name()));
  return Fitting{*program, std::move(buffers)};
}

}  // namespace kiln::vulkan
