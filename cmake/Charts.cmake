# SPDX-License-Identifier: Apache-2.0
# gradmeter_chart_library(OUTPUT): the library that pages draw their charts with (Vega-Lite, from vl-convert) as a text
# file; empty where vl-convert is not there. scripts/charts.sh installs it into build/charts.
set(GRADMETER_CHARTS_PYTHON "" CACHE FILEPATH "a Python that has vl_convert; empty: build/charts, then python3")
function(gradmeter_chart_library OUTPUT)
  set(pythons ${GRADMETER_CHARTS_PYTHON} ${PROJECT_SOURCE_DIR}/build/charts/bin/python3 python3)
  foreach(python ${pythons})
    execute_process(COMMAND ${python} -c "import vl_convert, sys; sys.stdout.write(vl_convert.javascript_bundle())"
                    OUTPUT_FILE ${OUTPUT} RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      message(STATUS "charts: vl-convert of ${python}")
      set(gradmeter_charts_python ${python} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(STATUS "no vl-convert: pages have tables only (scripts/charts.sh installs it)")
  file(WRITE ${OUTPUT} "")
  set(gradmeter_charts_python "" PARENT_SCOPE)
endfunction()
