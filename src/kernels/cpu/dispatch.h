// How an operation's functions for each instruction set are found: the header of an operation declares a struct of function pointers and
// LOCKSTEP_DECLARE_KERNELS(Type, name); its source defines `const Type name = {...};` inside `namespace lockstep::kernels::cpu::LOCKSTEP_ISA`.
// name_kernels(isa) gives the struct.
#pragma once
#include "kernels/isa.h"

#define LOCKSTEP_DECLARE_KERNELS(Type, name)       \
  namespace generic { extern const Type name; }    \
  namespace avx2 { extern const Type name; }       \
  namespace avx512 { extern const Type name; }     \
  namespace avx512bf16 { extern const Type name; } \
  inline const Type& name##_kernels(Isa isa) {     \
    switch (isa) {                                 \
      case Isa::kAvx2: return avx2::name;          \
      case Isa::kAvx512: return avx512::name;      \
      case Isa::kAvx512Bf16: return avx512bf16::name; \
      default: return generic::name;               \
    }                                              \
  }
