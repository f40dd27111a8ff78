// Meaning of attention (EXACTNESS item 4, CPU form), for one query row and head over the keys 0 .. n-1 it sees.
//
//   s_j = fused chain over the dimensions ascending from zero: s = fma(q[d], k_j[d], s)
//   Tiles of 128 keys by absolute position, each from zero, over its visible keys in order:
//     ms = f32(max_j s_j  c),  p_j = exp2(f32(f32(s_j c) - ms)),  l = p_0 + p_1 + ... (f32, in order)
//     o[d] = fused chain over the keys from zero: o = fma(p_j, v_j[d], o)
//   Tiles are folded in order, from m = -infinity, L = 0, O = 0:
//     m' = max(m, ms), a = exp2(m - m'), b = exp2(ms - m'), L = fma(l, b, f32(L a)), O = fma(o, b, f32(O a))
//   out = O / L (IEEE), times sigmoid(gate) in f32 where there is a gate, stored once.
//
// c = f32(log2(e) / sqrt(head_dim)). Only visible keys take part in a chain; a tile without one is skipped. Values are bf16 as they lie in
// the cache (finite: store_kv replaces NaN by 0 and infinities by the largest bf16, and says so). A query that is not finite gives NaN and
// is found at the logits.
//
// Rounding points: everything f32, one store. How rows and heads are blocked, and which other rows are in a block, is free.
//
// Error against float64, u = 2^-24, first order; X = max |s_j c|, T tiles, n' = min(n, 128):
//   score: c u sum_d |partial sum of s_j after d| + 2 u |s_j c|, in powers of two;
//   weight, relative: e_j = ln 2 times that + 3 u (exp2) + T (3 u + 2 u) (folds) + 4 ln 2 u X (differences);
//   |out - exact| <= half a bf16 spacing + sum_j (e_j + n' u) p_j |v_j[d]| / L + |out| (sum_j e_j p_j / L + n' u + 2 u);  with a gate + 6 u
//   |out|.
