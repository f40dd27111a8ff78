#include "server/openai/request_fields.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "server/json_text.h"

namespace lockstep::server::openai {
namespace json = boost::json;
namespace {

constexpr int kMaxChoices = 16;
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 4096, kMaxSaltBytes = 256, kMaxUnknown = 16, kMaxShownBytes = 64;

// A client's value in an error message: short, and as JSON.
std::string shown(const json::value& value) {
  std::string out;
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return std::to_string(value.get_int64());
    case json::kind::uint64: return std::to_string(value.get_uint64());
    case json::kind::double_: {
      char digits[32];
      out.assign(digits, std::to_chars(digits, digits + sizeof digits, value.get_double()).ptr);
      return out;
    }
    case json::kind::string: {
      const std::string_view text(value.get_string().data(), value.get_string().size());
      append_json_string(out, text.substr(0, kMaxShownBytes));
      return text.size() > kMaxShownBytes ? out + "..." : out;
    }
    case json::kind::array: return value.get_array().empty() ? "[]" : "an array";
    case json::kind::object: return value.get_object().empty() ? "{}" : "an object";
  }
  return out;
}

Error must_be(const Field& field, std::string_view what, const json::value& value) {
  return {ErrorCode::kInvalidArgument, std::string(field.name) + " must be " + std::string(what) + ", not " + shown(value), std::string(field.name)};
}

std::optional<double> as_real(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  return std::nullopt;
}

std::string to_string(const json::string& s) { return {s.data(), s.size()}; }

// ---- readers of honoured fields

Status read_real(const json::value& value, const Field& field, double low, double high, std::string_view what, std::optional<double>& out) {
  const auto x = as_real(value);
  if (!x || !(*x >= low && *x <= high)) return must_be(field, what, value);
  out = *x;
  return {};
}

template <bool RequestFields::*member>
Status read_flag(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_bool()) return must_be(field, "true or false", value);
  out.*member = value.get_bool();
  return {};
}

Status read_model(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_string()) return must_be(field, "a string", value);
  out.model = to_string(value.get_string());
  return {};
}
Status read_messages(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_array()) return must_be(field, "an array of messages", value);
  out.messages = &value;
  return {};
}
Status read_prompt(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_string() && !value.is_array()) return must_be(field, "a string or an array of token ids", value);
  out.prompt = &value;
  return {};
}
Status read_temperature(const json::value& value, const Field& field, RequestFields& out) {
  return read_real(value, field, 0, 2, "a number from 0 to 2", out.temperature);
}
Status read_top_p(const json::value& value, const Field& field, RequestFields& out) {
  LOCKSTEP_TRY(read_real(value, field, 0, 1, "a number from 0 to 1", out.top_p));
  // 0 keeps the first candidate, as the smallest mass above it does.
  out.top_p = std::max(*out.top_p, std::numeric_limits<double>::min());
  return {};
}
Status read_min_p(const json::value& value, const Field& field, RequestFields& out) {
  return read_real(value, field, 0, 1, "a number from 0 to 1", out.min_p);
}
Status read_top_k(const json::value& value, const Field& field, RequestFields& out) {
  const auto k = as_integer(value);
  if (!k || *k < -1) return must_be(field, "an integer, 0 or above (0 or -1: all)", value);
  out.top_k = static_cast<int>(std::clamp<std::int64_t>(*k, 0, std::numeric_limits<int>::max()));
  return {};
}

Status read_seed(const json::value& value, const Field& field, RequestFields& out) {
  constexpr std::string_view kWhat = "an integer from -2^63 to 2^64 - 1, as a number or in decimal digits in a string";
  if (value.is_string()) {
    const json::string& digits = value.get_string();
    const char* first = digits.data();
    const char* last = first + digits.size();
    if (first != last && *first == '-') {
      std::int64_t negative = 0;
      const auto [end, ec] = std::from_chars(first, last, negative);
      if (ec != std::errc() || end != last) return must_be(field, kWhat, value);
      out.seed = static_cast<std::uint64_t>(negative);
      return {};
    }
    std::uint64_t positive = 0;
    const auto [end, ec] = std::from_chars(first, last, positive);
    if (first == last || ec != std::errc() || end != last) return must_be(field, kWhat, value);
    out.seed = positive;
    return {};
  }
  if (value.is_uint64()) {
    out.seed = value.get_uint64();
    return {};
  }
  const auto integer = as_integer(value);
  if (!integer) return must_be(field, kWhat, value);
  out.seed = static_cast<std::uint64_t>(*integer);
  return {};
}

Status read_max_tokens(const json::value& value, const Field& field, RequestFields& out) {
  std::optional<std::int64_t> n = as_integer(value);
  // What is above 64 bits is above every context: cut like any other.
  const auto real = as_real(value);
  if (!n && real && *real > 9e18) n = std::numeric_limits<std::int64_t>::max();
  if (!n || *n < 1) return must_be(field, "an integer, 1 or above", value);
  out.max_tokens = std::min(*n, out.max_tokens.value_or(*n));
  return {};
}

Status read_n(const json::value& value, const Field& field, RequestFields& out) {
  const auto n = as_integer(value);
  if (!n || *n < 1 || *n > kMaxChoices) return must_be(field, "an integer from 1 to 16", value);
  out.n = static_cast<int>(*n);
  return {};
}

Status read_stop(const json::value& value, const Field& field, RequestFields& out) {
  const auto add = [&](const json::value& stop, const std::string& where) -> Status {
    if (!stop.is_string()) return Error{ErrorCode::kInvalidArgument, where + " must be a string, not " + shown(stop), where};
    if (stop.get_string().empty()) return Error{ErrorCode::kInvalidArgument, where + " must not be empty", where};
    if (stop.get_string().size() > kMaxStopBytes) {
      return Error{ErrorCode::kInvalidArgument, where + " is longer than " + std::to_string(kMaxStopBytes) + " bytes", where};
    }
    out.stop.push_back(to_string(stop.get_string()));
    return {};
  };
  if (value.is_string()) return add(value, "stop");
  if (!value.is_array()) return must_be(field, "a string or an array of strings", value);
  const auto& list = value.get_array();
  if (list.size() > kMaxStops) {
    return Error{ErrorCode::kInvalidArgument,
                 "stop has " + std::to_string(list.size()) + " strings; at most " + std::to_string(kMaxStops) + " are taken", "stop"};
  }
  for (std::size_t i = 0; i < list.size(); ++i) LOCKSTEP_TRY(add(list[i], "stop[" + std::to_string(i) + "]"));
  return {};
}

Status read_stream_options(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_object()) return must_be(field, "an object", value);
  out.has_stream_options = true;
  const json::value* usage = value.get_object().if_contains("include_usage");
  if (!usage || usage->is_null()) return {};
  if (!usage->is_bool()) {
    return Error{ErrorCode::kInvalidArgument, "stream_options.include_usage must be true or false, not " + shown(*usage), "stream_options.include_usage"};
  }
  out.include_usage = usage->get_bool();
  return {};
}

Status read_template_kwargs(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_object()) return must_be(field, "an object", value);
  for (const auto& member : value.get_object()) {
    for (const std::string_view reserved : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
      if (member.key() != reserved) continue;
      const std::string where = "chat_template_kwargs." + std::string(reserved);
      return Error{ErrorCode::kInvalidArgument, where + " is set by the server and cannot be given", where};
    }
    if (member.key() == "enable_thinking" && !member.value().is_bool() && !member.value().is_null()) {
      return Error{ErrorCode::kInvalidArgument, "chat_template_kwargs.enable_thinking must be true or false, not " + shown(member.value()),
                   "chat_template_kwargs.enable_thinking"};
    }
  }
  out.template_kwargs = &value.get_object();
  return {};
}

Status read_reasoning_effort(const json::value& value, const Field& field, RequestFields& out) {
  for (const std::string_view level : {"none", "minimal", "low", "medium", "high", "xhigh", "max"}) {
    if (value.is_string() && value.get_string() == level) {
      out.reasoning_effort = level;
      return {};
    }
  }
  return must_be(field, R"(one of "none", "minimal", "low", "medium", "high", "xhigh", "max")", value);
}

Status read_priority(const json::value& value, const Field& field, RequestFields& out) {
  if (value.is_string() && value.get_string() == "normal") return {};
  const auto n = as_integer(value);
  if (n && *n <= 0) return {};
  if ((n && *n > 0) || (value.is_string() && value.get_string() == "background")) {
    out.priority = engine::Priority::kBackground;
    return {};
  }
  return must_be(field, R"("normal", "background" or an integer (above 0: background))", value);
}

Status read_cache_salt(const json::value& value, const Field& field, RequestFields& out) {
  if (!value.is_string() || value.get_string().size() > kMaxSaltBytes) return must_be(field, "a string of at most 256 bytes", value);
  out.cache_salt = to_string(value.get_string());
  return {};
}

// ---- readers of fields that are accepted at their neutral value only

Error refused(const Field& field, const json::value& value) {
  return {ErrorCode::kUnsupported,
          std::string(field.name) + " is not supported beyond its neutral value (" + std::string(field.type) + "); it was " + shown(value),
          std::string(field.name)};
}
template <std::int64_t... neutral>
Status only_numbers(const json::value& value, const Field& field, RequestFields&) {
  const auto x = as_real(value);
  if (x && ((*x == static_cast<double>(neutral)) || ...)) return {};
  return refused(field, value);
}
template <bool neutral>
Status only_flag(const json::value& value, const Field& field, RequestFields&) {
  if (value.is_bool() && value.get_bool() == neutral) return {};
  return refused(field, value);
}
Status only_empty(const json::value& value, const Field& field, RequestFields&) {
  if ((value.is_array() && value.get_array().empty()) || (value.is_object() && value.get_object().empty())) return {};
  return refused(field, value);
}
Status only_empty_text(const json::value& value, const Field& field, RequestFields&) {
  if (value.is_string() && value.get_string().empty()) return {};
  return refused(field, value);
}
Status only_null(const json::value& value, const Field& field, RequestFields&) { return refused(field, value); }
Status only_no_tool(const json::value& value, const Field& field, RequestFields&) {
  if (value.is_string() && (value.get_string() == "none" || value.get_string() == "auto")) return {};
  return refused(field, value);
}
Status only_text_format(const json::value& value, const Field& field, RequestFields&) {
  const auto* object = value.if_object();
  const json::value* type = object ? object->if_contains("type") : nullptr;
  if (type && type->is_string() && type->get_string() == "text") return {};
  return refused(field, value);
}
Status only_text_modality(const json::value& value, const Field& field, RequestFields&) {
  const auto* list = value.if_array();
  if (list && list->size() == 1 && (*list)[0].is_string() && (*list)[0].get_string() == "text") return {};
  return refused(field, value);
}

// ---- ignored

Status ignore(const json::value&, const Field&, RequestFields&) { return {}; }
Status ignore_flag(const json::value& value, const Field& field, RequestFields&) {
  if (!value.is_bool()) return must_be(field, "true or false", value);
  return {};
}

constexpr Treatment H = Treatment::kHonoured, N = Treatment::kNeutralOnly, I = Treatment::kIgnored;
constexpr Field kFields[] = {
    {"messages", kChat, H, "array of messages, required", "the conversation; see Messages", read_messages},
    {"prompt", kCompletions, H, "string, array of token ids, or a list of one of these; required",
     "run as given: no template, spellings of control tokens are those tokens, token ids are checked against the vocabulary", read_prompt},
    {"model", kBoth, H, "string", "any name is served; the reply has the served one", read_model},
    {"max_tokens", kBoth, H, "integer, 1 or above", "limit of the reply's tokens; what is left of the context if absent, and cut to it", read_max_tokens},
    {"max_completion_tokens", kBoth, H, "integer, 1 or above", "the same; with both, the smaller one holds", read_max_tokens},
    {"temperature", kBoth, H, "0 to 2", "0: the likeliest token each time; if absent, the model's generation_config.json", read_temperature},
    {"top_p", kBoth, H, "0 to 1", "keeps the shortest list of likeliest tokens with this much probability; if absent, the model's", read_top_p},
    {"top_k", kBoth, H, "integer; 0 or -1: all", "keeps the k likeliest tokens; if absent, the model's", read_top_k},
    {"min_p", kBoth, H, "0 to 1", "drops tokens below this share of the likeliest one's probability; if absent, the model's", read_min_p},
    {"seed", kBoth, H, "integer, -2^63 to 2^64 - 1, number or decimal string",
     "key of every draw, taken modulo 2^64 (so -1 is 2^64 - 1); if absent, made from the prompt's token ids, so that a request repeats", read_seed},
    {"n", kBoth, H, "1 to 16", "choices; choice 0 draws with the seed, choice i with splitmix64(seed + i): each equals a request of its own with that seed",
     read_n},
    {"stop", kBoth, H, "string, or at most 16 strings of at most 4,096 bytes, none empty", "ends the reply before the first of them, which is left out",
     read_stop},
    {"ignore_eos", kBoth, H, "boolean", "the model's stop tokens do not end the reply", read_flag<&RequestFields::ignore_eos>},
    {"stream", kBoth, H, "boolean", "server-sent events", read_flag<&RequestFields::stream>},
    {"stream_options", kBoth, H, "object; with stream only", "include_usage: a last chunk with usage and no choices", read_stream_options},
    {"return_token_ids", kBoth, H, "boolean", "adds prompt_token_ids and choices[].token_ids (in a stream, each chunk's own)",
     read_flag<&RequestFields::return_token_ids>},
    {"chat_template_kwargs", kChat, H, "object", "variables for the model's template; enable_thinking is a boolean", read_template_kwargs},
    {"reasoning_effort", kChat, H, "none, minimal, low, medium, high, xhigh, max",
     "a variable for the template; none also sets enable_thinking to false, the others to true, unless chat_template_kwargs says", read_reasoning_effort},
    {"add_generation_prompt", kChat, H, "boolean", "false: the template does not open the assistant's turn",
     read_flag<&RequestFields::add_generation_prompt>},
    {"add_special_tokens", kCompletions, H, "boolean", "false: a string prompt gets no BOS and the like",
     read_flag<&RequestFields::add_special_tokens>},
    {"priority", kBoth, H, "normal, background, or an integer (above 0: background)", "background requests wait for others", read_priority},
    {"cache_salt", kBoth, H, "string of at most 256 bytes", "requests share kept prompts only with requests of the same salt", read_cache_salt},

    {"best_of", kCompletions, N, "1", "more choices drawn than returned", only_numbers<1>},
    {"echo", kCompletions, N, "false", "the prompt in front of the reply", only_flag<false>},
    {"suffix", kCompletions, N, "\"\"", "text after the reply", only_empty_text},
    {"logprobs", kChat, N, "false", "log probabilities", only_flag<false>},
    {"logprobs", kCompletions, N, "null", "log probabilities", only_null},
    {"top_logprobs", kBoth, N, "0", "log probabilities of other tokens", only_numbers<0>},
    {"prompt_logprobs", kBoth, N, "null", "log probabilities of the prompt", only_null},
    {"presence_penalty", kBoth, N, "0", "", only_numbers<0>},
    {"frequency_penalty", kBoth, N, "0", "", only_numbers<0>},
    {"repetition_penalty", kBoth, N, "1", "", only_numbers<1>},
    {"repeat_penalty", kBoth, N, "1", "another engine's name for the same", only_numbers<1>},
    {"length_penalty", kBoth, N, "1", "", only_numbers<1>},
    {"logit_bias", kBoth, N, "{}", "", only_empty},
    {"typical_p", kBoth, N, "1", "", only_numbers<1>},
    {"mirostat", kBoth, N, "0", "", only_numbers<0>},
    {"min_tokens", kBoth, N, "0", "", only_numbers<0>},
    {"stop_token_ids", kBoth, N, "[]", "", only_empty},
    {"bad_words", kBoth, N, "[]", "", only_empty},
    {"allowed_token_ids", kBoth, N, "null", "", only_null},
    {"use_beam_search", kBoth, N, "false", "", only_flag<false>},
    {"skip_special_tokens", kBoth, N, "true", "", only_flag<true>},
    {"include_stop_str_in_output", kBoth, N, "false", "", only_flag<false>},
    {"truncate_prompt_tokens", kBoth, N, "null", "", only_null},
    {"thinking_budget", kChat, N, "null", "", only_null},
    {"tools", kChat, N, "[]", "", only_empty},
    {"tool_choice", kChat, N, "\"none\" or \"auto\"", "no tools are offered", only_no_tool},
    {"functions", kChat, N, "[]", "", only_empty},
    {"function_call", kChat, N, "\"none\" or \"auto\"", "no functions are offered", only_no_tool},
    {"documents", kChat, N, "[]", "", only_empty},
    {"chat_template", kChat, N, "null", "the model's own template is used", only_null},
    {"continue_final_message", kChat, N, "false", "", only_flag<false>},
    {"response_format", kBoth, N, "{\"type\": \"text\"}", "", only_text_format},
    {"guided_json", kBoth, N, "null", "", only_null},
    {"guided_regex", kBoth, N, "null", "", only_null},
    {"guided_choice", kBoth, N, "null", "", only_null},
    {"guided_grammar", kBoth, N, "null", "", only_null},
    {"structured_outputs", kBoth, N, "null", "", only_null},
    {"grammar", kBoth, N, "null", "", only_null},
    {"json_schema", kBoth, N, "null", "", only_null},
    {"modalities", kChat, N, "[\"text\"]", "", only_text_modality},
    {"audio", kChat, N, "null", "", only_null},
    {"web_search_options", kChat, N, "null", "", only_null},

    {"draft", kBoth, I, "boolean", "a reply is the same with and without drafts", ignore_flag},
    {"parallel_tool_calls", kChat, I, "boolean", "no tools are offered", ignore_flag},
    {"user", kBoth, I, "any", "", ignore},
    {"metadata", kBoth, I, "any", "", ignore},
    {"store", kBoth, I, "any", "nothing is stored", ignore},
    {"service_tier", kBoth, I, "any", "", ignore},
    {"safety_identifier", kBoth, I, "any", "", ignore},
    {"prompt_cache_key", kBoth, I, "any", "", ignore},
    {"prompt_cache_retention", kBoth, I, "any", "", ignore},
    {"prediction", kChat, I, "any", "a hint", ignore},
    {"verbosity", kChat, I, "any", "a hint", ignore},
};

const Field* find_field(std::string_view name, Route route) {
  static const auto by_name = [] {
    std::unordered_multimap<std::string_view, const Field*> map;
    for (const auto& field : kFields) map.emplace(field.name, &field);
    return map;
  }();
  const auto [first, last] = by_name.equal_range(name);
  for (auto it = first; it != last; ++it) {
    if (it->second->routes & route) return it->second;
  }
  return nullptr;
}

}  // namespace

std::span<const Field> request_field_table() { return kFields; }

std::optional<std::int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) {
    if (value.get_uint64() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(value.get_uint64());
  }
  if (value.is_double()) {
    const double x = value.get_double();
    if (x == std::floor(x) && std::fabs(x) <= 9007199254740992.0) return static_cast<std::int64_t>(x);
  }
  return std::nullopt;
}

Result<RequestFields> read_request_fields(const json::object& body, Route route) {
  RequestFields out;
  for (const auto& member : body) {
    const std::string_view name(member.key().data(), member.key().size());
    const Field* field = find_field(name, route);
    if (!field) {
      if (out.unknown.size() < kMaxUnknown) out.unknown.emplace_back(name);
      continue;
    }
    if (!member.value().is_null()) LOCKSTEP_TRY(field->read(member.value(), *field, out));
  }
  if (route == kChat && !out.messages) return Error{ErrorCode::kInvalidArgument, "messages is missing: an array of messages is required", "messages"};
  if (route == kCompletions && !out.prompt) {
    return Error{ErrorCode::kInvalidArgument, "prompt is missing: a string or an array of token ids is required", "prompt"};
  }
  if (out.has_stream_options && !out.stream) {
    return Error{ErrorCode::kInvalidArgument, "stream_options is only allowed when stream is true", "stream_options"};
  }
  return out;
}

}  // namespace lockstep::server::openai
