# gradmeter_room(NAME [SOURCES ...] [USES rooms and libraries whose headers its own headers need]
#                [PRIVATELY libraries its headers do not show])
# One folder, one target, one namespace: src/NAME is the library gradmeter::NAME.
function(gradmeter_room NAME)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;PRIVATELY" ${ARGN})
  add_library(gradmeter_${NAME} STATIC ${ROOM_SOURCES})
  add_library(gradmeter::${NAME} ALIAS gradmeter_${NAME})
  target_link_libraries(gradmeter_${NAME} PUBLIC gradmeter_options ${ROOM_USES} PRIVATE ${ROOM_PRIVATELY})
endfunction()
