// First include of every source of cpu/: it is compiled once for each instruction set, with LOCKSTEP_ISA the namespace (generic, avx2,
// avx512, avx512bf16) and one of LOCKSTEP_ISA_GENERIC, _AVX2, _AVX512, _AVX512BF16 defined. Everything a kernel needs from the
// standard library is included here, before the target pragma, so that no inline function of it is built for the newer set (the linker
// might pick that copy for an old machine). Nothing else may be included after it but headers of kernels/cpu. A source ends with
// `#include "kernels/cpu/target_end.h"`.
#pragma once
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own AVX-512 header initialises a variable with itself, which it then warns about wherever it is inlined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/bfloat16.h"
#include "kernels/isa.h"

#if defined(__clang__)
#if defined(LOCKSTEP_ISA_AVX2)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2"))), apply_to = function)
#elif defined(LOCKSTEP_ISA_AVX512)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2"))), apply_to = function)
#elif defined(LOCKSTEP_ISA_AVX512BF16)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,avx2,fma,f16c,bmi,bmi2"))), apply_to = function)
#endif
#else
#if defined(LOCKSTEP_ISA_AVX2)
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#elif defined(LOCKSTEP_ISA_AVX512)
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,prefer-vector-width=512")
#elif defined(LOCKSTEP_ISA_AVX512BF16)
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,avx2,fma,f16c,bmi,bmi2,prefer-vector-width=512")
#endif
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))
