// Meaning of the element-wise parts (EXACTNESS item 1).
//
//   silu_mul    out = store(silu(gate) up), f32 inside, one store. |out - exact| <= half a bf16 spacing + 6 u |exact| (+ 3e-37 |up| where
//               exp overflows).
//   not_finite  1 if any value is NaN or infinite.
//   exp, exp2, log, log1p: ops/math.h.
