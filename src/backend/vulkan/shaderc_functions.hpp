#pragma once

#include <cstddef>
#include <cstdint>

#include <shaderc/shaderc.h>

namespace kiln::vulkan {

/// The rules that a SPIR-V module must follow.
enum class SpirvEnvironment { vulkan_1_1, vulkan_1_2, vulkan_1_3, opengl, opencl };

/// The function kiln_shaderc_validate of the library that is built with Kiln. Returns whether a module is valid; if
/// not, writes why to `message`.
using ValidateSpirv = bool(const std::uint32_t* words, std::size_t count, SpirvEnvironment environment,
                           char* message, std::size_t capacity);

/// The functions of shaderc that Kiln calls, without the prefix shaderc_.
// clang-format off
#define KILN_SHADERC_FUNCTIONS(X) \
  X(compiler_initialize) \
  X(compiler_release) \
  X(compile_options_initialize) \
  X(compile_options_release) \
  X(compile_options_set_optimization_level) \
  X(compile_options_set_generate_debug_info) \
  X(compile_options_set_target_env) \
  X(compile_into_spv) \
  X(result_release) \
  X(result_get_length) \
  X(result_get_bytes) \
  X(result_get_compilation_status) \
  X(result_get_error_message) \
  X(get_spv_version)
// clang-format on

struct ShadercFunctions {
#define KILN_DECLARE(name) decltype(&shaderc_##name) name = nullptr;
  KILN_SHADERC_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE

  template <class Lookup>
  void fill(Lookup& lookup) {
#define KILN_FILL(name) lookup(name, "shaderc_" #name);
    KILN_SHADERC_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
};

}  // namespace kiln::vulkan
