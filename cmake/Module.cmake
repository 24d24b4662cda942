# SPDX-License-Identifier: Apache-2.0
# gradmeter_module(NAME [SOURCES ...] [USES modules and libraries whose headers its own headers need]
#                  [PRIVATELY libraries its headers do not show])
#                  [ALONE sources that never share a unity build's unit]
#                  [SEES_CUDA sources of the host whose text depends on whether CUDA is there]
#                  [CUDA sources that need CUDA: kernels (.cu) and what hands them work]
# One folder, one target, one namespace: src/NAME is the library gradmeter::NAME.
# Modules whose loops over data are outside of what is timed are hardly optimised: they compile in two thirds of the time. Under the
# sanitizers they are not at all.
set(gradmeter_light_modules analysis importers report bench)
function(gradmeter_module NAME)
  cmake_parse_arguments(MODULE "" "" "SOURCES;USES;PRIVATELY;ALONE;SEES_CUDA;CUDA" ${ARGN})
  add_library(gradmeter_${NAME} STATIC ${MODULE_SOURCES})
  add_library(gradmeter::${NAME} ALIAS gradmeter_${NAME})
  gradmeter_exclude_from_unity("${MODULE_SOURCES}" "${MODULE_ALONE}")
  if(NAME IN_LIST gradmeter_light_modules)
    target_compile_options(gradmeter_${NAME} PRIVATE $<IF:$<BOOL:${GRADMETER_SANITIZE}>,-O0,$<$<CONFIG:Release>:-O1>>)
  endif()
  target_link_libraries(gradmeter_${NAME} PUBLIC gradmeter_options ${MODULE_USES} PRIVATE ${MODULE_PRIVATELY})
  if(MODULE_SEES_CUDA)
    gradmeter_sees_cuda(gradmeter_${NAME} SOURCES ${MODULE_SEES_CUDA} USES ${MODULE_USES} ${MODULE_PRIVATELY})
  endif()
  if(MODULE_CUDA AND TARGET gradmeter_cuda_runtime)
    gradmeter_cuda_library(${NAME} "${MODULE_CUDA}")
  endif()
endfunction()

# gradmeter_sees_cuda(TARGET SOURCES ... [USES ...]): sources of TARGET that see GRADMETER_HAS_CUDA and CUDA's headers. No other
# source of the host does, so that with and without CUDA the others are compiled by the same commands: ccache compiles them once.
function(gradmeter_sees_cuda TARGET)
  cmake_parse_arguments(T "" "" "SOURCES;USES" ${ARGN})
  set(library ${TARGET}_sees_cuda)
  add_library(${library} OBJECT ${T_SOURCES})
  target_link_libraries(${library} PRIVATE gradmeter_options ${T_USES})
  if(TARGET gradmeter_cuda_runtime)
    target_link_libraries(${library} PRIVATE gradmeter_cuda_runtime)
  endif()
  target_link_libraries(${TARGET} PRIVATE ${library})
endfunction()

# gradmeter_NAME_cuda: kernels by nvcc, or by the host's compiler for the emulated runtime.
# Products and sums stay two roundings, so that kernels have the host's bits. 128 registers a thread: blocks of 512.
function(gradmeter_cuda_library NAME SOURCES)
  set(library gradmeter_${NAME}_cuda)
  set(kernels ${SOURCES})
  list(FILTER SOURCES EXCLUDE REGEX "\\.cu$")
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  gradmeter_unite_kernels(kernels)
  add_library(${library} STATIC ${SOURCES} ${kernels})
  add_library(gradmeter::${NAME}_cuda ALIAS ${library})
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(GRADMETER_CUDA_EMULATED)
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    target_link_libraries(${library} PUBLIC gradmeter_${NAME} gradmeter_runtime gradmeter_cuda_runtime)
    return()
  endif()
  # Two threads: architectures side by side, where one file takes as long as all others together.
  set(nvcc --fmad=false --maxrregcount=128 --threads=2 -Xcompiler=-Wall,-Wextra)
  if(GRADMETER_WARNINGS_AS_ERRORS)
    list(APPEND nvcc -Werror=all-warnings)
  endif()
  target_compile_options(${library} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${nvcc}>")
  target_link_libraries(${library} PUBLIC gradmeter_${NAME} gradmeter_runtime gradmeter_cuda_runtime)
endfunction()

# CMake 3.25 has no unity builds of CUDA: the kernels of a folder become one unit, compiled in less than half of their time.
function(gradmeter_unite_kernels VARIABLE)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set(folders)
  foreach(source ${${VARIABLE}})
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND folders ${folder})
    string(APPEND text_of_${folder} "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(units)
  foreach(folder ${folders})
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/Unity/${folder}/unity.cu)
    file(GENERATE OUTPUT ${unit} CONTENT "${text_of_${folder}}")
    list(APPEND units ${unit})
  endforeach()
  set(${VARIABLE} ${units} PARENT_SCOPE)
endfunction()

# A unity build (all presets but dev and alone) compiles several sources as one unit, so names in unnamed namespaces must
# differ. Excluded are the sources in ALONE, whose names others have too; files that Highway includes once for each
# instruction set; and generated ones. A unity build hides a missing include: scripts/compile-alone.py finds it.
function(gradmeter_exclude_from_unity SOURCES ALONE)
  foreach(source ${SOURCES})
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(IS_PREFIX CMAKE_CURRENT_SOURCE_DIR ${path} written)
    set(includes_itself)
    if(EXISTS ${path})
      file(STRINGS ${path} includes_itself REGEX "foreach_target.h" LIMIT_COUNT 1)
    endif()
    if(includes_itself AND GRADMETER_SANITIZE STREQUAL "address")
      # Checks of memory by calls: inline ones make a function of tens of thousands of lines of each loop, compiled in four times the time.
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
    endif()
    if(includes_itself OR source IN_LIST ALONE OR NOT written)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
