# cmake -D SOURCE=… -D OUTPUT=… -D GRADMETER_VERSION=… -P Version.cmake: writes the version file when it changed.
set(GRADMETER_COMMIT unknown)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10 --match=
                OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  set(GRADMETER_COMMIT ${described})
endif()
execute_process(COMMAND git -C ${SOURCE} show --no-patch --format=%cs
                OUTPUT_VARIABLE GRADMETER_COMMIT_DATE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
configure_file(${SOURCE}/src/bench/version.cpp.in ${OUTPUT} @ONLY)
