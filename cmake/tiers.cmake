# Kernel tiers: the suffix of a file names the instructions it may use, and only such files get ISA
# flags. Everything else, the detector above all, is built for the baseline of the architecture.
function(brim_tier_sources out)
  set(sources)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/x86/*.c)
    foreach(source ${sources})
      if(source MATCHES "_avx2\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx2;-mfma;-mf16c;-mbmi2")
      elseif(source MATCHES "_avx512\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512")
      elseif(source MATCHES "_avx512bf16\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512bf16;-mprefer-vector-width=512")
      endif()
      if(BRIM_FUZZ)
        # fuzz targets run no kernel, and instrumenting one takes clang a minute
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=all")
      endif()
    endforeach()
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/arm/*.c)
    foreach(source ${sources})
      if(source MATCHES "_dotprod\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
      endif()
    endforeach()
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
