# SPDX-License-Identifier: MIT
# Targets c10, torch_cpu, torch and torch_python for the PyTorch that Python_EXECUTABLE would import, and TORCH_VERSION*.
#
# PyTorch's own TorchConfig.cmake is not used: in a CUDA wheel it demands a CUDA toolkit of this machine. Python is asked for the
# place without importing PyTorch, which would take seconds and load the very device that is being built.
set(query
    "import importlib.metadata as m, importlib.util as u, os
spec = u.find_spec('torch')
print(os.path.dirname(spec.origin) if spec and spec.origin else '')
print(m.version('torch'))")
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "${query}"
  OUTPUT_VARIABLE answer
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "PyTorch is not installed for ${Python_EXECUTABLE}.")
endif()
string(REPLACE "\n" ";" answer "${answer}")
list(GET answer 0 TORCH_ROOT)
list(GET answer 1 TORCH_VERSION)
if(NOT TORCH_VERSION MATCHES "^([0-9]+)\\.([0-9]+)")
  message(FATAL_ERROR "Cannot read PyTorch's version: ${TORCH_VERSION}")
endif()
set(TORCH_VERSION_MAJOR ${CMAKE_MATCH_1})
set(TORCH_VERSION_MINOR ${CMAKE_MATCH_2})
if(TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "PyTorch ${TORCH_VERSION} is installed; hologram-torch builds with 2.11 to 2.15.")
elseif(TORCH_VERSION VERSION_GREATER_EQUAL 2.16)
  message(WARNING "PyTorch ${TORCH_VERSION} is newer than any that hologram-torch was tested with (2.11 to 2.15).")
endif()

foreach(library c10 torch_cpu torch torch_python)
  set(file "${TORCH_ROOT}/lib/lib${library}.so")
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "PyTorch ${TORCH_VERSION} in ${TORCH_ROOT} lacks ${file}; is its installation whole?")
  endif()
  add_library(${library} SHARED IMPORTED)
  set_target_properties(
    ${library}
    PROPERTIES IMPORTED_LOCATION "${file}"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
               "${TORCH_ROOT}/include;${TORCH_ROOT}/include/torch/csrc/api/include"
               INTERFACE_INCLUDE_DIRECTORIES "${TORCH_ROOT}/include;${TORCH_ROOT}/include/torch/csrc/api/include")
endforeach()
message(STATUS "PyTorch ${TORCH_VERSION}")
