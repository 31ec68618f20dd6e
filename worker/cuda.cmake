# Finds a CUDA toolkit (12.8 or newer, with cuBLAS and NCCL) and adds the CUDA operations to windlass_worker_lib; without one it
# says so in one line and adds the answers of a build without CUDA.
#
# Looked for in this order: -DWINDLASS_CUDA_ROOT or the environment's WINDLASS_CUDA_ROOT (a toolkit folder, such as
# scripts/setup-cuda makes), CUDACXX, CUDA_HOME, nvcc on PATH, /usr/local/cuda, then where scripts/setup-cuda puts it by default.
# nvcc is called directly rather than through enable_language(CUDA): CMake 3.25 ends the configure when its own probes fail, does
# not know -std=c++20 for nvcc, and does not know the newest architectures.
set(WINDLASS_CUDA_ROOT "" CACHE PATH "folder of a CUDA toolkit (bin/nvcc, include, lib)")
set(cuda_missing "")

function(windlass_find_cuda)
  if(NOT WINDLASS_CUDA)
    set(cuda_missing "WINDLASS_CUDA is OFF" PARENT_SCOPE)
    return()
  endif()
  set(cache_folder "$ENV{WINDLASS_CACHE}")
  if(NOT cache_folder)
    set(cache_folder "$ENV{HOME}/.cache/windlass")
  endif()
  set(given "${WINDLASS_CUDA_ROOT}")
  if(NOT given)
    set(given "$ENV{WINDLASS_CUDA_ROOT}")
  endif()
  if(given)
    set(candidates "${given}/bin/nvcc")
  else()
    find_program(on_path nvcc NO_CACHE)
    set(candidates "$ENV{CUDACXX}" "$ENV{CUDA_HOME}/bin/nvcc" "${on_path}" /usr/local/cuda/bin/nvcc "${cache_folder}/cuda/bin/nvcc")
  endif()
  set(why "no nvcc found (scripts/setup --cuda gets one)")
  foreach(nvcc IN LISTS candidates)
    if(NOT EXISTS "${nvcc}" OR IS_DIRECTORY "${nvcc}")
      continue()
    endif()
    execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
      set(why "${nvcc} does not run")
      continue()
    endif()
    set(version ${CMAKE_MATCH_1})
    if(version VERSION_LESS 12.8)
      set(why "${nvcc} is ${version}, 12.8 or newer is needed")
      continue()
    endif()
    get_filename_component(real "${nvcc}" REALPATH)
    get_filename_component(root "${real}" DIRECTORY)
    get_filename_component(root "${root}" DIRECTORY)
    foreach(name include_cublas include_nccl cudart cublas nccl)
      unset(${name})
    endforeach()
    set(places ${root} ${root}/targets/x86_64-linux)
    find_path(include_cublas cublas_v2.h PATHS ${places} PATH_SUFFIXES include NO_CACHE)
    find_path(include_nccl nccl.h PATHS ${places} PATH_SUFFIXES include NO_CACHE)
    find_library(cudart cudart PATHS ${places} PATH_SUFFIXES lib64 lib NO_CACHE)
    find_library(cublas cublas PATHS ${places} PATH_SUFFIXES lib64 lib NO_CACHE)
    find_library(nccl nccl PATHS ${places} PATH_SUFFIXES lib64 lib NO_CACHE)
    if(NOT include_cublas OR NOT include_nccl OR NOT cudart OR NOT cublas OR NOT nccl)
      set(why "${root} lacks cuBLAS, cudart or NCCL")
      continue()
    endif()
    set(cuda_nvcc "${nvcc}" PARENT_SCOPE)
    set(cuda_version "${version}" PARENT_SCOPE)
    set(cuda_includes "${include_cublas};${include_nccl}" PARENT_SCOPE)
    set(cuda_libraries "${cublas};${nccl};${cudart}" PARENT_SCOPE)
    set(cuda_missing "" PARENT_SCOPE)
    return()
  endforeach()
  set(cuda_missing "${why}" PARENT_SCOPE)
endfunction()

windlass_find_cuda()
if(cuda_missing)
  message(STATUS "CUDA: ${cuda_missing}; building without it")
  target_sources(windlass_worker_lib PRIVATE backend/cuda/ops_absent.cc)
else()
  message(STATUS "CUDA: ${cuda_nvcc} (${cuda_version}), libraries ${cuda_libraries}; for sm_80, sm_90 and sm_100")
  set(object ${CMAKE_CURRENT_BINARY_DIR}/rms_norm.cu.o)
  # PTX of the newest goes in as well, so that later chips can run it.
  add_custom_command(OUTPUT ${object}
    COMMAND ${cuda_nvcc} -c -std=c++20 -O2 -ccbin ${CMAKE_CXX_COMPILER} -I${CMAKE_CURRENT_SOURCE_DIR}/.. "-I$<JOIN:${cuda_includes},;-I>"
      -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=sm_100
      -gencode arch=compute_100,code=compute_100 -Werror all-warnings -Xcompiler=-Wall,-Wextra
      -MD -MF ${object}.d -o ${object} ${CMAKE_CURRENT_SOURCE_DIR}/backend/cuda/rms_norm.cu
    DEPENDS backend/cuda/rms_norm.cu backend/cuda/rms_norm.cuh
    DEPFILE ${object}.d
    COMMENT "Compiling CUDA kernels (rms_norm.cu)"
    VERBATIM COMMAND_EXPAND_LISTS)
  target_sources(windlass_worker_lib PRIVATE backend/cuda/ops.cc ${object})
  target_include_directories(windlass_worker_lib SYSTEM PRIVATE ${cuda_includes})
  target_link_libraries(windlass_worker_lib PRIVATE ${cuda_libraries})
endif()
