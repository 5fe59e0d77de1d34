# Headers that only the build of Kiln needs: those of libraries opened at run time, and of SPIR-V. KILN_SHADERC_PARTS
# lists the static libraries of shaderc if all of them are installed.
find_path(KILN_VULKAN_HEADERS vulkan/vulkan_core.h REQUIRED)
find_path(KILN_SHADERC_HEADERS shaderc/shaderc.h REQUIRED)
find_path(KILN_SPIRV_HEADERS spirv/unified1/spirv.hpp11 REQUIRED)
mark_as_advanced(KILN_VULKAN_HEADERS KILN_SHADERC_HEADERS KILN_SPIRV_HEADERS)

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
# The version of the compiler, for identities of devices: shaderc's API reports only the version of SPIR-V, and glslang
# and SPIRV-Tools are packages of their own.
pkg_check_modules(KILN_SHADERC_PACKAGE QUIET shaderc_combined)
pkg_check_modules(KILN_SPIRV_TOOLS_PACKAGE QUIET SPIRV-Tools)
set(KILN_SHADERC_VERSION "${KILN_SHADERC_PACKAGE_VERSION}, SPIRV-Tools ${KILN_SPIRV_TOOLS_PACKAGE_VERSION}")
find_file(KILN_GLSLANG_BUILD_INFO glslang/build_info.h)
mark_as_advanced(KILN_GLSLANG_BUILD_INFO)
if(KILN_GLSLANG_BUILD_INFO)
  file(STRINGS ${KILN_GLSLANG_BUILD_INFO} numbers REGEX "define GLSLANG_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE "[^;]* ([0-9]+)" "\\1" numbers "${numbers}")
  list(JOIN numbers . KILN_GLSLANG_VERSION)
  string(APPEND KILN_SHADERC_VERSION ", glslang ${KILN_GLSLANG_VERSION}")
endif()
