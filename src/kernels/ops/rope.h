// Meaning of head norm and rotation (EXACTNESS item 1), one head of q or k.
//
//   y = x, or where there is a weight (x inv) w as in ops/rms_norm.h, kept in f32;
//   for i < rotary_dim / 2, a = y[i], b = y[i + rotary_dim / 2], c and s the row's entries of the table (kernels/rope_table.h):
//     out[i] = store(fma(a, c, -(b s))),  out[i + rotary_dim / 2] = store(fma(b, c, a s));
//   the other components are stored as they are. The product b s (a s) is rounded to f32 before the fused step.
//
// Rounding points: one store; nothing between norm and rotation.
//
// Error against float64 with the same c and s, u = 2^-24, N the norm's relative error ((n / 16 + 6) / 2 + 5) u or 0:
//   |out - exact| <= half a bf16 spacing + (N + 2 u) (|a c| + |b s|)
