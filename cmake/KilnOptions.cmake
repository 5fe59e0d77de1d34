# Compile options of all targets of the project. kiln_options is linked privately and never exported. Objects that are
# linked into several of these targets use kiln_compile_options, which adds no source.
add_library(kiln_compile_options INTERFACE)
add_library(kiln_options INTERFACE)
target_link_libraries(kiln_options INTERFACE kiln_compile_options)
target_compile_features(kiln_compile_options INTERFACE cxx_std_20)
target_compile_options(kiln_compile_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<BOOL:${KILN_WARNINGS_AS_ERRORS}>:-Werror>)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  # GCC reports false positives in code with sanitizers.
  target_compile_options(kiln_compile_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
  target_sources(kiln_options INTERFACE ${PROJECT_SOURCE_DIR}/tests/keep_libraries.cpp)
  target_link_options(kiln_options INTERFACE -Wl,--export-dynamic-symbol=dlclose)
endif()
