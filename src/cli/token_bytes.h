// Bytes of a model's states, and what one token reads of them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "models/model.h"

namespace lockstep::cli {

struct StateBytes {
  std::size_t recurrent = 0;  // of a stream, whatever its length
  std::size_t token = 0;      // K and V of one position, all layers
};
StateBytes state_bytes(const kernels::ModelShape& shape);

/// What a decode step at `length` tokens moves: weights once, the recurrent state read once and a sixteenth of it written and read again
/// (a fold every 16 tokens), K and V of every position.
struct TokenBytes {
  double weights = 0, recurrent = 0, kv = 0;
  double total() const { return weights + recurrent + kv; }
};
TokenBytes token_bytes(const models::Model& model, double length);

/// Multiplications and additions of one token of a prompt of `length` tokens, the head left out: matmuls, attention (half of the square),
/// DeltaNet (three products with the state).
double prefill_operations(const models::Model& model, double length);
/// Those of the head for one row.
double head_operations(const models::Model& model);

}  // namespace lockstep::cli
