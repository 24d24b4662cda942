# gradmeter_room(NAME [SOURCES ...] [USES rooms and libraries whose headers its own headers need]
#                [PRIVATELY libraries its headers do not show])
#                [ALONE sources that never share a unity build's unit]
# One folder, one target, one namespace: src/NAME is the library gradmeter::NAME.
function(gradmeter_room NAME)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;PRIVATELY;ALONE" ${ARGN})
  add_library(gradmeter_${NAME} STATIC ${ROOM_SOURCES})
  add_library(gradmeter::${NAME} ALIAS gradmeter_${NAME})
  gradmeter_leave_alone("${ROOM_SOURCES}" "${ROOM_ALONE}")
  target_link_libraries(gradmeter_${NAME} PUBLIC gradmeter_options ${ROOM_USES} PRIVATE ${ROOM_PRIVATELY})
endfunction()

# A unity build (all presets but dev and alone) compiles several sources as one unit, where names of unnamed namespaces must
# differ. Apart stay ALONE, whose names others have too, files that Highway includes once an instruction set, and
# generated ones. A missing include goes unseen there: scripts/compile-alone.py finds it.
function(gradmeter_leave_alone SOURCES ALONE)
  foreach(source ${SOURCES})
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(IS_PREFIX CMAKE_CURRENT_SOURCE_DIR ${path} written)
    set(includes_itself)
    if(EXISTS ${path})
      file(STRINGS ${path} includes_itself REGEX "foreach_target.h" LIMIT_COUNT 1)
    endif()
    if(includes_itself OR source IN_LIST ALONE OR NOT written)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
