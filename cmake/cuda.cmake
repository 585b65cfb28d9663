# CUDA is optional: built for sm_90a when nvcc is found, otherwise the library is CPU-only and says so
# at run time. Nothing is compiled at run time: machine code only, no PTX for a driver to translate.
option(BRIM_CUDA "Build the CUDA kernels when nvcc is found" ON)
# For compute-sanitizer, which records each look of each thread at a barrier: what waits sleeps so long between two.
set(BRIM_WAIT_NS "" CACHE STRING "Nanoseconds that a waiting thread of a CUDA kernel sleeps; empty: it does not")
set(BRIM_HAVE_CUDA OFF)
if(BRIM_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    set(BRIM_HAVE_CUDA ON)
    if(BRIM_WAIT_NS)
      add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:BRIM_WAIT_NS=${BRIM_WAIT_NS}>)
    endif()
  endif()
endif()

# brim_cuda_objects: every src/cuda/**/*.cu. Sets nothing when CUDA is off.
function(brim_cuda_library)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
  add_library(brim_cuda_objects OBJECT ${cuda_sources})
  target_include_directories(brim_cuda_objects PUBLIC include PRIVATE src)
  target_compile_options(brim_cuda_objects PRIVATE
    "SHELL:-gencode=arch=compute_90a,code=sm_90a" -lineinfo
    "SHELL:-Xcompiler -Wall,-Wextra,-Wshadow"
    # A C program links the library without the C++ runtime: launch stubs hold guarded statics otherwise.
    "SHELL:-Xcompiler -fno-threadsafe-statics,-fno-exceptions"
    # A serialized wgmma costs more than 2x; ptxas only warns of it.
    "SHELL:-Xptxas --warning-as-error")
  set_target_properties(brim_cuda_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
