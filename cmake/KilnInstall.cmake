# Installs the libraries, headers, CMake package and pkg-config files.
include(CMakePackageConfigHelpers)

# Shared libraries are found relative to the files that need them, so that an installed tree can be moved.
if(BUILD_SHARED_LIBS AND NOT CMAKE_INSTALL_RPATH)
  file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  file(RELATIVE_PATH lib_from_libexec ${CMAKE_INSTALL_FULL_LIBEXECDIR}/kiln ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(kiln_kernels PROPERTIES INSTALL_RPATH "$ORIGIN")
  set_target_properties(kiln_helper PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_libexec}")
  if(TARGET kiln_cli)
    set_target_properties(kiln_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  endif()
endif()

install(TARGETS kiln kiln_kernels kiln_helper EXPORT KilnTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kiln
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET kiln_shaderc)
  install(TARGETS kiln_shaderc EXPORT KilnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
endif()
install(TARGETS kiln_remote EXPORT KilnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
install(EXPORT KilnTargets NAMESPACE Kiln:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Kiln)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/KilnConfig.cmake.in ${PROJECT_BINARY_DIR}/KilnConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Kiln)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/KilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/KilnConfig.cmake ${PROJECT_BINARY_DIR}/KilnConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/KilnBundle.c.in ${CMAKE_CURRENT_LIST_DIR}/KilnBundle.cmake
  ${CMAKE_CURRENT_LIST_DIR}/KilnDependencies.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Kiln)
# The prefix is relative to the .pc file, so that the installation can be moved.
file(RELATIVE_PATH KILN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(package kiln kiln-kernels)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
