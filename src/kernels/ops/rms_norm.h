// Meaning of the norms (EXACTNESS item 1 and 6). x is one row or head of n values.
//
//   Sum of squares: f32, item 7's 16 lanes: blocks of 32 inputs (zeros past the end), lane i takes x[32b+2i+1]^2, then x[32b+2i]^2, one
//   fused multiply-add each; lanes i and i+8 are added, then i+4, i+2, i+1, then + 0.0f.
//
//   rms_norm        inv = 1 / sqrt(sum / f32(n) + eps), every step IEEE; out = store((x inv) w). w is f32, 1 + weight already added where
//                   the layout stores it so.
//   gated_rms_norm  the same on f32 o, out = store(((o inv) w) silu(z)).
//   l2_norm         out = store(x / sqrt(sum + 1e-6)); in the result NaN becomes 0, an infinity the largest bf16, and the flag is set (item
//                   9).
//
// Rounding points: one store each; everything before it is f32.
//
// Error against float64, u = 2^-24: a lane adds at most n / 16 + 1 terms, the tree 4: the sum is off by (n / 16 + 6) u relative (no term is
// negative), the square root halves that; division by n, + eps, sqrt, 1 / and the two products add 5 u:
//   |out - exact| <= half a bf16 spacing + ((n / 16 + 6) / 2 + 5) u |exact|          (gated: + 6 u for silu and its product)
