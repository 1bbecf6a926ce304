# SPDX-License-Identifier: MIT
# Installs the shared library, the public headers and the CMake package find_package(hologram) reads.
include(CMakePackageConfigHelpers)

install(
  TARGETS hologram
  EXPORT hologramTargets
  LIBRARY DESTINATION ${HOLOGRAM_INSTALL_LIBDIR} NAMELINK_SKIP
  COMPONENT hologram)
install(DIRECTORY include/hologram DESTINATION ${HOLOGRAM_INSTALL_INCLUDEDIR} COMPONENT hologram)
install(
  EXPORT hologramTargets
  NAMESPACE hologram::
  DESTINATION ${HOLOGRAM_INSTALL_LIBDIR}/cmake/hologram
  COMPONENT hologram)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/hologramConfig.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/hologramConfig.cmake"
  INSTALL_DESTINATION ${HOLOGRAM_INSTALL_LIBDIR}/cmake/hologram)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/hologramConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${CMAKE_CURRENT_BINARY_DIR}/hologramConfig.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/hologramConfigVersion.cmake"
  DESTINATION ${HOLOGRAM_INSTALL_LIBDIR}/cmake/hologram
  COMPONENT hologram)

# For those who build with a compiler and `pkg-config --cflags --libs hologram` alone.
get_target_property(HOLOGRAM_SOVERSION hologram SOVERSION)
configure_file("${CMAKE_CURRENT_LIST_DIR}/hologram.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/hologram.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/hologram.pc" DESTINATION ${HOLOGRAM_INSTALL_LIBDIR}/pkgconfig
        COMPONENT hologram)
