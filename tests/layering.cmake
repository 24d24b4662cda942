# SPDX-License-Identifier: Apache-2.0
# Fails on an #include that points up the order of modules, or of a foreign library outside its adapter.
#   cmake -D SOURCE=path/to/src -P layering.cmake
# docs/design.md draws the order of the modules. To let a module use another, extend its line here.
cmake_minimum_required(VERSION 3.25)

# Lowest first: a module may use itself and the modules that its line names, all of them on lines above it.
set(modules core runtime kernels model compression allreduce dataparallel predict analysis importers report bench cli)
set(core_uses)
set(runtime_uses core)
set(kernels_uses core runtime)
set(model_uses core runtime kernels)
set(compression_uses core runtime kernels)
set(allreduce_uses core runtime kernels compression)
set(dataparallel_uses core runtime kernels model compression allreduce)
set(predict_uses core runtime kernels model compression allreduce dataparallel)
set(analysis_uses core)
set(importers_uses core runtime kernels dataparallel)
set(report_uses core analysis)
set(bench_uses core runtime kernels model compression allreduce dataparallel analysis importers report)
set(cli_uses core runtime kernels model compression allreduce dataparallel predict bench analysis importers report)

# library @ what its includes look like @ the paths under src that may have them
set(adapters
  "MPI @ ^(mpi(-ext)?\\.h|runtime/mpi/mpi\\.hpp)$ @ ^runtime/mpi/"
  "NCCL @ ^nccl[^/]*\\.h$ @ ^(runtime|kernels)/"
  "NVML @ ^nvml\\.h$ @ ^runtime/"
  "gloo @ ^gloo/ @ ^runtime/"
  "hwloc @ ^hwloc(/|\\.h$) @ ^runtime/"
  "cuBLAS, cuDNN, cuSPARSE or cuSPARSELt @ ^(cublas|cudnn|cusparse) @ ^kernels/"
  "CUDA @ ^(cuda|cooperative_groups|mma\\.h|nvtx) @ ^((runtime|kernels)/|compression/cuda/|allreduce/gpu/)"
  "oneDNN @ ^(oneapi/dnnl/)?dnnl @ ^kernels/"
  "zlib @ ^z(lib|conf)\\.h$ @ ^(model|importers)/"
  "Boost.Math @ ^boost/math/ @ ^analysis/"
  "Boost @ ^boost/ @ ^(cli/|runtime/cuda/queue|runtime/transport/decorators)"
  "JSON @ ^nlohmann/ @ ^core/json\\.hpp$"
  "fmt @ ^fmt/ @ ^core/format\\.hpp$"
  "Highway @ ^hwy/ @ .")

# folder @ what it may not include: schedules, plans, proofs and costs are values, without ranks and devices
set(pure
  "^allreduce/schedule/ @ ^(runtime|compression|kernels)/")

# What prints without losing what a terminal would obey @ the paths under src that may
set(printers "fmt::print\\(|std::(f?puts|f?printf|cout|cerr)[^a-z_]" "^core/(print|error)\\.cpp$")

# Is `included` a foreign library's header? Reports it when `file` is not in the library's adapter.
function(check_adapter file included is_foreign)
  foreach(adapter IN LISTS adapters)
    string(REPLACE " @ " ";" adapter "${adapter}")
    list(POP_FRONT adapter library pattern allowed)
    if(included MATCHES "${pattern}")
      if(NOT file MATCHES "${allowed}")
        message(SEND_ERROR "src/${file} includes ${included}: only the adapter of ${library} may (${allowed})")
      endif()
      set(${is_foreign} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${is_foreign} FALSE PARENT_SCOPE)
endfunction()

# Does a pure folder include what it must do without?
function(check_pure file included)
  foreach(rule IN LISTS pure)
    string(REPLACE " @ " ";" rule "${rule}")
    list(POP_FRONT rule folder forbidden)
    if(file MATCHES "${folder}" AND included MATCHES "${forbidden}")
      message(SEND_ERROR "src/${file} includes ${included}: this folder does without ${forbidden}")
    endif()
  endforeach()
endfunction()

# `form` is the quote or the angle bracket that opens the include.
function(check_include file module form included)
  check_pure(${file} ${included})
  check_adapter(${file} ${included} is_foreign)
  if(is_foreign)
    return()
  endif()
  string(REGEX MATCH "^[^/]*" target "${included}")
  if(target IN_LIST modules)
    if(NOT target STREQUAL module AND NOT target IN_LIST ${module}_uses)
      message(SEND_ERROR "src/${file} includes ${included}: ${module} may use ${${module}_uses}, not ${target}")
    endif()
  elseif(form STREQUAL "\"")
    message(SEND_ERROR "src/${file} includes \"${included}\": name the module, as in \"${module}/${included}\"")
  endif()
endfunction()

function(check_file file)
  string(REGEX MATCH "^[^/]*" module ${file})
  if(NOT module IN_LIST modules)
    message(SEND_ERROR "src/${file}: no module '${module}' in tests/layering.cmake; give it its place in the order there")
    return()
  endif()
  file(STRINGS ${SOURCE}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  list(GET printers 0 printer)
  list(GET printers 1 allowed)
  if(NOT file MATCHES "${allowed}")
    file(STRINGS ${SOURCE}/${file} printing REGEX "${printer}")
    foreach(line IN LISTS printing)
      message(SEND_ERROR "src/${file} prints by itself, where texts of others could command the terminal: use core::print (core/print.hpp): ${line}")
    endforeach()
  endif()
  foreach(line IN LISTS lines)
    if(line MATCHES "include[ \t]*([<\"])([^>\"]+)[>\"]")
      check_include(${file} ${module} ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    endif()
  endforeach()
endfunction()

# The table itself points down only.
set(below)
foreach(module IN LISTS modules)
  foreach(used IN LISTS ${module}_uses)
    if(NOT used IN_LIST below)
      message(SEND_ERROR "tests/layering.cmake: ${module} uses ${used}, which is not below it")
    endif()
  endforeach()
  list(APPEND below ${module})
endforeach()

file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/*.cpp ${SOURCE}/*.hpp ${SOURCE}/*.h ${SOURCE}/*.cu ${SOURCE}/*.cuh)
list(LENGTH files count)
if(count EQUAL 0)
  message(SEND_ERROR "no sources under ${SOURCE}: pass -D SOURCE=path/to/src")
endif()
foreach(file IN LISTS files)
  check_file(${file})
endforeach()
message(STATUS "layering: ${count} files checked")
