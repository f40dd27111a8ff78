// The table of request fields of /v1/chat/completions and /v1/completions: name, what is done with it, how it is read, what the docs say.
#pragma once
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace lockstep::server::openai {

enum Route : unsigned { kChat = 1, kCompletions = 2, kBoth = 3 };

/// What a body's fields say, each checked alone. Pointers go into the parsed body.
struct RequestFields {
  std::string model;
  const boost::json::value* messages = nullptr;
  const boost::json::value* prompt = nullptr;
  const boost::json::object* template_kwargs = nullptr;
  std::string reasoning_effort;
  bool add_generation_prompt = true, add_special_tokens = true;

  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;  // the smaller of max_tokens and max_completion_tokens
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int n = 1;

  bool stream = false, include_usage = false, has_stream_options = false, return_token_ids = false;
  engine::Priority priority = engine::Priority::kNormal;
  std::string cache_salt;

  std::vector<std::string> unknown;  // names the table does not have, at most 16 of them
};

enum class Treatment {
  kHonoured,
  kNeutralOnly,  // accepted where its value asks for nothing, else refused by name
  kIgnored,      // asks for nothing that a reply could show
};

struct Field {
  std::string_view name;
  unsigned routes;
  Treatment treatment;
  std::string_view type;   // for the docs: type and range, or the neutral values
  std::string_view meaning;
  /// Reads a value that is not null; null is the same as absence for every field.
  Status (*read)(const boost::json::value& value, const Field& field, RequestFields& out);
};

std::span<const Field> request_field_table();

/// Reads a body in the order of its members. The first field at fault is the error's subject. Messages and prompt are only located.
Result<RequestFields> read_request_fields(const boost::json::object& body, Route route);

/// An integer as JSON has it: 16 and 16.0 are one, 16.5 is none, nor is anything outside 64 bits.
std::optional<std::int64_t> as_integer(const boost::json::value& value);

}  // namespace lockstep::server::openai
