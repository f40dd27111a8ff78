// The thin vector layer the element-wise, norm, attention and DeltaNet kernels are written on: one source for every instruction set.
// F32 is kLanes f32 values: 8 in plain C++ (generic) and with AVX2, 16 with AVX-512. Every operation is one IEEE operation a lane with one
// meaning everywhere, so a result never depends on kLanes as long as sums run along a fixed order: sequential, or Lanes16 (EXACTNESS
// item 7). Include after target.h only.
#pragma once
#include "kernels/cpu/target.h"

#if defined(__clang__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(LOCKSTEP_ISA_AVX512) || defined(LOCKSTEP_ISA_AVX512BF16)
#define LOCKSTEP_SIMD_512 1
#elif defined(LOCKSTEP_ISA_AVX2)
#define LOCKSTEP_SIMD_256 1
#endif

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

#if defined(LOCKSTEP_SIMD_512)

inline constexpr int kLanes = 16;
struct F32 { __m512 v; };
struct I32 { __m512i v; };
struct Mask { __mmask16 v; };

LOCKSTEP_INLINE F32 set1(float x) { return {_mm512_set1_ps(x)}; }
LOCKSTEP_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
LOCKSTEP_INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
LOCKSTEP_INLINE F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LOCKSTEP_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
LOCKSTEP_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
LOCKSTEP_INLINE Mask less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
LOCKSTEP_INLINE Mask equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
LOCKSTEP_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
LOCKSTEP_INLINE bool all(Mask m) { return m.v == 0xffff; }
LOCKSTEP_INLINE I32 as_int(F32 a) { return {_mm512_castps_si512(a.v)}; }
LOCKSTEP_INLINE F32 as_float(I32 a) { return {_mm512_castsi512_ps(a.v)}; }
LOCKSTEP_INLINE I32 set1(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
LOCKSTEP_INLINE I32 add(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE I32 sub(I32 a, I32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE I32 bit_and(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int N> LOCKSTEP_INLINE I32 shift_left(I32 a) { return {_mm512_slli_epi32(a.v, N)}; }
template <int N> LOCKSTEP_INLINE I32 shift_right(I32 a) { return {_mm512_srai_epi32(a.v, N)}; }
LOCKSTEP_INLINE F32 to_float(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }

LOCKSTEP_INLINE F32 load(const bf16* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
/// The store of EXACTNESS item 1: nearest even, the one NaN 0x7fc0, magnitudes below 2^-126 are zeros of their sign.
LOCKSTEP_INLINE void store(bf16* p, F32 a) {
  const __m512i u = _mm512_castps_si512(a.v), magnitude = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
  r = _mm512_mask_mov_epi32(r, _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000)),
                            _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x8000)));
  r = _mm512_mask_mov_epi32(r, _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000)), _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
}

#elif defined(LOCKSTEP_SIMD_256)

inline constexpr int kLanes = 8;
struct F32 { __m256 v; };
struct I32 { __m256i v; };
struct Mask { __m256 v; };

LOCKSTEP_INLINE F32 set1(float x) { return {_mm256_set1_ps(x)}; }
LOCKSTEP_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
LOCKSTEP_INLINE void store(float* p, F32 a) { _mm256_storeu_ps(p, a.v); }
LOCKSTEP_INLINE F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
LOCKSTEP_INLINE F32 fnma(F32 a, F32 b, F32 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
LOCKSTEP_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
LOCKSTEP_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
LOCKSTEP_INLINE Mask less(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
LOCKSTEP_INLINE Mask equal(F32 a, F32 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
LOCKSTEP_INLINE F32 select(Mask m, F32 yes, F32 no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
LOCKSTEP_INLINE bool all(Mask m) { return _mm256_movemask_ps(m.v) == 0xff; }
LOCKSTEP_INLINE I32 as_int(F32 a) { return {_mm256_castps_si256(a.v)}; }
LOCKSTEP_INLINE F32 as_float(I32 a) { return {_mm256_castsi256_ps(a.v)}; }
LOCKSTEP_INLINE I32 set1(std::int32_t x) { return {_mm256_set1_epi32(x)}; }
LOCKSTEP_INLINE I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE I32 sub(I32 a, I32 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
LOCKSTEP_INLINE I32 bit_and(I32 a, I32 b) { return {_mm256_and_si256(a.v, b.v)}; }
template <int N> LOCKSTEP_INLINE I32 shift_left(I32 a) { return {_mm256_slli_epi32(a.v, N)}; }
template <int N> LOCKSTEP_INLINE I32 shift_right(I32 a) { return {_mm256_srai_epi32(a.v, N)}; }
LOCKSTEP_INLINE F32 to_float(I32 a) { return {_mm256_cvtepi32_ps(a.v)}; }

LOCKSTEP_INLINE F32 load(const bf16* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16))};
}
/// The store of EXACTNESS item 1: nearest even, the one NaN 0x7fc0, magnitudes below 2^-126 are zeros of their sign.
LOCKSTEP_INLINE void store(bf16* p, F32 a) {
  const __m256i u = _mm256_castps_si256(a.v), magnitude = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
  r = _mm256_blendv_epi8(r, _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x8000)),
                         _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude));
  r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc0), _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000)));
  r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(r));
}

#else

inline constexpr int kLanes = 8;
struct F32 { float v[kLanes]; };
struct I32 { std::int32_t v[kLanes]; };
struct Mask { bool v[kLanes]; };

#define LOCKSTEP_EACH(Type, expression)           \
  do {                                            \
    Type r;                                       \
    for (int i = 0; i < kLanes; i++) r.v[i] = (expression); \
    return r;                                     \
  } while (0)
LOCKSTEP_INLINE F32 set1(float x) { LOCKSTEP_EACH(F32, x); }
LOCKSTEP_INLINE F32 load(const float* p) { LOCKSTEP_EACH(F32, p[i]); }
LOCKSTEP_INLINE void store(float* p, F32 a) { for (int i = 0; i < kLanes; i++) p[i] = a.v[i]; }
LOCKSTEP_INLINE F32 add(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] + b.v[i]); }
LOCKSTEP_INLINE F32 sub(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] - b.v[i]); }
LOCKSTEP_INLINE F32 mul(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] * b.v[i]); }
LOCKSTEP_INLINE F32 div(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] / b.v[i]); }
LOCKSTEP_INLINE F32 fma(F32 a, F32 b, F32 c) { LOCKSTEP_EACH(F32, std::fma(a.v[i], b.v[i], c.v[i])); }
LOCKSTEP_INLINE F32 fnma(F32 a, F32 b, F32 c) { LOCKSTEP_EACH(F32, std::fma(-a.v[i], b.v[i], c.v[i])); }
LOCKSTEP_INLINE F32 max(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
LOCKSTEP_INLINE F32 min(F32 a, F32 b) { LOCKSTEP_EACH(F32, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
LOCKSTEP_INLINE Mask less(F32 a, F32 b) { LOCKSTEP_EACH(Mask, a.v[i] < b.v[i]); }
LOCKSTEP_INLINE Mask equal(F32 a, F32 b) { LOCKSTEP_EACH(Mask, a.v[i] == b.v[i]); }
LOCKSTEP_INLINE F32 select(Mask m, F32 yes, F32 no) { LOCKSTEP_EACH(F32, m.v[i] ? yes.v[i] : no.v[i]); }
LOCKSTEP_INLINE bool all(Mask m) {
  bool every = true;
  for (int i = 0; i < kLanes; i++) every = every && m.v[i];
  return every;
}
LOCKSTEP_INLINE I32 as_int(F32 a) { return std::bit_cast<I32>(a); }
LOCKSTEP_INLINE F32 as_float(I32 a) { return std::bit_cast<F32>(a); }
LOCKSTEP_INLINE I32 set1(std::int32_t x) { LOCKSTEP_EACH(I32, x); }
LOCKSTEP_INLINE I32 add(I32 a, I32 b) { LOCKSTEP_EACH(I32, std::int32_t(std::uint32_t(a.v[i]) + std::uint32_t(b.v[i]))); }
LOCKSTEP_INLINE I32 sub(I32 a, I32 b) { LOCKSTEP_EACH(I32, std::int32_t(std::uint32_t(a.v[i]) - std::uint32_t(b.v[i]))); }
LOCKSTEP_INLINE I32 bit_and(I32 a, I32 b) { LOCKSTEP_EACH(I32, a.v[i] & b.v[i]); }
template <int N> LOCKSTEP_INLINE I32 shift_left(I32 a) { LOCKSTEP_EACH(I32, std::int32_t(std::uint32_t(a.v[i]) << N)); }
template <int N> LOCKSTEP_INLINE I32 shift_right(I32 a) { LOCKSTEP_EACH(I32, a.v[i] >> N); }
LOCKSTEP_INLINE F32 to_float(I32 a) { LOCKSTEP_EACH(F32, float(a.v[i])); }
LOCKSTEP_INLINE F32 load(const bf16* p) { LOCKSTEP_EACH(F32, std::bit_cast<float>(std::uint32_t(p[i]) << 16)); }
/// The store of EXACTNESS item 1: nearest even, the one NaN 0x7fc0, magnitudes below 2^-126 are zeros of their sign.
LOCKSTEP_INLINE void store(bf16* p, F32 a) { for (int i = 0; i < kLanes; i++) p[i] = to_bf16(a.v[i]); }
#undef LOCKSTEP_EACH

#endif

LOCKSTEP_INLINE F32 zero() { return set1(0.0f); }
// fma is a * b + c and fnma c - a * b, in one rounding; max and min give b where a or b is NaN or both are zeros (as MAXPS does).
LOCKSTEP_INLINE F32 negate(F32 a) { return as_float(add(as_int(a), set1(std::int32_t(0x80000000u)))); }
LOCKSTEP_INLINE F32 magnitude(F32 a) { return as_float(bit_and(as_int(a), set1(std::int32_t(0x7fffffff)))); }

/// n < kLanes values at p, then zeros; nothing past p[n - 1] is touched.
template <class T>
LOCKSTEP_INLINE F32 load_first(const T* p, int n) {
  T padded[kLanes] = {};
  for (int i = 0; i < n; i++) padded[i] = p[i];
  return load(padded);
}
template <class T>
LOCKSTEP_INLINE void store_first(T* p, F32 a, int n) {
  T padded[kLanes];
  store(padded, a);
  for (int i = 0; i < n; i++) p[i] = padded[i];
}

/// f(vector) over [0, n) in vectors, the last one partial: out[i] = f(in[i]). For loops that are not worth more.
template <class In, class Out, class F>
LOCKSTEP_INLINE void map(const In* in, std::int64_t n, Out* out, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(in + i)));
  if (i < n) store_first(out + i, f(load_first(in + i, int(n - i))), int(n - i));
}

/// The 16 lanes of a canonical dot product (EXACTNESS item 7).
struct Lanes16 {
  static constexpr int kVectors = 16 / kLanes;
  F32 v[kVectors];
};
LOCKSTEP_INLINE Lanes16 zero_lanes() {
  Lanes16 s;
  LOCKSTEP_UNROLL
  for (int i = 0; i < Lanes16::kVectors; i++) s.v[i] = zero();
  return s;
}
/// Lanes i and i+8 are added, then i+4, i+2, i+1, then + 0.0f.
LOCKSTEP_INLINE float sum_lanes(const Lanes16& s) {
#if defined(LOCKSTEP_SIMD_512) || defined(LOCKSTEP_SIMD_256)
#if defined(LOCKSTEP_SIMD_512)
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(s.v[0].v), _mm512_extractf32x8_ps(s.v[0].v, 1));
#else
  const __m256 eight = _mm256_add_ps(s.v[0].v, s.v[1].v);
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  const __m128 one = _mm_add_ss(two, _mm_shuffle_ps(two, two, 1));
  return _mm_cvtss_f32(_mm_add_ss(one, _mm_setzero_ps()));
#else
  float t[16];
  store(t, s.v[0]);
  store(t + 8, s.v[1]);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; i++) t[i] = t[i] + t[i + width];
  return t[0] + 0.0f;
#endif
}

/// Block of 32 inputs split into its odd and even elements, lane i holding 2i+1 and 2i.
struct Pairs {
  F32 odd[Lanes16::kVectors], even[Lanes16::kVectors];
};
LOCKSTEP_INLINE Pairs load_pairs(const bf16* p) {
  Pairs r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < Lanes16::kVectors; i++) {
#if defined(LOCKSTEP_SIMD_512)
    const __m512i w = _mm512_loadu_si512(p + 32 * i);
    r.odd[i].v = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(std::int32_t(0xffff0000u))));
    r.even[i].v = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
#elif defined(LOCKSTEP_SIMD_256)
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16 * i));
    r.odd[i].v = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(std::int32_t(0xffff0000u))));
    r.even[i].v = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
#else
    for (int l = 0; l < kLanes; l++) {
      r.odd[i].v[l] = std::bit_cast<float>(std::uint32_t(p[2 * (kLanes * i + l) + 1]) << 16);
      r.even[i].v[l] = std::bit_cast<float>(std::uint32_t(p[2 * (kLanes * i + l)]) << 16);
    }
#endif
  }
  return r;
}
LOCKSTEP_INLINE Pairs load_pairs(const float* p) {
  Pairs r;
  LOCKSTEP_UNROLL
  for (int i = 0; i < Lanes16::kVectors; i++) {
#if defined(LOCKSTEP_SIMD_512)
    const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    r.even[i].v = _mm512_permutex2var_ps(a, even, b);
    r.odd[i].v = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
#elif defined(LOCKSTEP_SIMD_256)
    const __m256 a = _mm256_loadu_ps(p + 16 * i), b = _mm256_loadu_ps(p + 16 * i + 8);
    // Within each half the shuffle gives two of a, then two of b; the permutation puts a's four before b's.
    r.even[i].v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8));
    r.odd[i].v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8));
#else
    for (int l = 0; l < kLanes; l++) {
      r.odd[i].v[l] = p[2 * (kLanes * i + l) + 1];
      r.even[i].v[l] = p[2 * (kLanes * i + l)];
    }
#endif
  }
  return r;
}
LOCKSTEP_INLINE void dot_step(Lanes16& s, const Pairs& a, const Pairs& b) {
  LOCKSTEP_UNROLL
  for (int i = 0; i < Lanes16::kVectors; i++) s.v[i] = fma(a.even[i], b.even[i], fma(a.odd[i], b.odd[i], s.v[i]));
}

/// Dot product of n inputs in item 7's order; inputs past the end of the last block of 32 are zeros.
template <class T>
LOCKSTEP_INLINE float dot(const T* a, const T* b, int n) {
  Lanes16 s = zero_lanes();
  int i = 0;
  for (; i + 32 <= n; i += 32) dot_step(s, load_pairs(a + i), load_pairs(b + i));
  if (i < n) {
    T pa[32] = {}, pb[32] = {};
    for (int j = i; j < n; j++) pa[j - i] = a[j], pb[j - i] = b[j];
    dot_step(s, load_pairs(pa), load_pairs(pb));
  }
  return sum_lanes(s);
}
template <class T>
LOCKSTEP_INLINE float sum_of_squares(const T* x, int n) { return dot(x, x, n); }

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
