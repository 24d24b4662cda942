# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE=… -D OUTPUT=… -D GRADMETER_VERSION=… -P Version.cmake: writes the version file when it changed.
# `git archive` replaces the text between the dollars (.gitattributes), so that a source tarball knows its commit and date.
set(archived "$Format:%H %cs$")
set(GRADMETER_COMMIT unknown)
if(archived MATCHES "^([0-9a-f]+) ([0-9-]+)$")
  string(SUBSTRING ${CMAKE_MATCH_1} 0 10 GRADMETER_COMMIT)
  set(GRADMETER_COMMIT_DATE ${CMAKE_MATCH_2})
elseif(EXISTS ${SOURCE}/.git)  # not the repository that an unpacked tree happens to lie in
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --match=
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(GRADMETER_COMMIT ${described})
  endif()
  execute_process(COMMAND git -C ${SOURCE} show --no-patch --format=%cs
                  OUTPUT_VARIABLE GRADMETER_COMMIT_DATE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${SOURCE}/src/bench/version.cpp.in ${OUTPUT} @ONLY)
