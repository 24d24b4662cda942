# SPDX-License-Identifier: Apache-2.0
# The search for CUDA's libraries (cmake/CudaLibrary.cmake), over folders of empty files.
#   cmake -D WORK=scratch/folder -P cuda_library.cmake
cmake_minimum_required(VERSION 3.25)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
set(GRADMETER_PYTHON_PACKAGES ${WORK}/first ${WORK}/second CACHE STRING "")
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/CudaLibrary.cmake)
file(REMOVE_RECURSE ${WORK})
foreach(file toolkit/include/both.h toolkit/lib/libboth.so toolkit/include/only_header.h
        toolkit/include/loaded.h toolkit/lib/libloaded.so.3
        first/nvidia/empty/include/packed.h
        second/nvidia/cu13/include/packed.h second/nvidia/cu13/lib/libpacked.so.9 second/nvidia/cu13/lib/libpacked.so.10
        second/nvidia/cu13/include/both.h second/nvidia/cu13/lib/libboth.so.1
        second/nvidia/parts/include/only_header.h second/nvidia/parts/lib/libonly_header.so.2
        home/include/given.h home/lib64/libgiven.so second/nvidia/cu13/include/given.h second/nvidia/cu13/lib/libgiven.so.1)
  file(WRITE ${WORK}/${file} "")
endforeach()
set(CUDAToolkit_INCLUDE_DIRS ${WORK}/toolkit/include)
set(CUDAToolkit_LIBRARY_DIR ${WORK}/toolkit/lib)

function(expect PREFIX INCLUDE LIBRARY)
  foreach(pair "INCLUDE_DIR;${INCLUDE}" "LIBRARY;${LIBRARY}")
    list(GET pair 0 what)
    list(GET pair 1 wanted)
    if(NOT "${${PREFIX}_${what}}" STREQUAL "${WORK}/${wanted}")
      message(SEND_ERROR "${PREFIX}_${what}: '${${PREFIX}_${what}}' instead of '${WORK}/${wanted}'")
    endif()
  endforeach()
endfunction()

# The toolkit comes first, also where it has only the library that programs load.
gradmeter_cuda_library(BOTH both.h both)
expect(BOTH toolkit/include toolkit/lib/libboth.so)
gradmeter_cuda_library(LOADED loaded.h loaded)
expect(LOADED toolkit/include toolkit/lib/libloaded.so.3)
# Of packages the newest version, or the one that will do; a header without its library is none.
gradmeter_cuda_library(PACKED packed.h packed)
expect(PACKED second/nvidia/cu13/include second/nvidia/cu13/lib/libpacked.so.10)
gradmeter_cuda_library(OLDER packed.h packed SOVERSION 9)
expect(OLDER second/nvidia/cu13/include second/nvidia/cu13/lib/libpacked.so.9)
# The toolkit's header is not taken with another installation's library.
gradmeter_cuda_library(HEADER only_header.h only_header)
expect(HEADER second/nvidia/parts/include second/nvidia/parts/lib/libonly_header.so.2)
gradmeter_cuda_library(GIVEN given.h given PLACES ${WORK}/home)
expect(GIVEN home/include home/lib64/libgiven.so)
gradmeter_cuda_library(NEWER packed.h packed SOVERSION 11)
if(NEWER_LIBRARY)
  message(SEND_ERROR "version 11 is nowhere, and was found: ${NEWER_LIBRARY}")
endif()
