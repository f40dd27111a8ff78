#include "kernels/isa.h"

namespace lockstep::kernels {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric: return "generic";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512bf16";
  }
  return "?";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    if (isa_name(isa) == name) return isa;
  return std::nullopt;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas{Isa::kGeneric};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return isas;
  isas.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq"))
    return isas;
  isas.push_back(Isa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) isas.push_back(Isa::kAvx512Bf16);
  return isas;
}

Isa best_isa() { return available_isas().back(); }

}  // namespace lockstep::kernels
