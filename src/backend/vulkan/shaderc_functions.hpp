#pragma once

#include <shaderc/shaderc.h>

namespace kiln::vulkan {

/// The functions of shaderc that Kiln calls.
struct ShadercFunctions {
  decltype(&shaderc_compiler_initialize) compiler_initialize = nullptr;
  decltype(&shaderc_compiler_release) compiler_release = nullptr;
  decltype(&shaderc_compile_options_initialize) options_initialize = nullptr;
  decltype(&shaderc_compile_options_release) options_release = nullptr;
  decltype(&shaderc_compile_options_set_optimization_level) set_optimization_level = nullptr;
  decltype(&shaderc_compile_options_set_generate_debug_info) set_generate_debug_info = nullptr;
  decltype(&shaderc_compile_options_set_target_env) set_target_env = nullptr;
  decltype(&shaderc_compile_into_spv) compile_into_spv = nullptr;
  decltype(&shaderc_result_release) result_release = nullptr;
  decltype(&shaderc_result_get_length) result_length = nullptr;
  decltype(&shaderc_result_get_bytes) result_bytes = nullptr;
  decltype(&shaderc_result_get_compilation_status) result_status = nullptr;
  decltype(&shaderc_result_get_error_message) result_message = nullptr;
  decltype(&shaderc_get_spv_version) spv_version = nullptr;
};

}  // namespace kiln::vulkan
