// What make_matrix makes: rows of bf16 or tiles of codes.
#pragma once
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/runtime/pages.h"

namespace lockstep::kernels::cpu {

class StoredMatrix final : public CpuMatrix {
 public:
  void embed(std::int64_t id, bf16* out) const override;

  bool affine = false;
  TileLayout layout;                // affine
  const std::byte* data = nullptr;  // plain: rows of in_features bf16; affine: tiles; 64-byte aligned
  Pages owned;                      // where data lies
  std::int64_t tiles() const { return (out_features + kTileOutputs - 1) / kTileOutputs; }
};

}  // namespace lockstep::kernels::cpu
