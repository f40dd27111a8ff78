// What this machine can do, measured now: the bounds that speeds are printed beside.
#pragma once
#include <cstddef>

#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/isa.h"

namespace lockstep::cli {

/// Bytes a second that all threads read together, over and over `bytes` of memory (each its own part), by the better of two loops. With
/// fewer bytes than the caches hold this is the caches' rate, as it is for a model of that size.
double read_rate(kernels::cpu::ThreadPool& pool, std::size_t bytes);

/// Operations a second (a fused multiply-add is two) of a register-only loop of 256-bit multiply-adds on all threads; 0 without AVX2.
double multiply_add_rate(kernels::cpu::ThreadPool& pool);

/// Bytes of packed weights (codes, scales, biases) a second that the decode kernel turns into sums on all threads, from tiles that stay in
/// L1.
double unpack_rate(kernels::cpu::ThreadPool& pool, kernels::Isa isa, int bits, int group_size);

}  // namespace lockstep::cli
