#include "sampling/keyed_noise.h"

#include "sampling/sampler.h"

namespace lockstep::sampling {

std::uint64_t choice_seed(std::uint64_t seed, int choice) { return choice == 0 ? seed : splitmix64(seed + std::uint64_t(choice)); }

double keyed_noise(std::uint64_t seed, std::uint64_t index, std::int32_t token) {
  return NoiseKey::gumbel(NoiseKey(seed, index).bits(token));
}

}  // namespace lockstep::sampling
