# Flags of every target. Fused multiply-adds are written out where they are meant, so that all tiers
# of one kernel can be compared; fast-math is never on.
add_compile_options(-fno-math-errno -ffp-contract=off)
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")

# A shared library that lacks a symbol fails here, not in the program that loads it.
if(NOT BRIM_SANITIZE)
  string(APPEND CMAKE_SHARED_LINKER_FLAGS " -Wl,--no-undefined")
endif()

if(BRIM_SANITIZE)
  add_compile_options(-fsanitize=${BRIM_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BRIM_SANITIZE})
endif()

function(brim_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef
    $<$<BOOL:${BRIM_WERROR}>:-Werror>)
endfunction()

if(BRIM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
