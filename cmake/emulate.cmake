# The CUDA kernels on the CPU (docs/verification.md): src/cuda compiled as C++ against tests/emu, which
# needs no CUDA toolkit, the checks of tests/cuda as programs emu_<name>, and the command as emu_brim.
option(BRIM_EMULATE "Build the CUDA kernels for the emulator on the CPU, and their checks" OFF)
if(BRIM_EMULATE)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    message(FATAL_ERROR "BRIM_EMULATE: the emulator is written for x86-64 Linux")
  endif()
  if(BRIM_HAVE_CUDA)
    message(FATAL_ERROR "BRIM_EMULATE and BRIM_CUDA exclude each other: configure with -DBRIM_CUDA=OFF")
  endif()
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(BRIM_HAVE_CUDA ON)
  # Lines of a backtrace, not variables: a sixth of the time to compile.
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
endif()

# How a .cu file becomes C++. The emulator's headers stand before those they replace. A shared
# variable is thread_local and never initialised, so it needs no function to reach it. f16 and fused
# multiply-adds by instruction, or they take most of the time.
function(brim_emulated target)
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/emu/include
                             ${PROJECT_SOURCE_DIR}/tests/emu)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-mavx2;-mfma;-mf16c
    -fno-strict-aliasing;-fno-extern-tls-init;-Wall;-Wextra;-Wno-unknown-pragmas
    # a variable that only some lanes or some instances use; a base of a template argument's linkage
    -Wno-maybe-uninitialized;-Wno-uninitialized;-Wno-unused-parameter;-Wno-subobject-linkage>)
endfunction()

# brim_cuda_objects as in cuda.cmake, and the emulator in it.
function(brim_emulated_library)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
  file(GLOB emulator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emu/*.cpp)
  list(REMOVE_ITEM emulator_sources ${PROJECT_SOURCE_DIR}/tests/emu/test_emu.cpp)
  set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX)
  add_library(brim_cuda_objects OBJECT ${cuda_sources} ${emulator_sources})
  brim_emulated(brim_cuda_objects)
endfunction()

# A test emu/NAME/seed-N for each of SEEDS: the program emu_PROGRAM with ARGUMENTS in the order of that
# seed. COST, in seconds of a processor, lets CTest begin with the longest.
function(brim_emulated_test name program cost seeds)
  foreach(seed ${seeds})
    add_test(NAME emu/${name}/seed-${seed} COMMAND emu_${program} ${ARGN}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(emu/${name}/seed-${seed} PROPERTIES LABELS emu TIMEOUT 900 COST ${cost}
                         ENVIRONMENT BRIM_EMU_SEED=${seed})
  endforeach()
endfunction()

# The command line on the emulated device; tests/emu/test_cli.sh runs it.
function(brim_emulated_command)
  file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/app/cli/*.c)
  file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
  set_source_files_properties(${bench_sources} PROPERTIES INCLUDE_DIRECTORIES
                              ${PROJECT_SOURCE_DIR}/src)
  add_executable(emu_brim ${cli_sources} ${bench_sources} $<TARGET_OBJECTS:brim_engine_objects>
                 $<TARGET_OBJECTS:brim_kernel_objects> $<TARGET_OBJECTS:brim_cuda_objects>)
  set_target_properties(emu_brim PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_definitions(emu_brim PRIVATE _POSIX_C_SOURCE=200809L)
  target_include_directories(emu_brim PRIVATE ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/app/cli)
  target_link_libraries(emu_brim PRIVATE PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::UTF8PROC
                        Threads::Threads m)
  brim_warnings(emu_brim)
  add_test(NAME emu/cli COMMAND bash ${PROJECT_SOURCE_DIR}/tests/emu/test_cli.sh
           $<TARGET_FILE:emu_brim>)
  set_tests_properties(emu/cli PROPERTIES LABELS emu TIMEOUT 900 COST 40 SKIP_RETURN_CODE 77)
endfunction()

function(brim_emulated_programs)
  if(TARGET brim_engine_objects)
    brim_emulated_command()
  endif()
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda/check_*.c
       ${PROJECT_SOURCE_DIR}/tests/cuda/check_*.cu ${PROJECT_SOURCE_DIR}/tests/cuda/bench_kda.c
       ${PROJECT_SOURCE_DIR}/tests/cuda/bench_kda_compose.cu
       ${PROJECT_SOURCE_DIR}/tests/cuda/sanitize_*.cu)
  foreach(source ${programs} ${PROJECT_SOURCE_DIR}/tests/emu/test_emu.cpp
          ${PROJECT_SOURCE_DIR}/tests/emu/test_device_engine.c)
    get_filename_component(name ${source} NAME_WE)
    if(name MATCHES "_engine$" AND NOT TARGET brim_engine_objects)
      continue()
    endif()
    if(source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
    endif()
    add_executable(emu_${name} ${source} $<TARGET_OBJECTS:brim_kernel_objects>
                   $<TARGET_OBJECTS:brim_cuda_objects>)
    set_target_properties(emu_${name} PROPERTIES LINKER_LANGUAGE CXX)
    brim_emulated(emu_${name})
    target_link_libraries(emu_${name} PRIVATE Threads::Threads m)
    # Short forms. Each seed is another order of everything that has none; where a form takes long,
    # fewer of them.
    if(name STREQUAL "bench_kda") # its checks, at set tiny; its times say nothing
      target_sources(emu_${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench/kda_cuda.c
                     ${PROJECT_SOURCE_DIR}/bench/kda_shapes.c)
      target_include_directories(emu_${name} PRIVATE ${PROJECT_SOURCE_DIR}/app/cli)
      brim_emulated_test(${name} ${name} 6 1 tiny all 1)
    elseif(name STREQUAL "check_kda_routes")
      foreach(part equal delay)
        brim_emulated_test(${name}-${part} ${name} 8 "1;2" ${part} short)
      endforeach()
    elseif(name STREQUAL "sanitize_kda")
      brim_emulated_test(${name} ${name} 2 "1;2" queue bound 57,33,0,70,1 few)
    elseif(name STREQUAL "sanitize_barrier")
      foreach(way relay pair load acked join kept lane)
        brim_emulated_test(${name}-${way} ${name} 1 "0;1;2;3" ${way})
      endforeach()
    elseif(name STREQUAL "check_kda_gate")
      brim_emulated_test(${name} ${name} 2 "1;2;3"
                         m128,m64,pair,queue,c4-m128,c4-m64,c5-m64,c6-m64,c8-m128 short)
    elseif(name STREQUAL "check_kda")
      brim_emulated_test(${name} ${name} 3 "1;2" m128 quick)
    elseif(name STREQUAL "check_kda_late")
      brim_emulated_test(${name} ${name} 20 "1;2" short)
    elseif(name STREQUAL "check_kda_first")
      brim_emulated_test(${name} ${name} 3 "1;2" short)
      set_property(TEST emu/${name}/seed-1 emu/${name}/seed-2 APPEND PROPERTY ENVIRONMENT
                   "BRIM_EMU_MEMORY=200000000;BRIM_EMU_CODE=1000000")
    elseif(name MATCHES "^check_kda_")
      brim_emulated_test(${name} ${name} 7 "1;2" short)
    elseif(name MATCHES "^check_(model|sample)$")
      brim_emulated_test(${name} ${name} 25 1 short)
    elseif(name MATCHES "_engine$")
      target_sources(emu_${name} PRIVATE $<TARGET_OBJECTS:brim_engine_objects>)
      target_link_libraries(emu_${name} PRIVATE PkgConfig::JANSSON PkgConfig::PCRE2
                            PkgConfig::UTF8PROC)
      brim_emulated_test(${name} ${name} 20 1 short)
    else()
      brim_emulated_test(${name} ${name} 4 "0;1;2" short)
    endif()
  endforeach()
endfunction()
