#include "backend/vulkan/shaderc_functions.hpp"

/// The version of the package that the static shaderc came from; empty where it does not tell.
extern "C" [[gnu::visibility("default")]] const char* kiln_shaderc_version() { return KILN_SHADERC_VERSION; }

/// The functions of the static shaderc, which are hidden themselves.
extern "C" [[gnu::visibility("default")]] const kiln::vulkan::ShadercFunctions* kiln_shaderc_functions() {
  static constexpr kiln::vulkan::ShadercFunctions functions = {
      .compiler_initialize = shaderc_compiler_initialize,
      .compiler_release = shaderc_compiler_release,
      .options_initialize = shaderc_compile_options_initialize,
      .options_release = shaderc_compile_options_release,
      .set_optimization_level = shaderc_compile_options_set_optimization_level,
      .set_generate_debug_info = shaderc_compile_options_set_generate_debug_info,
      .set_target_env = shaderc_compile_options_set_target_env,
      .compile_into_spv = shaderc_compile_into_spv,
      .result_release = shaderc_result_release,
      .result_length = shaderc_result_get_length,
      .result_bytes = shaderc_result_get_bytes,
      .result_status = shaderc_result_get_compilation_status,
      .result_message = shaderc_result_get_error_message,
      .spv_version = shaderc_get_spv_version,
  };
  return &functions;
}
