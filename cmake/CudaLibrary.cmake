# SPDX-License-Identifier: Apache-2.0
# gradmeter_cuda_library(PREFIX HEADER NAME [SOVERSION n] [PLACES ...]): a library of CUDA's and its header, as the cache variables
# PREFIX_INCLUDE_DIR and PREFIX_LIBRARY. They are looked for in the places, then in the toolkit and the system, then in Python's
# packages (PyTorch brings them): PACKAGES/nvidia/*/include and lib, where the library has only its full name, libNAME.so.N.
# A header and a library of different installations are never mixed. SOVERSION: the only N that will do.
set(GRADMETER_PYTHON_PACKAGES "" CACHE STRING "folders in which Python's packages of CUDA's libraries lie (site-packages); empty: those of python3")

# OUT: the folders in which python3, the first on the PATH, looks for packages.
function(gradmeter_python_packages OUT)
  set(folders ${GRADMETER_PYTHON_PACKAGES})
  if(NOT folders)
    execute_process(COMMAND python3 -c "import sys; print(';'.join(p for p in sys.path if p), end='')"
                    OUTPUT_VARIABLE folders ERROR_QUIET RESULT_VARIABLE failed)
  endif()
  set(${OUT} ${folders} PARENT_SCOPE)
endfunction()

# OUT: the library in one of these folders, by its short name or its full one; the newest where there are several. Empty: none.
function(gradmeter_library_file NAME SOVERSION OUT)
  set(found)
  foreach(folder ${ARGN})
    if(SOVERSION)
      file(GLOB found ${folder}/lib${NAME}.so.${SOVERSION})
    else()
      file(GLOB found ${folder}/lib${NAME}.so ${folder}/lib${NAME}.so.[0-9]*)
      list(SORT found COMPARE NATURAL ORDER DESCENDING)
    endif()
    if(found)
      break()
    endif()
  endforeach()
  list(SUBLIST found 0 1 first)
  set(${OUT} ${first} PARENT_SCOPE)
endfunction()

function(gradmeter_cuda_library PREFIX HEADER NAME)
  cmake_parse_arguments(L "" "SOVERSION" "PLACES" ${ARGN})
  if(${PREFIX}_INCLUDE_DIR AND ${PREFIX}_LIBRARY)
    return()
  endif()
  find_path(${PREFIX}_INCLUDE_DIR ${HEADER} HINTS ${L_PLACES} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(${PREFIX}_LIBRARY NAMES ${NAME} HINTS ${L_PLACES} ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64)
  if(${PREFIX}_INCLUDE_DIR AND NOT ${PREFIX}_LIBRARY)  # a toolkit with the libraries that programs load, not those they are linked with
    gradmeter_library_file(${NAME} "${L_SOVERSION}" library ${CUDAToolkit_LIBRARY_DIR})
    if(library)
      set(${PREFIX}_LIBRARY ${library} CACHE FILEPATH "" FORCE)
    endif()
  endif()
  if(${PREFIX}_INCLUDE_DIR AND ${PREFIX}_LIBRARY)
    return()
  endif()
  gradmeter_python_packages(packages)
  foreach(folder ${packages})
    file(GLOB headers ${folder}/nvidia/*/include/${HEADER})
    foreach(header ${headers})
      cmake_path(GET header PARENT_PATH include)
      gradmeter_library_file(${NAME} "${L_SOVERSION}" library ${include}/../lib)
      if(library)
        cmake_path(NORMAL_PATH library)
        set(${PREFIX}_INCLUDE_DIR ${include} CACHE PATH "" FORCE)
        set(${PREFIX}_LIBRARY ${library} CACHE FILEPATH "" FORCE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()
