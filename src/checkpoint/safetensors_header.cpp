#include "checkpoint/safetensors_header.h"

#include <boost/json/basic_parser_impl.hpp>
#include <iterator>
#include <optional>

#include "checkpoint/json_file.h"

namespace lockstep::checkpoint {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

constexpr std::size_t kMaxTensors = 1u << 18, kMaxRank = 8, kMaxDtypeName = 32;

struct DtypeName {
  std::string_view name;
  std::optional<DType> dtype;  // none: a known format that nothing here reads
};
constexpr DtypeName kDtypes[] = {
    {"F64", DType::kF64}, {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"I64", DType::kI64}, {"I32", DType::kI32},
    {"I16", DType::kI16}, {"I8", DType::kI8},   {"U64", DType::kU64}, {"U32", DType::kU32},   {"U16", DType::kU16}, {"U8", DType::kU8},
    {"BOOL", DType::kBool}, {"F8_E4M3", {}}, {"F8_E5M2", {}}, {"F8_E8M0", {}}, {"F8_E4M3FNUZ", {}}, {"F8_E5M2FNUZ", {}}, {"F4", {}},
    {"F6_E2M3", {}}, {"F6_E3M2", {}}, {"C64", {}},
};

/// Depth 1 is the header, 2 a tensor or __metadata__, 3 a list. Every fault ends the parse with words of its own in `error`.
class HeaderHandler {
 public:
  static constexpr std::size_t max_object_size = kMaxTensors + 2, max_array_size = 64, max_key_size = 4096, max_string_size = 100'000'000;
  explicit HeaderHandler(const std::string& file) : file_(file) {}

  SafetensorsHeader header;
  std::optional<Error> error;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    if (++depth_ == 1) return true;
    if (depth_ == 2) {
      if (in_metadata()) return true;
      entry_ = {};
      has_dtype_ = has_shape_ = has_offsets_ = false;
      return true;
    }
    return value_fault(ec);
  }

  bool on_object_end(std::size_t, error_code& ec) {
    if (depth_-- != 2) return true;
    if (in_metadata()) return true;
    for (const auto& [seen, field] : {std::pair{has_dtype_, "dtype"}, {has_shape_, "shape"}, {has_offsets_, "data_offsets"}})
      if (!seen) return fault(ec, ErrorCode::kCorruptFile, std::string("has no ") + field);
    header.tensors.at(name_) = std::move(entry_);
    return true;
  }

  bool on_array_begin(error_code& ec) {
    const bool list = depth_ == 2 && !in_metadata() && (field_ == "shape" || field_ == "data_offsets");
    if (!list) return value_fault(ec);
    depth_++;
    offsets_ = 0;
    return true;
  }

  bool on_array_end(std::size_t, error_code& ec) {
    depth_--;
    if (field_ == "data_offsets" && offsets_ != 2) return fault(ec, ErrorCode::kCorruptFile, "has " + std::to_string(offsets_) + " data_offsets, not two");
    return true;
  }

  bool on_key_part(string_view s, std::size_t, error_code&) {
    text_.append(s.data(), s.size());
    return true;
  }

  bool on_key(string_view s, std::size_t, error_code& ec) {
    text_.append(s.data(), s.size());
    const std::string key = std::move(text_);
    text_.clear();
    return depth_ == 1 ? begin_entry(key, ec) : begin_field(key, ec);
  }

  bool on_string_part(string_view s, std::size_t n, error_code& ec) {
    if (depth_ == 2 && !in_metadata() && n > kMaxDtypeName) return value_fault(ec);
    text_.append(s.data(), s.size());
    return true;
  }

  bool on_string(string_view s, std::size_t, error_code& ec) {
    text_.append(s.data(), s.size());
    const std::string value = std::move(text_);
    text_.clear();
    if (depth_ == 2 && in_metadata()) {
      header.metadata[field_] = value;
      return true;
    }
    return depth_ == 2 && field_ == "dtype" ? set_dtype(value, ec) : value_fault(ec);
  }

  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t i, string_view, error_code& ec) {
    if (depth_ != 3) return value_fault(ec);
    if (i < 0) return fault(ec, ErrorCode::kCorruptFile, "has " + std::to_string(i) + " in its " + field_);
    if (field_ == "shape") {
      if (entry_.shape.size() == kMaxRank) return fault(ec, ErrorCode::kCorruptFile, "has more than 8 dimensions");
      entry_.shape.push_back(i);
      return true;
    }
    if (++offsets_ > 2) return fault(ec, ErrorCode::kCorruptFile, "has more than two data_offsets");
    (offsets_ == 1 ? entry_.begin : entry_.end) = std::uint64_t(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, string_view, error_code& ec) {
    return depth_ == 3 ? fault(ec, ErrorCode::kCorruptFile, "has " + std::to_string(u) + " in its " + field_) : value_fault(ec);
  }
  bool on_double(double, string_view, error_code& ec) {
    return depth_ == 3 ? fault(ec, ErrorCode::kCorruptFile, "has a number in its " + field_ + " that is not whole, or too large") : value_fault(ec);
  }
  bool on_bool(bool, error_code& ec) { return value_fault(ec); }
  bool on_null(error_code& ec) { return value_fault(ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  bool in_metadata() const { return name_ == "__metadata__"; }

  bool begin_entry(const std::string& key, error_code& ec) {
    name_ = key;
    field_.clear();
    if (in_metadata()) {
      if (has_metadata_) return fault(ec, ErrorCode::kCorruptFile, "appears twice");
      has_metadata_ = true;
      return true;
    }
    if (name_.empty()) return fault(ec, ErrorCode::kCorruptFile, "has an empty name");
    if (header.tensors.size() == kMaxTensors) return fault(ec, ErrorCode::kCorruptFile, "is one of more than " + std::to_string(kMaxTensors));
    if (!header.tensors.emplace(name_, SafetensorsHeader::Entry{}).second) return fault(ec, ErrorCode::kCorruptFile, "appears twice");
    return true;
  }

  bool begin_field(const std::string& key, error_code& ec) {
    field_ = key;
    if (in_metadata())
      return header.metadata.emplace(key, std::string()).second || fault(ec, ErrorCode::kCorruptFile, "has the key " + printable(key, 80) + " twice");
    bool* seen = key == "dtype" ? &has_dtype_ : key == "shape" ? &has_shape_ : key == "data_offsets" ? &has_offsets_ : nullptr;
    if (!seen) return fault(ec, ErrorCode::kCorruptFile, "has an unknown field " + printable(key, 80));
    if (*seen) return fault(ec, ErrorCode::kCorruptFile, "has " + key + " twice");
    return *seen = true;
  }

  bool set_dtype(const std::string& value, error_code& ec) {
    for (const auto& known : kDtypes) {
      if (known.name != value) continue;
      if (!known.dtype) return fault(ec, ErrorCode::kUnsupported, "has dtype " + value + ", which cannot be served");
      entry_.dtype = *known.dtype;
      return true;
    }
    return fault(ec, ErrorCode::kCorruptFile, "has an unknown dtype \"" + printable(value, 80) + "\"");
  }

  bool value_fault(error_code& ec) {
    if (depth_ == 1 && field_.empty() && !name_.empty()) return fault(ec, ErrorCode::kCorruptFile, "is not described by an object");
    return fault(ec, ErrorCode::kCorruptFile, "has a value of the wrong type" + (field_.empty() ? "" : " in its " + printable(field_, 80)));
  }

  bool fault(error_code& ec, ErrorCode code, const std::string& words) {
    const std::string subject = in_metadata() ? name_ : "tensor " + printable(name_);
    error = Error{code, file_ + ": " + subject + " " + words, name_};
    ec = json::error::exception;  // any code: it only ends the parse
    return false;
  }

  const std::string& file_;
  int depth_ = 0, offsets_ = 0;
  std::string name_, field_, text_;
  SafetensorsHeader::Entry entry_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, const std::string& file) {
  json::parse_options options;
  options.max_depth = 4;
  json::basic_parser<HeaderHandler> parser(options, file);
  error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (parser.handler().error) return *parser.handler().error;
  if (ec) return Error{ErrorCode::kCorruptFile, file + ": the header is not valid JSON at byte " + std::to_string(used) + ": " + ec.message(), file};
  if (used != text.size()) return Error{ErrorCode::kCorruptFile, file + ": the header has text after its JSON at byte " + std::to_string(used), file};
  return std::move(parser.handler().header);
}

}  // namespace lockstep::checkpoint
