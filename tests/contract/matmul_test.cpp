// Contract of matmul (kernels/ops/matmul.h): plain and affine weights of every width, any number of rows, every instruction set.
#include "contract/matmul_problem.h"

#include "kernels/cpu/runtime/pages.h"

namespace lockstep::contract {
namespace {

using namespace matmul;
using kernels::Isa;

// ---- gates ----

void accuracy(Check& check) {
  auto run = [&](const Shape& s, int rows) {
    const auto p = make_problem(check.random, s);
    const auto x = draw_x(check.random, rows, s.in);
    const auto bias = check.random.normals(std::size_t(s.out));
    const auto m = matrix(check, check.isa, p->weight);
    if (!m) return;
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      const auto want = reference::matmul(p->weight, x.data(), s.in, rows, b);
      const auto got = sums(check.isa, *m, {x.data(), s.in, rows}, {2, b}).all();
      for (std::size_t i = 0; i < got.size(); i++)
        if (!check.near(got[i], want.value[i], want.bound[i], name_of(s) + " rows " + std::to_string(rows), std::int64_t(i))) return;
    }
  };
  for (const Shape& s : kModelShapes)
    for (int rows : {1, 13}) run(s, rows);
  for (const Shape& s : widths()) run(s, 5);
}
const Case accuracy_case{"matmul", Gate::kAccuracy, accuracy};

void accuracy_fault(Check& check, const Shape& s, Fault fault) {
  const auto p = make_problem(check.random, s);
  const auto x = draw_x(check.random, 3, s.in);
  const auto want = reference::matmul(p->weight, x.data(), s.in, 3, nullptr);
  const auto got = definition(p->weight, {x.data(), s.in, 3}, fault);
  for (std::size_t i = 0; i < got.size(); i++) check.near(got[i], want.value[i], want.bound[i], name_of(s), std::int64_t(i));
}
const Control drops_group{"matmul", Gate::kAccuracy, "the last group is dropped",
                          [](Check& check) { accuracy_fault(check, {5, 1024, 4, 64}, Fault::kLastGroupDropped); }, Scope::kOnce};
const Control drops_block{"matmul", Gate::kAccuracy, "the inputs after the last whole block are dropped",
                          [](Check& check) { accuracy_fault(check, {5, 1000}, Fault::kLastGroupDropped); }, Scope::kOnce};

/// Every set against the definition, and so against each other.
void isas(Check& check) {
  for (const Shape& s : widths()) {
    const auto p = make_problem(check.random, s);
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 21}) {
      const auto x = draw_x(check.random, rows, s.in);
      const Input in{x.data(), s.in, rows};
      const auto want = definition(p->weight, in);
      for (Isa isa : check.isas) {
        const auto m = matrix(check, isa, p->weight);
        if (!m) return;
        check.equal_bits(sums(isa, *m, in).all(), want, name_of(s) + " rows " + std::to_string(rows) + " " + std::string(isa_name(isa)));
      }
    }
  }
}
const Case isas_case{"matmul", Gate::kIsas, "the definition", isas, Scope::kOnce};

void isas_many(Check& check) {  // against the slowest set, where the definition would take too long
  for (const Shape& s : {Shape{100, 1024, 4, 64}, Shape{37, 2048, 8, 128}, Shape{37, 3584, 6, 64}, Shape{100, 1024}, Shape{53, 2048}})
    for (int rows : {4, 64, 333}) {
      const auto p = make_problem(check.random, s);
      const auto x = draw_x(check.random, rows, s.in);
      std::vector<float> want;
      for (Isa isa : check.isas) {
        const auto m = matrix(check, isa, p->weight);
        if (!m) return;
        auto got = sums(isa, *m, {x.data(), s.in, rows}).all();
        if (want.empty()) want = std::move(got);
        else check.equal_bits(got, want, name_of(s) + " rows " + std::to_string(rows) + " " + std::string(isa_name(isa)));
      }
    }
}
const Case isas_many_case{"matmul", Gate::kIsas, "many rows", isas_many, Scope::kOnce};

void isas_fault(Check& check, const Shape& s, Fault fault) {
  const auto p = make_problem(check.random, s);
  const auto x = draw_x(check.random, 3, s.in);
  const Input in{x.data(), s.in, 3};
  if (const auto m = matrix(check, check.isa, p->weight)) check.equal_bits(sums(check.isa, *m, in).all(), definition(p->weight, in, fault), name_of(s));
}
const Control even_first{"matmul", Gate::kIsas, "the even input before the odd one", [](Check& check) { isas_fault(check, {37, 1024}, Fault::kEvenFirst); }};
const Control split_plain{"matmul", Gate::kIsas, "k in two parts, plain", [](Check& check) { isas_fault(check, {37, 1024}, Fault::kSplitSum); }};
const Control split_affine{"matmul", Gate::kIsas, "k in two parts, affine", [](Check& check) { isas_fault(check, {37, 1024, 4, 64}, Fault::kSplitSum); }};

/// The BF16 dot itself, whether or not a matmul uses it on this chip.
void bf16_dot(Check& check) {
  const auto& dot = cpu::plain_matmul_kernels(Isa::kAvx512Bf16);
  if (std::find(check.isas.begin(), check.isas.end(), Isa::kAvx512Bf16) == check.isas.end()) return;
  if (!dot.dot_is_exact()) return check.known_finding("this chip's BF16 dot differs from the fused pair; the pair is used");
  for (const Shape& s : {Shape{50, 1024}, Shape{37, 200}}) {
    const auto p = make_problem(check.random, s);
    const int rows = 21;
    const auto x = draw_x(check.random, rows, s.in);
    const cpu::Pages prepared(dot.x_bytes(rows, s.in)), scratch(dot.scratch_bytes(s.in));
    for (int n : {1, 2, 5, 8, 21}) {
      Output<float> y(n, s.out);
      const cpu::PlainCall call{p->weight.weight.data, s.in, prepared.data(), n, {nullptr, MatmulOutput::kF32, y.y(), y.stride, s.out}};
      dot.prepare(x.data(), s.in, s.in, 0, n, n > dot.few_rows, prepared.data());
      if (n > dot.few_rows) dot.many(call, 0, n, 0, s.out, scratch.data());
      else dot.few(call, 0, s.out);
      check.equal_bits(y.all(), definition(p->weight, {x.data(), s.in, n}), name_of(s) + " BF16 dot, rows " + std::to_string(n));
    }
  }
}
const Case bf16_dot_case{"matmul", Gate::kIsas, "the BF16 dot", bf16_dot, Scope::kOnce};

bf16 hostile(Random& random, int kind) {
  switch (kind % 4) {
    case 0: return 0x7fc1;                                              // NaN
    case 1: return random.bits() % 2 ? 0x7f80 : 0xff80;                 // infinities
    case 2: return to_bf16(random.normal() * 1e37f);                    // huge
    default: return random.bits() % 3 ? to_bf16(random.normal()) : 0xffff;  // a NaN here and there
  }
}

/// One row at every place among hostile neighbours, its padding poisoned, equals itself alone.
void rows_case(Check& check, const Shape& s, bool one_too_far = false) {
  const auto p = make_problem(check.random, s);
  const auto m = matrix(check, check.isa, p->weight);
  if (!m) return;
  const auto x = draw_x(check.random, 1, s.in);
  const auto alone = sums(check.isa, *m, {x.data(), s.in, 1}).row(0);
  const std::int64_t stride = s.in + 7;
  for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 64}) {
    std::vector<bf16> window(std::size_t(rows + 1) * std::size_t(stride), 0x7fc0);
    for (int place : {0, 1, rows / 2, rows - 2, rows - 1}) {
      if (place < 0 || place >= rows) continue;
      for (int r = 0; r < rows; r++)
        for (std::int64_t i = 0; i < s.in; i++)
          window[std::size_t(r * stride + i)] = r == place ? x[std::size_t(i)] : hostile(check.random, r + place);
      std::vector<std::uint8_t> flags;
      const auto got = sums(check.isa, *m, {window.data() + (one_too_far ? stride : 0), stride, rows}, {2, nullptr, &flags}).row(place);
      const std::string what = name_of(s) + " rows " + std::to_string(rows) + " place " + std::to_string(place);
      if (!check.equal_bits(got, alone, what)) return;
      check.that(flags[std::size_t(place)] == 0, what + ": flagged for a neighbour");
      for (int r = 0; r < rows && s.bits; r++)
        if (r != place && (r + place) % 4 < 2) check.that(flags[std::size_t(r)] == 1, what + ": a row that is not finite has no flag");
    }
  }
}
const Case rows_affine{"matmul", Gate::kRows, "affine", [](Check& check) {
                         for (int bits : {2, 3, 4, 5, 6, 8}) rows_case(check, {19, 384, bits, bits == 4 ? 64 : bits == 8 ? 32 : 128});
                       }};
const Case rows_plain{"matmul", Gate::kRows, "plain", [](Check& check) {
                        rows_case(check, {19, 200});
                        rows_case(check, {49, 1024});
                      }};
const Control too_far{"matmul", Gate::kRows, "x is read one row too far", [](Check& check) { rows_case(check, {19, 384, 4, 64}, true); }};

/// Same call again, on other numbers of threads, with other jobs beside it, and through a scratch that was used before.
void repeat(Check& check) {
  for (const Shape& s : {Shape{100, 1024, 4, 64}, Shape{37, 384, 3, 32}, Shape{100, 1024}}) {
    const auto p = make_problem(check.random, s);
    const auto other = make_problem(check.random, {530, s.in, s.bits ? 0 : 8, 64}), third = make_problem(check.random, {16, s.in, 8, 128});
    const auto m = matrix(check, check.isa, p->weight), n = matrix(check, check.isa, other->weight), o = matrix(check, check.isa, third->weight);
    if (!m || !n || !o) return;
    for (int rows : {1, 4, 37}) {
      const auto x = draw_x(check.random, rows, s.in);
      const Input in{x.data(), s.in, rows};
      const auto want = sums(check.isa, *m, in).all();
      for (int threads : {1, 2, 3}) check.equal_bits(sums(check.isa, *m, in, {threads}).all(), want, name_of(s) + " on other threads");
      auto scratch = cpu::make_matmul_scratch(64, 2048, check.isa, 2);
      std::vector<std::uint8_t> flags(static_cast<std::size_t>(rows));
      for (int again = 0; again < 2; again++) {
        Output<float> a(rows, n->out_features), b(rows, m->out_features), c(rows, o->out_features);
        const cpu::MatmulJob jobs[] = {{n.get(), nullptr, MatmulOutput::kF32, a.y(), a.stride},
                                       {m.get(), nullptr, MatmulOutput::kF32, b.y(), b.stride},
                                       {o.get(), nullptr, MatmulOutput::kF32, c.y(), c.stride}};
        cpu::matmul(check.isa, pool(), *scratch, x.data(), s.in, rows, jobs, flags.data());
        check.equal_bits(b.all(), want, name_of(s) + " beside other jobs");
        a.check_written(check, "first job");
        c.check_written(check, "last job");
      }
    }
  }
}
const Case repeat_case{"matmul", Gate::kRepeat, repeat};
const Control repeat_control{"matmul", Gate::kRepeat, "sums that depend on the number of threads", [](Check& check) {
                               const auto p = make_problem(check.random, {37, 1024});
                               const auto x = draw_x(check.random, 1, 1024);
                               check.equal_bits(definition(p->weight, {x.data(), 1024, 1}, Fault::kSplitSum), definition(p->weight, {x.data(), 1024, 1}), "");
                             }, Scope::kOnce};

/// Odd sizes: everything written, nothing else, and the three kinds of output follow from the f32 one.
void edge(Check& check, const Shape& s, int rows) {
  const auto p = make_problem(check.random, s);
  const auto m = matrix(check, check.isa, p->weight);
  if (!m) return;
  const auto x = draw_x(check.random, rows, s.in);
  const auto bias = check.random.normals(std::size_t(s.out));
  const Input in{x.data(), s.in, rows};
  const std::string what = name_of(s) + " rows " + std::to_string(rows);
  const auto f32 = sums(check.isa, *m, in, {2, bias.data()});
  f32.check_written(check, what);
  Output<bf16> stored(rows, s.out), added(rows, s.out);
  std::vector<bf16> want_stored, want_added;
  for (int r = 0; r < rows; r++)
    for (std::int64_t o = 0; o < s.out; o++) {
      const bf16 before = to_bf16(check.random.normal());
      added.y()[r * added.stride + o] = before;
      want_stored.push_back(to_bf16(f32.at(r, o)));
      want_added.push_back(to_bf16(to_float(before) + to_float(want_stored.back())));
    }
  multiply(check.isa, *m, in, MatmulOutput::kStoreBf16, stored, {2, bias.data()});
  multiply(check.isa, *m, in, MatmulOutput::kAddResidual, added, {2, bias.data()});
  stored.check_written(check, what);
  added.check_written(check, what, true);
  check.equal_bits(stored.all(), want_stored, what + " stored");
  check.equal_bits(added.all(), want_added, what + " added to a residual");
}
void edges(Check& check) {
  constexpr std::int64_t kOut[] = {1, 16, 17, 37, 100}, kIn[] = {32, 64, 96, 200, 128};
  constexpr int kBits[] = {2, 3, 5, 6};
  for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 64}) {
    const std::int64_t out = kOut[rows % 5];
    edge(check, {out, kIn[rows % 5]}, rows);
    edge(check, {out + 1, 128, 4, 64}, rows);
    edge(check, {out, 96, 8, 32}, rows);
    edge(check, {101 - out, 256, kBits[rows % 4], 128}, rows);
  }
  edge(check, {37, 1024, 4, 64}, 333);
  edge(check, {37, 1000}, 333);
  edge(check, {1, 3584}, 1);
  edge(check, {1, 3584, 4, 128}, 1);
  edge(check, {17, 64, 4, 64}, 600);  // more than one window of rows
  edge(check, {17, 33}, 521);
  edge(check, {5, 1}, 3);
}
const Case edges_case{"matmul", Gate::kEdges, edges};

/// A matrix of other outputs than the job believes.
void edge_fault(Check& check, std::int64_t believed) {
  const auto p = make_problem(check.random, {37, 128, 4, 64});
  const auto m = matrix(check, check.isa, p->weight);
  if (!m) return;
  const auto x = draw_x(check.random, 3, 128);
  Output<float> y(3, believed);
  multiply(check.isa, *m, {x.data(), 128, 3}, MatmulOutput::kF32, y);
  y.check_written(check, "37 outputs");
}
const Control writes_more{"matmul", Gate::kEdges, "one output too many is written", [](Check& check) { edge_fault(check, 36); }};
const Control writes_less{"matmul", Gate::kEdges, "the last output is not written", [](Check& check) { edge_fault(check, 38); }};

// ---- special values, embeddings, packing, refusals ----

/// Groups that are zero, tiny, denormal or not finite; weights with denormals and zeros.
void special(Check& check) {
  for (const Shape& s : {Shape{19, 256, 4, 64}, Shape{19, 256, 6, 32}, Shape{19, 256}}) {
    const auto p = make_problem(check.random, s);
    if (!s.bits)
      for (std::size_t i = 0; i < 64; i++) {  // denormal and negative zero weights
        const bf16 v = i % 2 ? bf16(0x8000 | (i * 3 & 0x7f)) : bf16(i);
        std::memcpy(p->weight_bytes.bytes.data() + 1 + i * 10, &v, 2);
      }
    std::vector<bf16> x = draw_x(check.random, 6, s.in);
    for (std::int64_t i = 0; i < s.in; i++) {
      x[std::size_t(i)] = i < 128 ? 0x8000 : x[std::size_t(i)];                                  // a row that starts with negative zeros
      x[std::size_t(s.in + i)] = bf16(0x80 * (i % 14) | (x[std::size_t(s.in + i)] & 0x807f));    // around the smallest normal
      x[std::size_t(2 * s.in + i)] = to_bf16(to_float(x[std::size_t(2 * s.in + i)]) * 0x1p-112f);
      x[std::size_t(3 * s.in + i)] = to_bf16(to_float(x[std::size_t(3 * s.in + i)]) * 0x1p+100f);
      x[std::size_t(4 * s.in + i)] = 0;
    }
    if (s.bits) x[std::size_t(5 * s.in + 70)] = 0x7f80;
    const Input in{x.data(), s.in, 6};
    const auto want = definition(p->weight, in);
    for (Isa isa : check.isas) {
      const auto m = matrix(check, isa, p->weight);
      if (!m) return;
      std::vector<std::uint8_t> flags;
      check.equal_bits(sums(isa, *m, in, {2, nullptr, &flags}).all(), want, name_of(s) + " special values " + std::string(isa_name(isa)));
      if (s.bits) check.that(flags == std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1}, name_of(s) + ": flags of special values");
    }
  }
}
const Case special_case{"matmul", Gate::kEdges, "special values", special, Scope::kOnce};

std::vector<bf16> embedding_definition(const Weight& w, std::int64_t id, bool two_roundings) {
  std::vector<bf16> row;
  const std::int64_t groups = w.affine ? w.in_features / w.group_size : 0;
  for (std::int64_t i = 0; i < w.in_features; i++) {
    if (!w.affine) {
      row.push_back(to_bf16(float(reference::tensor_element(w.weight, id * w.in_features + i))));
      continue;
    }
    const float scale = float(reference::tensor_element(w.scales, id * groups + i / w.group_size));
    const float bias = float(reference::tensor_element(w.biases, id * groups + i / w.group_size));
    const float code = float(reference::weight_code(w, id, i));
    row.push_back(two_roundings ? to_bf16(to_float(to_bf16(scale * code)) + bias) : to_bf16(std::fma(scale, code, bias)));
  }
  return row;
}
void embeddings(Check& check, bool two_roundings) {
  for (const Shape& s : widths()) {
    const auto p = make_problem(check.random, s);
    const auto m = matrix(check, check.isa, p->weight);
    if (!m) return;
    for (std::int64_t id : {std::int64_t(0), std::int64_t(15), std::int64_t(16), s.out - 1}) {
      std::vector<bf16> row(std::size_t(s.in) + 1, kPoisonBf16);
      m->embed(id, row.data());
      check.that(row.back() == kPoisonBf16, "embed writes past the row");
      row.pop_back();
      check.equal_bits(row, embedding_definition(p->weight, id, two_roundings), "embedding of " + name_of(s));
    }
  }
}
const Case embed_case{"matmul", Gate::kEdges, "embeddings", [](Check& check) { embeddings(check, false); }};
const Control embed_control{"matmul", Gate::kEdges, "an embedding rounded twice", [](Check& check) { embeddings(check, true); }};

struct Vector {  // q[i] = (7 i + 3) mod 2^bits, i = 0..31
  int bits;
  std::vector<std::uint32_t> words;
};
const Vector kPacked[] = {
    {2, {0x1b1b1b1b, 0x1b1b1b1b}},
    {3, {0x53977053, 0x70539770, 0x97705397}},
    {4, {0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b}},
    {5, {0x4dfc4543, 0x78245ba3, 0x0753617d, 0x4b276cf4, 0xe55c7066}},
    {6, {0x9f611283, 0x90bbd2d9, 0xb2579740, 0x8f201eb3, 0x9cab91d5, 0x71538703}},
    {8, {0x18110a03, 0x342d261f, 0x5049423b, 0x6c655e57, 0x88817a73, 0xa49d968f, 0xc0b9b2ab, 0xdcd5cec7}},
};

/// Known words: with scale 1 and bias 0 the embedding gives the codes back, and a product with one input gives it too.
void packing(Check& check, int off) {
  for (const Vector& v : kPacked) {
    Weight w;
    w.name = std::to_string(v.bits) + " bits";
    w.out_features = 1;
    w.in_features = 32;
    w.affine = true;
    w.bits = v.bits;
    w.group_size = 32;
    const bf16 one = to_bf16(1), zero = 0;
    w.weight = {"weight", DType::kU32, {1, v.bits}, reinterpret_cast<const std::byte*>(v.words.data()), v.words.size() * 4};
    w.scales = {"scales", DType::kBF16, {1, 1}, reinterpret_cast<const std::byte*>(&one), 2};
    w.biases = {"biases", DType::kBF16, {1, 1}, reinterpret_cast<const std::byte*>(&zero), 2};
    const auto m = matrix(check, check.isa, w);
    if (!m) return;
    std::vector<bf16> codes(32);
    m->embed(0, codes.data());
    for (int i = 0; i < 32; i++) {
      const int want = (7 * (i + off) + 3) % (1 << v.bits);
      check.that(to_float(codes[std::size_t(i)]) == float(want), w.name + ": code " + std::to_string(i));
      std::vector<bf16> x(32, 0);
      x[std::size_t(i)] = one;
      check.that(sums(check.isa, *m, {x.data(), 32, 1}).at(0, 0) == float(want), w.name + ": product with input " + std::to_string(i));
    }
  }
}
const Case packing_case{"matmul", Gate::kEdges, "packing", [](Check& check) { packing(check, 0); }};
const Control packing_control{"matmul", Gate::kEdges, "codes one place off", [](Check& check) { packing(check, 1); }};

void quantised_example(Check& check) {  // 4 bits, group 32: words, scale and bias of a known conversion, one rounding
  const std::uint32_t words[] = {0xfea51037, 0xea51037c, 0xa51027cf, 0x51027cfe};
  const bf16 scale = 0xbbd9, bias = 0x3d74;
  Weight w;
  w.name = "example";
  w.out_features = 1;
  w.in_features = 32;
  w.affine = true;
  w.bits = 4;
  w.group_size = 32;
  w.weight = {"weight", DType::kU32, {1, 4}, reinterpret_cast<const std::byte*>(words), 16};
  w.scales = {"scales", DType::kBF16, {1, 1}, reinterpret_cast<const std::byte*>(&scale), 2};
  w.biases = {"biases", DType::kBF16, {1, 1}, reinterpret_cast<const std::byte*>(&bias), 2};
  const auto m = matrix(check, check.isa, w);
  if (!m) return;
  std::vector<bf16> row(32);
  m->embed(0, row.data());
  row.resize(8);
  check.equal_bits(row, std::vector<bf16>{0x3c58, 0x3d23, 0x3d74, 0x3d59, 0x3cd9, 0xbbda, 0xbd08, 0xbd23}, "dequantised");
}
const Case example_case{"matmul", Gate::kEdges, "a known conversion", quantised_example};

void refusals(Check& check) {
  auto refused = [&](Weight w, const std::string& word) {
    const auto status = cpu::supports_matmul(w);
    if (!check.that(!status.ok(), "not refused: " + word)) return;
    check.that(status.error().message.find(word) != std::string::npos, status.error().message + ": does not name " + word);
    check.that(!cpu::make_matrix(w, check.isa, pool()).ok(), "made: " + word);
  };
  const auto q = make_problem(check.random, {5, 128, 4, 64}), f = make_problem(check.random, {5, 128});
  check.that(cpu::supports_matmul(q->weight).ok() && cpu::supports_matmul(f->weight).ok(), "a good weight is refused");
  Weight w = q->weight;
  w.bits = 7, refused(w, "7 bits");
  w = q->weight, w.group_size = 16, refused(w, "group_size 16");
  w = q->weight, w.in_features = 96, refused(w, "96 inputs");
  w = q->weight, w.weight.dtype = DType::kBF16, refused(w, "U32");
  w = q->weight, w.scales.dtype = DType::kU8, refused(w, "scales");
  w = q->weight, w.scales.shape = {5, 3}, refused(w, "scales");
  w = q->weight, w.biases.shape = {10}, refused(w, "biases");
  w = q->weight, w.weight.shape = {5, 17}, refused(w, "weight");
  w = f->weight, w.weight.dtype = DType::kI8, refused(w, "plain");
  w = f->weight, w.out_features = 0, refused(w, "0 outputs");
  w = f->weight, w.out_features = w.in_features = std::int64_t(1) << 27, refused(w, "outside");
  w = f->weight, w.weight.bytes -= 2;
  check.that(!cpu::make_matrix(w, check.isa, pool()).ok(), "a weight with too few bytes was made");
}
const Case refusals_case{"matmul", Gate::kEdges, "refusals", refusals, Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
