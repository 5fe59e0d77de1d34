# The headers of what is opened at run time, and, where all of them are there, the static parts of shaderc as
# KILN_SHADERC_PARTS. Nobody who uses Kiln needs them.
find_path(KILN_VULKAN_HEADERS vulkan/vulkan_core.h REQUIRED)
find_path(KILN_SHADERC_HEADERS shaderc/shaderc.h REQUIRED)
mark_as_advanced(KILN_VULKAN_HEADERS KILN_SHADERC_HEADERS)

set(KILN_SHADERC_PARTS)
foreach(part shaderc_combined glslang SPIRV MachineIndependent GenericCodeGen OSDependent OGLCompiler HLSL
    SPIRV-Tools-opt SPIRV-Tools)
  find_library(KILN_LIBRARY_${part} lib${part}.a)
  mark_as_advanced(KILN_LIBRARY_${part})
  list(APPEND KILN_SHADERC_PARTS ${KILN_LIBRARY_${part}})
endforeach()
if(KILN_SHADERC_PARTS MATCHES "NOTFOUND")
  set(KILN_SHADERC_PARTS)
endif()
# shaderc itself tells only the version of SPIR-V.
pkg_check_modules(KILN_SHADERC_PACKAGE QUIET shaderc_combined)
