// LOCKSTEP_CHECK: an invariant of our own. Never reachable from bytes of a client or a file.
#pragma once
#include <cstdio>
#include <cstdlib>

#define LOCKSTEP_CHECK(condition)                                                                     \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                                   \
    }                                                                                                 \
  } while (0)
