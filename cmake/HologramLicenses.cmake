# SPDX-License-Identifier: MIT
# Puts the licences of what is compiled into a wheel beside ours, in the wheel's metadata.

# The first file that exists of those behind `name` is the licence of that library.
function(hologram_install_license component name)
  foreach(file IN LISTS ARGN)
    if(EXISTS "${file}")
      install(
        FILES "${file}"
        DESTINATION "${SKBUILD_METADATA_DIR}/licenses"
        RENAME LICENSE.${name}
        COMPONENT ${component})
      return()
    endif()
  endforeach()
  message(WARNING "the licence of ${name} is in none of: ${ARGN}; a wheel that is given away needs it")
endfunction()

# Writes the comment at the beginning of `header` to `text`, for libraries whose licence stands there only.
function(hologram_license_of_header header text)
  file(READ "${header}" content)
  string(FIND "${content}" "*/" end)
  string(SUBSTRING "${content}" 0 ${end} content)
  string(REGEX REPLACE "(^|\n)[ /]*\\*+ ?" "\\1" content "${content}")
  file(WRITE "${text}" "${content}\n")
endfunction()
