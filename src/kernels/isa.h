// Instruction sets of the CPU backend and which of them this machine has.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::kernels {

/// All give the same bits (EXACTNESS E9). kAvx512 uses VNNI for integer products where the chip has it; kAvx512Bf16 adds the BF16 dot
/// instruction where a start-up self-check finds it equal to the fused pair.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view isa_name(Isa isa);                          // "generic", "avx2", "avx512", "avx512bf16"
std::optional<Isa> isa_from_name(std::string_view name);
std::vector<Isa> available_isas();                           // slowest first
Isa best_isa();

}  // namespace lockstep::kernels
