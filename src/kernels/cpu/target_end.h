// Last include of every source of cpu/ (see target.h).
#if defined(__clang__) && !defined(LOCKSTEP_ISA_GENERIC)
#pragma clang attribute pop
#endif
