# SPDX-License-Identifier: Apache-2.0
# Language, warnings, optimisation, sanitizers: one place.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

find_program(GRADMETER_CCACHE ccache)
if(GRADMETER_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${GRADMETER_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GRADMETER_CCACHE})
endif()

add_library(gradmeter_options INTERFACE)
target_include_directories(gradmeter_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
# GCC looks for memory to reuse from 128 MiB on, a tenth of a unit's time: no sooner than at 1 GiB where each core has 4.
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory_mib_a_core "${memory_mib} / ${cores}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND memory_mib_a_core GREATER_EQUAL 4096)
  target_compile_options(gradmeter_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>")
endif()
# Not for nvcc, which has options of its own (Module.cmake).
set(warnings -Wall -Wextra -Wpedantic -Wnon-virtual-dtor)
# Of files that are compiled together each sees the others' constants, and may have a variable of that name.
list(APPEND warnings $<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,-Wshadow=local,-Wshadow>)
if(GRADMETER_WARNINGS_AS_ERRORS)
  list(APPEND warnings -Werror)
endif()
target_compile_options(gradmeter_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>")
# Loops are compiled for each instruction set: one number at a time, SSE4, AVX2, AVX-512. Under the sanitizers for the two
# that every tester's machine runs: the loops are written for any width.
set(disabled_targets HWY_SSSE3)
if(GRADMETER_SANITIZE)
  set(disabled_targets "HWY_SSSE3|HWY_SSE4|HWY_AVX3")
endif()
target_compile_definitions(gradmeter_options INTERFACE "HWY_DISABLED_TARGETS=(${disabled_targets})")
if(GRADMETER_SANITIZE)
  target_compile_options(gradmeter_options INTERFACE -fsanitize=${GRADMETER_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(gradmeter_options INTERFACE -fsanitize=${GRADMETER_SANITIZE})
  # Left out of the undefined behaviour is what the address sanitizer finds itself (null, object sizes) and what no code
  # here relies on (vptr, attributes, pointer overflow).
  if(GRADMETER_SANITIZE STREQUAL "address")
    target_compile_options(gradmeter_options INTERFACE -fsanitize=undefined -fno-sanitize-recover=undefined
      -fno-sanitize=null,object-size,vptr,nonnull-attribute,returns-nonnull-attribute,pointer-overflow)
    target_link_options(gradmeter_options INTERFACE -fsanitize=undefined)
  endif()
endif()
