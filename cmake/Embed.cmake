# SPDX-License-Identifier: Apache-2.0
# gradmeter_embed(OUTPUT file.cpp NAMESPACE ns FUNCTION name FILES ...): a C++ source that embeds these text files by name, so
# that a copied program still has them. A header of the module declares the function; the source reads less without it.
function(gradmeter_embed)
  cmake_parse_arguments(E "" "OUTPUT;NAMESPACE;FUNCTION" "FILES" ${ARGN})
  set(rows "")
  foreach(path ${E_FILES})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${path} NAME_WE)
    file(READ ${path} text)
    string(APPEND rows "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${E_OUTPUT} @ONLY CONTENT
"#include <span>\n\n#include \"core/embedded.hpp\"\n\nnamespace @E_NAMESPACE@ {\n\nstd::span<const core::EmbeddedFile> @E_FUNCTION@() {
  static const core::EmbeddedFile files[] = {\n@rows@  };\n  return files;\n}\n\n}  // namespace @E_NAMESPACE@\n")
endfunction()
