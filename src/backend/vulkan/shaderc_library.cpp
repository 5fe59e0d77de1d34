#include "backend/vulkan/shaderc_functions.hpp"

#include <algorithm>
#include <cstring>

#include <spirv-tools/libspirv.h>

namespace {

spv_target_env number_of(kiln::vulkan::SpirvEnvironment environment) {
  using kiln::vulkan::SpirvEnvironment;
  switch (environment) {
    case SpirvEnvironment::vulkan_1_1: return SPV_ENV_VULKAN_1_1;
    case SpirvEnvironment::vulkan_1_2: return SPV_ENV_VULKAN_1_2;
    case SpirvEnvironment::vulkan_1_3: return SPV_ENV_VULKAN_1_3;
    case SpirvEnvironment::opengl: return SPV_ENV_OPENGL_4_5;
    case SpirvEnvironment::opencl: return SPV_ENV_OPENCL_2_2;
  }
  return SPV_ENV_UNIVERSAL_1_0;
}

}  // namespace

/// The version of the package that the static shaderc came from; empty if unknown.
extern "C" [[gnu::visibility("default")]] const char* kiln_shaderc_version() { return KILN_SHADERC_VERSION; }

/// The functions of the static shaderc, which shaderc.map hides.
extern "C" [[gnu::visibility("default")]] const kiln::vulkan::ShadercFunctions* kiln_shaderc_functions() {
  static constexpr kiln::vulkan::ShadercFunctions functions = {
#define KILN_LINKED(name) .name = shaderc_##name,
      KILN_SHADERC_FUNCTIONS(KILN_LINKED)
#undef KILN_LINKED
  };
  return &functions;
}

extern "C" [[gnu::visibility("default")]] bool kiln_shaderc_validate(const std::uint32_t* words, std::size_t count,
                                                                     kiln::vulkan::SpirvEnvironment environment,
                                                                     char* message, std::size_t capacity) {
  spv_context context = spvContextCreate(number_of(environment));
  spv_diagnostic diagnostic = nullptr;
  spv_const_binary_t binary = {words, count};
  const bool valid = spvValidate(context, &binary, &diagnostic) == SPV_SUCCESS;
  const char* why = diagnostic != nullptr && diagnostic->error != nullptr ? diagnostic->error : "";
  const std::size_t length = std::min(std::strlen(why), capacity - 1);
  std::memcpy(message, why, length);
  message[length] = '\0';
  spvDiagnosticDestroy(diagnostic);
  spvContextDestroy(context);
  return valid;
}
