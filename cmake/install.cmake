# Installed: headers, static and shared library, the command line, a CMake package and brim.pc.
# Both packages are relocatable: they find everything from where they lie themselves.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/brim)

install(DIRECTORY include/brim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET brim_cli)
  install(TARGETS brim_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The static library needs the libraries brim uses at link time, the shared one does not: two export
# sets, so that find_package(brim) works without their development packages.
install(TARGETS brim_shared brim_kernels EXPORT brimShared
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT brimShared FILE brimSharedTargets.cmake NAMESPACE brim:: DESTINATION ${package_dir})
install(TARGETS brim_static EXPORT brimStatic ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT brimStatic FILE brimStaticTargets.cmake NAMESPACE brim:: DESTINATION ${package_dir})

configure_package_config_file(cmake/brimConfig.cmake.in ${PROJECT_BINARY_DIR}/brimConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/brimConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/brimConfig.cmake ${PROJECT_BINARY_DIR}/brimConfigVersion.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH BRIM_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" BRIM_PC_PREFIX "${BRIM_PC_PREFIX}")
set(BRIM_PC_PRIVATE_LIBS "-pthread -lm")
if(BRIM_HAVE_CUDA)
  string(APPEND BRIM_PC_PRIVATE_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file(cmake/brim.pc.in ${PROJECT_BINARY_DIR}/brim.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/brim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
