#include "backend/vulkan/module.hpp"

#include <utility>

#include <fmt/format.h>

#include "backend/sections.hpp"
#include "backend/vulkan/spirv.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request) {
  auto spirv = KILN_TRY(shaderc.compile(request));
  const auto interface = read_spirv(spirv);
  if (!interface)
    return Error(
        interface.error().code() == ErrorCode::unsupported ? ErrorCode::invalid_request : ErrorCode::compile_failed,
        fmt::format("{} cannot be run: {}", request.name(), interface.error().message()));
  KILN_TRY(check_limits(context->physical, request.name(), *interface));
  auto made = KILN_TRY(Pipeline::create(context, request.name(), spirv, *interface));
  Compiled compiled{.module = std::make_unique<PipelineModule>(std::move(made.pipeline))};
  if (check_cache_header(context->physical, made.cache_data))
    compiled.binary =
        Binary{binary_format, backend::seal_sections({std::as_bytes(std::span(spirv)), to_bytes(*interface),
                                                      made.cache_data, backend::as_section(request.name())})};
  return compiled;
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary) {
  if (binary.format != binary_format)
    return Error(ErrorCode::load_failed, fmt::format("Kiln knows no Vulkan binary of format {:#x}", binary.format));
  const auto sections = backend::unseal_sections(binary.bytes, 4);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: it has another checksum");
  const std::string name(backend::as_text((*sections)[3]));
  const auto cache = (*sections)[2];
  // The seal shows that the SPIR-V is the one that was read when it was compiled.
  const auto interface = interface_from((*sections)[1]);
  if (!interface) return Error(ErrorCode::load_failed, fmt::format("{}: the binary is damaged", name));
  if (auto ok = check_limits(context->physical, name, *interface); !ok)
    return Error(ErrorCode::load_failed, ok.error().message());
  if (auto ok = check_cache_header(context->physical, cache); !ok)
    return Error(ErrorCode::load_failed, fmt::format("{}: {}", name, ok.error().message()));
  auto made = KILN_TRY(Pipeline::create(context, name, spirv_words((*sections)[0]), *interface, cache));
  return std::unique_ptr<kiln::Module>(std::make_unique<PipelineModule>(std::move(made.pipeline)));
}

}  // namespace kiln::vulkan
