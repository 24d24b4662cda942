# SPDX-License-Identifier: Apache-2.0
# gradmeter_test(MODULE [PROGRAM name] SOURCES ... [USES ...] [LABELS ...] [TIMEOUT s] [ALONE ...] [POLLS]):
# GoogleTest cases in one process, ranks as threads. The program is test_MODULE unless named; ALONE as in Module.cmake. Where its
# threads poll (POLLS) it runs with nothing beside it: on two cores a quarter of such a program then takes 16 s instead of 80.
# gradmeter_mpi_test(NAME RANKS 1 2 4 TIMEOUT s [MPIEXEC_ARGS ...] COMMAND program args...): the same program on real
# ranks, once a rank count, alone unless there is one: ranks that poll keep the cores from each other.
find_package(GTest REQUIRED)
include(GoogleTest)

# A Python that can validate result files: the system's first, since that is where the package python3-jsonschema goes,
# whatever other Python stands earlier on the PATH.
function(gradmeter_has_jsonschema result candidate)
  execute_process(COMMAND ${candidate} -c "import jsonschema" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(GRADMETER_PYTHON python3 HINTS /usr/bin VALIDATOR gradmeter_has_jsonschema)
if(NOT GRADMETER_PYTHON)
  message(FATAL_ERROR "the tests need a python3 with the module jsonschema: scripts/test.sh installs it")
endif()
# ob1: else every mpirun opens UCX first, which takes longer than many a test does, and no test is about UCX.
set(GRADMETER_MPIEXEC_ENV
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_pml=ob1 OMP_NUM_THREADS=1)

if(GRADMETER_SANITIZE STREQUAL "thread")
  set(GRADMETER_TSAN_ENV "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/thread_sanitizer.supp")
endif()

# The tests' own loops are short: a lower level compiles them in three quarters of the time. What they test keeps its own.
add_library(gradmeter_test_options INTERFACE)
target_compile_options(gradmeter_test_options INTERFACE $<$<CONFIG:Release>:-O1>)
# Under the sanitizers most of the build would be theirs; what these are to look at is the library.
if(GRADMETER_SANITIZE)
  target_compile_options(gradmeter_test_options INTERFACE -O0 -fno-sanitize=undefined)
endif()

# What the sanitizers run is all that their presets build: programs for real ranks would double the time.
add_custom_target(unit_tests)
add_custom_target(thread_tests)
# Those of CUDA code: all that the preset cuda-emulated builds.
add_custom_target(device_tests)

function(gradmeter_test MODULE)
  cmake_parse_arguments(T "POLLS" "PROGRAM;TIMEOUT" "SOURCES;USES;LABELS;ALONE" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(NOT T_PROGRAM)
    set(T_PROGRAM test_${MODULE})
  endif()
  add_executable(${T_PROGRAM} ${T_SOURCES})
  gradmeter_exclude_from_unity("${T_SOURCES}" "${T_ALONE}")
  target_link_libraries(${T_PROGRAM} PRIVATE gradmeter_${MODULE} ${T_USES} gradmeter_test_options GTest::gmock GTest::gtest_main)
  if(TARGET gradmeter_cuda_runtime)
    target_link_libraries(${T_PROGRAM} PRIVATE gradmeter_cuda_runtime)
  endif()
  target_include_directories(${T_PROGRAM} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_dependencies(unit_tests ${T_PROGRAM})
  if("threads" IN_LIST T_LABELS)
    add_dependencies(thread_tests ${T_PROGRAM})
  endif()
  if("device" IN_LIST T_LABELS)
    target_sources(${T_PROGRAM} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/device_environment.cpp)
    add_dependencies(device_tests ${T_PROGRAM})
  endif()
  target_compile_definitions(${T_PROGRAM} PRIVATE GRADMETER_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             GRADMETER_PYTHON="${GRADMETER_PYTHON}")
  if(GRADMETER_SANITIZE OR GRADMETER_TEST_SHARDS)
    gradmeter_add_shards(${T_PROGRAM} "unit;${MODULE};${T_LABELS}" ${T_POLLS})
    return()
  endif()
  gtest_discover_tests(${T_PROGRAM} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${T_TIMEOUT})
  gradmeter_label_cases(${T_PROGRAM} unit ${MODULE} ${T_LABELS})
endfunction()

# A quarter of a program's cases in one process: each of 2,500 would pay for a start of its own.
function(gradmeter_add_shards PROGRAM LABELS POLLS)
  set(environment GTEST_TOTAL_SHARDS=4)
  # Cases that are long for their size or their number of draws alone: others run the same code.
  set(long *MillionsOfElements* *PastTheCaches*/*_* *WithManyWorkers* *ABiggerLayer* *ErrorIsTheFormulas*
      ExpectedError.IsWhatEachCodecDoes ParameterServer.ChunksTravelUnderTheBackwardPass
      ParameterServer.ARunTakesNoLessThanTheForecast Population.FindsBetterModelsThanItBeganWith
      Roofline.EveryInstructionSet* SimWorld.TwoHundredWorkers* VerdictCalibration.*)
  list(JOIN long ":" long)
  if(GRADMETER_SANITIZE)
    list(APPEND environment "GTEST_FILTER=-${long}")
  endif()
  # The thread sanitizer does not know how OpenMP's threads wait for each other (GCC's libgomp uses futexes of its own)
  # and reports a race for every element that they share, minutes of it: there a rank computes with one thread.
  if(GRADMETER_SANITIZE STREQUAL "thread")
    list(APPEND environment OMP_NUM_THREADS=1 ${GRADMETER_TSAN_ENV})
  endif()
  # Threads that wait leave the cores to the tests beside them, and freed memory stays with the process: its next user need not have it
  # cleared again, which takes a third of some programs' time. Not where a sanitizer has an allocator of its own.
  list(APPEND environment OMP_WAIT_POLICY=passive)
  if(NOT GRADMETER_SANITIZE AND NOT PROGRAM MATCHES "memory")
    list(APPEND environment GLIBC_TUNABLES=glibc.malloc.mmap_threshold=268435456:glibc.malloc.trim_threshold=1073741824)
  endif()
  foreach(shard RANGE 3)
    add_test(NAME ${PROGRAM}.${shard} COMMAND ${PROGRAM} --gtest_brief=1)
    set_tests_properties(${PROGRAM}.${shard} PROPERTIES
      TIMEOUT 900 LABELS "${LABELS}" RUN_SERIAL ${POLLS} ENVIRONMENT "${environment};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# Gives every case of a test program its labels. gtest_discover_tests itself keeps only the first of a list (CMake 3.25);
# so a file that ctest reads after its list of cases does it.
function(gradmeter_label_cases PROGRAM)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${PROGRAM}_labels.cmake)
  file(WRITE ${file} "if(${PROGRAM}_TESTS)\n"
                     "  set_tests_properties(\${${PROGRAM}_TESTS} PROPERTIES LABELS \"${ARGN}\")\n"
                     "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

function(gradmeter_mpi_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "RANKS;MPIEXEC_ARGS;COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  foreach(ranks ${T_RANKS})
    if(ranks EQUAL 1)
      set(alone FALSE)
    else()
      set(alone TRUE)
    endif()
    add_test(NAME mpi.${NAME}.np${ranks} COMMAND ${MPIEXEC_EXECUTABLE} -np ${ranks} ${T_MPIEXEC_ARGS} ${T_COMMAND})
    set_tests_properties(mpi.${NAME}.np${ranks} PROPERTIES
      TIMEOUT ${T_TIMEOUT} RUN_SERIAL ${alone} LABELS "mpi;${T_LABELS}"
      ENVIRONMENT "${GRADMETER_MPIEXEC_ENV}")
  endforeach()
endfunction()
