# Fails on an #include that points up the house, or that brings in a foreign library by another door than its own.
#   cmake -D SOURCE=path/to/src -P layering.cmake
# The order of the rooms and the doors are docs/design.md's; to let a room use another, extend its line here.
cmake_minimum_required(VERSION 3.25)

# From the ground up: a room may use itself and the rooms its line names, all of them on lines above it.
set(rooms core runtime kernels model compression allreduce dataparallel predict bench report cli)
set(core_uses)
set(runtime_uses core)
set(kernels_uses core runtime)
set(model_uses core runtime kernels)
set(compression_uses core kernels)
set(allreduce_uses core runtime kernels compression)
set(dataparallel_uses core runtime kernels model compression allreduce)
set(predict_uses core allreduce)
set(bench_uses core runtime kernels model compression allreduce dataparallel predict)
set(report_uses core)
set(cli_uses core runtime kernels model compression allreduce dataparallel predict bench report)

# library @ what its includes look like @ the paths under src that may have them
set(doors
  "MPI @ ^mpi(-ext)?\\.h$ @ ^runtime/"
  "NCCL @ ^nccl[^/]*\\.h$ @ ^(runtime|kernels)/"
  "NVML @ ^nvml\\.h$ @ ^runtime/"
  "gloo @ ^gloo/ @ ^runtime/"
  "hwloc @ ^hwloc(/|\\.h$) @ ^runtime/"
  "cuBLAS or cuDNN @ ^(cublas|cudnn) @ ^kernels/"
  "CUDA @ ^(cuda|cooperative_groups|mma\\.h|nvtx) @ ^(runtime|kernels)/"
  "oneDNN @ ^(oneapi/dnnl/)?dnnl @ ^kernels/"
  "zlib @ ^z(lib|conf)\\.h$ @ ^model/"
  "Boost @ ^boost/ @ ^cli/"
  "JSON @ ^nlohmann/ @ ^core/json\\.hpp$"
  "fmt @ ^fmt/ @ ^core/format\\.hpp$"
  "Highway @ ^hwy/ @ .")

# Is `included` a foreign library's header? Reports it when `file` is not its door.
function(check_door file included is_foreign)
  foreach(door IN LISTS doors)
    string(REPLACE " @ " ";" door "${door}")
    list(POP_FRONT door library pattern allowed)
    if(included MATCHES "${pattern}")
      if(NOT file MATCHES "${allowed}")
        message(SEND_ERROR "src/${file} includes ${included}: ${library} has its door elsewhere (${allowed})")
      endif()
      set(${is_foreign} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${is_foreign} FALSE PARENT_SCOPE)
endfunction()

# `form` is the quote or the angle bracket that opens the include.
function(check_include file room form included)
  check_door(${file} ${included} is_foreign)
  if(is_foreign)
    return()
  endif()
  string(REGEX MATCH "^[^/]*" target "${included}")
  if(target IN_LIST rooms)
    if(NOT target STREQUAL room AND NOT target IN_LIST ${room}_uses)
      message(SEND_ERROR "src/${file} includes ${included}: ${room} may use ${${room}_uses}, not ${target}")
    endif()
  elseif(form STREQUAL "\"")
    message(SEND_ERROR "src/${file} includes \"${included}\": name the room, as in \"${room}/${included}\"")
  endif()
endfunction()

function(check_file file)
  string(REGEX MATCH "^[^/]*" room ${file})
  if(NOT room IN_LIST rooms)
    message(SEND_ERROR "src/${file}: no room '${room}' in tests/layering.cmake; give it its place in the order there")
    return()
  endif()
  file(STRINGS ${SOURCE}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    if(line MATCHES "include[ \t]*([<\"])([^>\"]+)[>\"]")
      check_include(${file} ${room} ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    endif()
  endforeach()
endfunction()

# The table itself points down only.
set(below)
foreach(room IN LISTS rooms)
  foreach(used IN LISTS ${room}_uses)
    if(NOT used IN_LIST below)
      message(SEND_ERROR "tests/layering.cmake: ${room} uses ${used}, which is not below it")
    endif()
  endforeach()
  list(APPEND below ${room})
endforeach()

file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/*.cpp ${SOURCE}/*.hpp ${SOURCE}/*.h ${SOURCE}/*.cu ${SOURCE}/*.cuh)
list(LENGTH files count)
if(count EQUAL 0)
  message(SEND_ERROR "no sources under ${SOURCE}: pass -D SOURCE=path/to/src")
endif()
foreach(file IN LISTS files)
  check_file(${file})
endforeach()
message(STATUS "layering: ${count} files looked at")
