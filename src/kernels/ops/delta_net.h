// Meaning of the Gated DeltaNet parts (EXACTNESS item 5, CPU form). One value head; S is [Dk][Dv] f32.
//
//   conv_silu     sum = fma(tap, x, sum) over the 4 taps from zero, oldest row first (rows before position 0 are zeros), out =
//                 store(silu(sum)).
//   coefficients  beta = sigmoid(b); g = max(f32(neg_exp_a softplus(f32(a + dt_bias))), -1e4), neg_exp_a = -exp(A_log). A NaN stays one
//                 here.
//   delta_net     Chunks of 16 rows anchored at positions 16 c. In a chunk, row r at position 16 c + r:
//     G_r = g_0 + g_1 + ... + g_r (f32, in order; a g that is not finite counts as -1e4 and raises the flag)
//     D_ri = exp(f32(G_r - G_i)) for i < r, D_rr = 1
//     <S, x>[j] = fused chain over the key dimension ascending from zero, S at the chunk's start; <k, k>, <k, q>: item 7's dot of bf16 rows
//     u_r = beta_r fma(-exp(G_r), <S, k_r>, v_r)
//     d_r = u_r, then fma(-L_ri, d_i, d_r) for i = 0 .. r-1,  L_ri = f32(beta_r f32(<k_i, k_r> D_ri))
//     o   = f32(exp(G_r) <S, q_r>), then fma(M_ri, d_i, o) for i = 0 .. r,  M_ri = f32(<k_i, q_r> D_ri);  out = f32(scale o), kept in f32
//     fold, once the chunk's 16 rows stand: S = f32(exp(G_15) S), then S[i][j] = fma(k_m[i], f32(D_15,m d_m[j]), S[i][j]) for m = 0 .. 15
//   v, u and d: NaN becomes 0, then clamped to +-3.3e38; where one was not finite the row's flag is set (item 9).
//
// State of a call: complete chunks of the rows that stood at entry are folded first. A chunk that this call completes with rows that all
// stand is folded in place at once. Else its rows stay open, and rows past its end read a folded S in scratch. So after a call that entered
// at length n with `stand` of its rows standing, `state` is at 16 floor((n + stand) / 16), whatever the cut; a row's values depend on the
// rows before it alone.
//
// Error against float64 (token by token), u = 2^-24, for |k|, |q| <= 1 up to their rounding; in a column j let N be the largest norm of the
// state in the chunk plus every |d| and |v| of it, and C the sum of the chunk's |g|. A row's sums have at most Dk + 16 terms, and each
// power is off by 3 u + 16 u C:
//   a row adds e = (Dk + 64 + 16 C) u N to the error of the state's column (which never grows by itself: |I - beta k k^T| exp(g) <= 1),
//   |out - exact| <= scale (sum of e over all rows so far + e).
// conv: |out - exact| <= half a bf16 spacing + 5 u |out| + 1.1 * 4 u sum |tap x|.  g: 12 u |g|; beta: 5 u beta.
