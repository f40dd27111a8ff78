// lockstep run: one reply, or a chat in the terminal.
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/commands.h"
#include "cli/reply_stream.h"
#include "server/openai/prompt.h"

namespace lockstep::cli {
namespace json = boost::json;
namespace {

/// The conversation so far, and the prompt it makes.
class Conversation {
 public:
  Conversation(const engine::ModelInfo& model, const Options& options) : model_(model), options_(options) { clear(); }

  void clear() {
    messages_.clear();
    if (!options_.system.empty()) add("system", options_.system);
  }
  void add(std::string_view role, const std::string& content, const std::string& reasoning = "") {
    json::object message{{"role", role}, {"content", content}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    messages_.push_back(std::move(message));
  }
  void drop_last() { messages_.pop_back(); }

  Result<std::vector<std::int32_t>> prompt() const {
    server::BoundedMemory memory(std::size_t(256) << 20);
    server::openai::RequestFields fields;
    const json::value messages(messages_);
    json::object kwargs;
    if (!options_.thinking.empty()) kwargs["enable_thinking"] = options_.thinking == "on";
    fields.messages = &messages;
    fields.template_kwargs = &kwargs;
    LOCKSTEP_ASSIGN(auto prompt, server::openai::chat_prompt(model_, fields, 64, false, memory));
    return std::move(prompt.ids);
  }

 private:
  const engine::ModelInfo& model_;
  const Options& options_;
  json::array messages_;
};

enum class Line { kText, kInterrupted, kEnd };

/// One line of standard input; an interrupt beyond the `seen` ones ends the wait, and is seen then.
Line read_line(std::string& line, int& seen) {
  line.clear();
  for (char c;;) {
    if (interrupts() > seen) {
      seen++;
      return Line::kInterrupted;
    }
    // A read alone would miss an interrupt that comes just before it.
    pollfd input{0, POLLIN, 0};
    if (::poll(&input, 1, 100) <= 0) continue;
    const ssize_t n = ::read(0, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return line.empty() ? Line::kEnd : Line::kText;
    if (c == '\n') return Line::kText;
    line += c;
  }
}

int chat(engine::Engine& engine, const Options& options) {
  const engine::ModelInfo& model = engine.info();
  Conversation conversation(model, options);
  const bool terminal = is_terminal(0) && is_terminal(1);
  if (terminal) fmt::print("{}: an empty line is ignored, /new starts over, Ctrl-D ends.\n", model.name);
  bool asked_to_end = false;
  int seen = interrupts();
  for (std::string line;;) {
    if (terminal) {
      fmt::print("\x1b[1m> \x1b[0m");
      std::fflush(stdout);
    }
    const Line got = read_line(line, seen);
    if (got == Line::kEnd) break;
    if (got == Line::kInterrupted) {
      if (asked_to_end) break;
      asked_to_end = true;
      std::fputs("\nCtrl-C again ends the program\n", stderr);
      continue;
    }
    asked_to_end = false;
    if (line.empty()) continue;
    if (line == "/new") {
      conversation.clear();
      continue;
    }
    conversation.add("user", line);
    auto prompt = conversation.prompt();
    auto reply = prompt ? stream_reply(engine, std::move(*prompt), true, options) : Result<Reply>(prompt.error());
    seen = interrupts();  // those were the reply's
    if (!reply) {
      fail(reply.error());
      conversation.drop_last();
      continue;
    }
    conversation.add("assistant", reply->content, reply->reasoning);
  }
  if (terminal) fmt::print("\n");
  return kExitOk;
}

int one_reply(engine::Engine& engine, const Options& options, const std::string& text) {
  Result<std::vector<std::int32_t>> prompt = std::vector<std::int32_t>{};
  if (options.raw) {
    prompt = engine.info().tokenizer->encode(text, true);
    if (prompt && prompt->empty()) return fail({ErrorCode::kInvalidArgument, "PROMPT is empty", "PROMPT"});
  } else {
    Conversation conversation(engine.info(), options);
    conversation.add("user", text);
    prompt = conversation.prompt();
    if (!prompt && !engine.info().chat_template)
      return fail(
          {ErrorCode::kUnsupported, fmt::format("{} has no chat template; --raw takes PROMPT as it is", engine.info().name), "raw"});
  }
  if (!prompt) return fail(prompt.error());
  const auto reply = stream_reply(engine, std::move(*prompt), !options.raw, options);
  if (!reply) return fail(reply.error());
  return reply->finish.reason == engine::FinishReason::kCancelled ? 130 : kExitOk;  // 128 + SIGINT, as shells expect
}

}  // namespace

int run(const Options& options) {
  spdlog::set_level(spdlog::level::warn);
  std::string text = options.prompt;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (options.raw && text.empty()) return fail({ErrorCode::kInvalidArgument, "--raw needs a PROMPT", "PROMPT"});
  auto flags = engine_options(options);
  if (!flags) return fail(flags.error());
  flags->parallel = 1;
  auto engine = engine::Engine::create(*flags);
  if (!engine) return fail(engine.error());
  end_progress();
  install_interrupts();
  return text.empty() ? chat(**engine, options) : one_reply(**engine, options, text);
}

}  // namespace lockstep::cli
