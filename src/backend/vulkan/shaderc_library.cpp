#include "backend/vulkan/shaderc_functions.hpp"

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
