# The libraries of docs/dependencies.md. Used by the build, and installed beside KilnConfig.cmake for projects that
# link the static library. Targets are global, because a project that adds Kiln as a subdirectory links them from
# another folder.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(EPOXY REQUIRED IMPORTED_TARGET GLOBAL epoxy)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET GLOBAL libzstd)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
