#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fixtures.h"
#include "unit/checkpoint/safetensors_bytes.h"

namespace lockstep::checkpoint {
namespace {

using testing::parse_bytes;
using testing::safetensors_bytes;
using testing::TempFolder;

TEST(Safetensors, ReadsTensorsMetadataAndPadding) {
  const std::string file = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("b":{"shape":[],"dtype":"F32","data_offsets":[12,16]},"empty":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]}}   )", 16);
  std::map<std::string, std::string> metadata;
  const auto tensors = parse_bytes(file, &metadata);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_EQ(metadata.at("format"), "pt");
  ASSERT_EQ(tensors->size(), 3u);
  const TensorView& a = tensors->at("a.weight");
  EXPECT_EQ(a.name, "a.weight");
  EXPECT_EQ(a.dtype, DType::kBF16);
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(a.bytes, 12u);
  EXPECT_EQ(char(a.data[5]), 5);
  EXPECT_EQ(tensors->at("b").elements(), 1);
  EXPECT_EQ(char(tensors->at("b").data[0]), 12);
  EXPECT_EQ(tensors->at("empty").bytes, 0u);
}

TEST(Safetensors, DataMayLieAtAnyByte) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const std::string file = safetensors_bytes(header, 5);  // views point into it
  const auto tensors = parse_bytes(file);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_EQ(char(tensors->at("b").data[0]), 1);
}

struct Hostile {
  const char* what;
  std::string file;
  const char* words;    // in the message
  const char* subject;  // the tensor, or the file
};

void expect_refused(const Hostile& h) {
  const auto tensors = parse_bytes(h.file);
  ASSERT_FALSE(tensors.ok()) << h.what;
  EXPECT_NE(tensors.error().message.find(h.words), std::string::npos) << h.what << ": " << tensors.error().message;
  EXPECT_NE(tensors.error().message.find("x.safetensors"), std::string::npos) << h.what << ": " << tensors.error().message;
  EXPECT_EQ(tensors.error().subject, h.subject) << h.what;
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const Hostile cases[] = {
      {"empty file", "", "has 0 bytes", "x.safetensors"},
      {"seven bytes", std::string(7, '\0'), "has 7 bytes", "x.safetensors"},
      {"length zero", safetensors_bytes(good, 1, 0), "does not begin with {", "x.safetensors"},
      {"length one past the end", safetensors_bytes(good, 0, good.size() + 1), "but ends after", "x.safetensors"},
      {"length past the limit", safetensors_bytes(good, 1, 100'000'001), "the limit is 100000000", "x.safetensors"},
      {"length 2^63", safetensors_bytes(good, 1, std::uint64_t(1) << 63), "the limit is", "x.safetensors"},
      {"length 2^64 - 1", safetensors_bytes(good, 1, ~std::uint64_t(0)), "the limit is", "x.safetensors"},
      {"length 2^64 - 8 wraps", safetensors_bytes(good, 1, ~std::uint64_t(0) - 7), "the limit is", "x.safetensors"},
      {"length cuts the JSON", safetensors_bytes(good, 1, good.size() - 3), "not valid JSON", "x.safetensors"},
  };
  for (const auto& h : cases) expect_refused(h);
  ASSERT_TRUE(parse_bytes(safetensors_bytes(good, 1)).ok());  // the control: the same file, whole
}

TEST(Safetensors, RefusesBadJson) {
  const Hostile cases[] = {
      {"leading space", safetensors_bytes(R"( {})", 0), "does not begin with {", "x.safetensors"},
      {"a list", safetensors_bytes(R"([1])", 0), "does not begin with {", "x.safetensors"},
      {"text after", safetensors_bytes(R"({} x)", 0), "text after its JSON", "x.safetensors"},
      {"NUL padding", safetensors_bytes(std::string("{}\0\0", 4), 0), "text after its JSON", "x.safetensors"},
      {"bad UTF-8 in a name", safetensors_bytes("{\"\xff\xfe\":{}}", 0), "not valid JSON", "x.safetensors"},
      {"overlong UTF-8", safetensors_bytes("{\"\xc0\xaf\":{}}", 0), "not valid JSON", "x.safetensors"},
      {"control character", safetensors_bytes("{\"a\nb\":{}}", 0), "not valid JSON", "x.safetensors"},
      {"unfinished", safetensors_bytes(R"({"a":)", 0), "not valid JSON", "x.safetensors"},
      {"deep", safetensors_bytes(R"({"a":{"shape":[[[[[[[[[[1]]]]]]]]]]}})", 0), "wrong type in its shape", "a"},
      {"very deep", safetensors_bytes("{\"a\":" + std::string(200'000, '['), 0), "is not described by an object", "a"},
      {"very deep inside", safetensors_bytes("{\"a\":{\"shape\":" + std::string(200'000, '{'), 0), "wrong type", "a"},
      {"long name", safetensors_bytes("{\"" + std::string(5000, 'n') + "\":{}}", 0), "not valid JSON", "x.safetensors"},
  };
  for (const auto& h : cases) expect_refused(h);
}

TEST(Safetensors, RefusesBadEntries) {
  const auto tensor = [](const std::string& fields, std::size_t data = 4) { return safetensors_bytes("{\"t.w\":" + fields + "}", data); };
  const Hostile cases[] = {
      {"no object", tensor("7"), "tensor t.w is not described by an object", "t.w"},
      {"null", tensor("null"), "is not described by an object", "t.w"},
      {"a string", tensor("\"F32\""), "is not described by an object", "t.w"},
      {"empty", tensor("{}"), "has no dtype", "t.w"},
      {"no shape", tensor(R"({"dtype":"F32","data_offsets":[0,4]})"), "has no shape", "t.w"},
      {"no offsets", tensor(R"({"dtype":"F32","shape":[1]})"), "has no data_offsets", "t.w"},
      {"unknown field", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})"), "unknown field strides", "t.w"},
      {"dtype twice", tensor(R"({"dtype":"F32","dtype":"U32","shape":[1],"data_offsets":[0,4]})"), "has dtype twice", "t.w"},
      {"shape twice", tensor(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})"), "has shape twice", "t.w"},
      {"unknown dtype", tensor(R"({"dtype":"Q4_0","shape":[1],"data_offsets":[0,4]})"), "unknown dtype \"Q4_0\"", "t.w"},
      {"FP8", tensor(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})"), "F8_E4M3, which cannot be served", "t.w"},
      {"dtype of a thousand", tensor("{\"dtype\":\"" + std::string(1000, 'F') + "\",\"shape\":[1],\"data_offsets\":[0,4]}"), "t.w has", "t.w"},
      {"dtype a number", tensor(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})"), "wrong type in its dtype", "t.w"},
      {"negative dimension", tensor(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "has -1 in its shape", "t.w"},
      {"two negative dimensions", tensor(R"({"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]})"), "has -1 in its shape", "t.w"},
      {"fraction", tensor(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "not whole", "t.w"},
      {"1e300", tensor(R"({"dtype":"F32","shape":[1e300],"data_offsets":[0,4]})"), "not whole", "t.w"},
      {"2^63", tensor(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})"), "9223372036854775808 in its shape", "t.w"},
      {"2^64", tensor(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})"), "too large", "t.w"},
      {"string dimension", tensor(R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})"), "wrong type in its shape", "t.w"},
      {"product is 2^64 + 1 element", tensor(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0), "overflows", "t.w"},
      {"product wraps to 4", tensor(R"({"dtype":"U32","shape":[4611686018427387905],"data_offsets":[0,4]})"), "overflows", "t.w"},
      {"a zero does not hide it", tensor(R"({"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})", 0), "overflows", "t.w"},
      {"nor before it", tensor(R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", 0), "overflows", "t.w"},
      {"nine dimensions", tensor(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"), "more than 8 dimensions", "t.w"},
      {"one offset", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "has 1 data_offsets", "t.w"},
      {"three offsets", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"), "more than two", "t.w"},
      {"negative offset", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})"), "has -4 in its data_offsets", "t.w"},
      {"reversed", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "after its end", "t.w"},
      {"beyond the end", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[1,5]})"), "data has 4 bytes", "t.w"},
      {"far beyond", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807]})"), "data has 4 bytes", "t.w"},
      {"too few bytes for the shape", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "its shape needs 8", "t.w"},
      {"too many bytes", tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[0,4]})"), "its shape needs 2", "t.w"},
      {"hole before", tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[2,4]})"), "hole of 2 bytes", "t.w"},
      {"bytes after", tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})"), "2 bytes after its last tensor", "x.safetensors"},
      {"metadata not text", safetensors_bytes(R"({"__metadata__":{"a":1}})", 0), "__metadata__ has a value of the wrong type in its a", "__metadata__"},
      {"metadata nested", safetensors_bytes(R"({"__metadata__":{"a":{}}})", 0), "__metadata__ has a value of the wrong type", "__metadata__"},
      {"metadata a list", safetensors_bytes(R"({"__metadata__":[]})", 0), "__metadata__ is not described", "__metadata__"},
      {"metadata twice", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ appears twice", "__metadata__"},
      {"metadata key twice", safetensors_bytes(R"({"__metadata__":{"k":"a","k":"b"}})", 0), "the key k twice", "__metadata__"},
      {"data without tensors", safetensors_bytes("{}", 3), "3 bytes after its last tensor", "x.safetensors"},
      {"empty name", safetensors_bytes(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "has an empty name", ""},
  };
  for (const auto& h : cases) expect_refused(h);
}

TEST(Safetensors, RefusesOverlapHolesAndDuplicatesBetweenTensors) {
  const auto two = [](const char* name, const char* first, const char* second) {
    return safetensors_bytes(std::string("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":") + first + "},\"" + name +
                                 "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + second + "}}", 8);
  };
  ASSERT_TRUE(parse_bytes(two("b", "[0,4]", "[4,8]")).ok());
  ASSERT_TRUE(parse_bytes(two("b", "[4,8]", "[0,4]")).ok());
  const Hostile cases[] = {
      {"same range", two("b", "[0,4]", "[0,4]"), "overlaps tensor a", "b"},
      {"one byte shared", two("b", "[0,4]", "[3,7]"), "overlaps tensor a", "b"},
      {"hole", two("b", "[0,4]", "[5,9]"), "data has 8 bytes", "b"},
      {"same name", two("a", "[0,4]", "[4,8]"), "tensor a appears twice", "a"},
      {"same name by escapes", two("\\u0061", "[0,4]", "[4,8]"), "tensor a appears twice", "a"},
  };
  for (const auto& h : cases) expect_refused(h);
}

TEST(Safetensors, MessagesHoldNoForeignControlBytes) {
  const auto tensors = parse_bytes(safetensors_bytes("{\"\\u001b[31m\\u0000\xc3\xa9\":5}", 0));
  ASSERT_FALSE(tensors.ok());
  EXPECT_NE(tensors.error().message.find("\\x1b[31m\\x00\\xc3\\xa9"), std::string::npos) << tensors.error().message;
}

TEST(Safetensors, MemoryStaysNearTheHeaderLength) {
  // The shortest entries there are, more than the limit: refused, before memory grows past a few times the header.
  std::string header = "{";
  for (int i = 0; i < 300'000; i++) {
    char entry[96];
    std::snprintf(entry, sizeof entry, R"("%d":{"dtype":"U8","shape":[],"data_offsets":[%d,%d]},)", i, i, i + 1);
    header += entry;
  }
  header.back() = '}';
  const std::string file = safetensors_bytes(header, 300'000);
  struct rusage before {}, after {};
  getrusage(RUSAGE_SELF, &before);
  const auto tensors = parse_bytes(file);
  getrusage(RUSAGE_SELF, &after);
  ASSERT_FALSE(tensors.ok());
  EXPECT_NE(tensors.error().message.find("one of more than 262144"), std::string::npos) << tensors.error().message;
#ifndef __SANITIZE_ADDRESS__  // whose red zones take more than the entries
  EXPECT_LT(std::size_t(after.ru_maxrss - before.ru_maxrss) * 1024, 8 * header.size());
#endif
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  auto missing = open_safetensors(folder.path() / "none.safetensors");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("none.safetensors"), std::string::npos);

  std::filesystem::create_directory(folder.path() / "d.safetensors");
  auto directory = open_safetensors(folder.path() / "d.safetensors");
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("not a regular file"), std::string::npos) << directory.error().message;

  ASSERT_EQ(::mkfifo((folder.path() / "p.safetensors").c_str(), 0600), 0);
  auto pipe = open_safetensors(folder.path() / "p.safetensors");  // would wait for a writer
  ASSERT_FALSE(pipe.ok());
  EXPECT_NE(pipe.error().message.find("not a regular file"), std::string::npos) << pipe.error().message;

  folder.write("e.safetensors", "");
  auto empty = open_safetensors(folder.path() / "e.safetensors");
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message.find("has 0 bytes"), std::string::npos) << empty.error().message;

  folder.write("u.safetensors", safetensors_bytes("{}", 0));
  ASSERT_EQ(::chmod((folder.path() / "u.safetensors").c_str(), 0), 0);
  auto unreadable = open_safetensors(folder.path() / "u.safetensors");
  if (::geteuid() == 0) {
    EXPECT_TRUE(unreadable.ok());  // the superuser reads everything
  } else {
    ASSERT_FALSE(unreadable.ok());
    EXPECT_NE(unreadable.error().message.find("Permission denied"), std::string::npos) << unreadable.error().message;
  }
}

TEST(MappedFile, DroppedPagesAreReadAgain) {
  const TempFolder folder;
  std::string data(1 << 20, 'x');
  for (std::size_t i = 0; i < data.size(); i++) data[i] = char(i * 31 >> 3);
  folder.write("f", data);
  auto file = MappedFile::open(folder.path() / "f");
  ASSERT_TRUE(file.ok());
  const std::byte* begin = (*file)->data();
  ASSERT_EQ(std::memcmp(begin, data.data(), data.size()), 0);
  (*file)->drop(begin + 100, data.size() - 200);
  (*file)->drop(begin - 1, 10);                 // outside: nothing happens
  (*file)->drop(begin + 1, std::size_t(-1));
  EXPECT_EQ(std::memcmp(begin, data.data(), data.size()), 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
