# SPDX-License-Identifier: MIT
# One static target per source folder, with the warnings and include roots that all of them share.

set(HOLOGRAM_INSTALL_INCLUDEDIR "include" CACHE STRING "Where public headers go below the prefix")
set(HOLOGRAM_INSTALL_LIBDIR "lib" CACHE STRING "Where the library goes below the prefix")

add_library(hologram_flags INTERFACE)
target_include_directories(hologram_flags INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include"
                                                    "${PROJECT_BINARY_DIR}/generated")
target_compile_definitions(hologram_flags INTERFACE HOLOGRAM_BUILDING)
target_compile_options(
  hologram_flags INTERFACE -Wall -Wextra -Werror -fno-math-errno -fno-semantic-interposition
                           -ffp-contract=off)
if(HOLOGRAM_SANITIZE)
  target_compile_options(hologram_flags INTERFACE -fsanitize=${HOLOGRAM_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(hologram_flags INTERFACE -fsanitize=${HOLOGRAM_SANITIZE})
endif()

# Headers cost more than what is between them, so that several sources are compiled at a time. Sources that
# Highway includes once per instruction set stay alone. Tools that look at sources one by one want them so.
option(HOLOGRAM_UNITY "Compile several sources at a time" ON)
function(hologram_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HOLOGRAM_UNITY} UNITY_BUILD_BATCH_SIZE 7
                                            UNITY_BUILD_RELOCATABLE ON)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    if(EXISTS "${source}")
      file(STRINGS "${source}" found REGEX "define (HWY_TARGET_INCLUDE|HOLOGRAM_SYMBOLIC_MATH)" LIMIT_COUNT 1)
      if(found)
        set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endif()
  endforeach()
endfunction()

# hologram_folder(NAME DEPENDS...): libhologram_NAME from every *.cc below the current folder.
function(hologram_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  add_library(hologram_${name} STATIC ${sources})
  target_link_libraries(hologram_${name} PUBLIC hologram_flags)
  add_dependencies(hologram_${name} hologram_generated)
  foreach(dependency ${ARGN})
    target_link_libraries(hologram_${name} PUBLIC hologram_${dependency})
  endforeach()
endfunction()
