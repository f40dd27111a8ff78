#include "cli/reply_stream.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <mutex>

#include "base/sha256.h"
#include "cli/commands.h"
#include "server/openai/prompt.h"

namespace lockstep::cli {
namespace {

volatile std::sig_atomic_t interrupt_count = 0;
extern "C" void count_interrupt(int) { interrupt_count = interrupt_count + 1; }

/// Events from the engine's thread to this one.
class Inbox {
 public:
  void push(engine::Event&& event) {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    wake_.notify_one();
  }
  /// The events that came, waiting up to 50 ms for one.
  std::deque<engine::Event> take() {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<engine::Event> events_;
};

/// Prints the two channels of a reply.
class Printer {
 public:
  void print(const engine::Event& event) {
    if (terminal_ && !event.reasoning.empty()) write((dim_ ? "" : "\x1b[2m") + printable(event.reasoning), true);
    if (event.content.empty()) return;
    if (!terminal_) {
      std::fwrite(event.content.data(), 1, event.content.size(), stdout);
      std::fflush(stdout);
      return;
    }
    write((dim_ ? "\x1b[0m\n\n" : "") + printable(event.content), false);
  }
  void end() {
    if (dim_) std::fputs("\x1b[0m", stdout);
    dim_ = false;
    std::fputs("\n", stdout);
    std::fflush(stdout);
  }

 private:
  void write(const std::string& text, bool dim) {
    dim_ = dim;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  const bool terminal_ = is_terminal(1);
  bool dim_ = false;
};

Result<engine::Request> make_request(const engine::ModelInfo& model, std::vector<std::int32_t> prompt, bool chat, const Options& options) {
  const std::int64_t left = model.context - std::int64_t(prompt.size());
  if (left < 1)
    return Error{
        ErrorCode::kContextLengthExceeded,
        fmt::format("the prompt has {} tokens, which leaves no room for a reply in the context of {}", prompt.size(), model.context),
        "context"};
  engine::Request request;
  request.id = "run";
  request.sampling = model.default_sampling;
  request.sampling.temperature = options.temperature.value_or(request.sampling.temperature);
  request.sampling.top_k = options.top_k.value_or(request.sampling.top_k);
  request.sampling.top_p = options.top_p.value_or(request.sampling.top_p);
  request.sampling.min_p = options.min_p.value_or(request.sampling.min_p);
  request.sampling.seed = options.seed ? *options.seed : default_seed(prompt);
  request.max_tokens = options.max_tokens ? std::min(options.max_tokens, left) : left;
  request.text.split_reasoning = chat && model.think_end.has_value();
  request.text.starts_in_reasoning = request.text.split_reasoning && server::openai::ends_in_reasoning(model, prompt);
  request.text.think_start = model.think_start;
  request.text.think_end = model.think_end;
  request.prompt_ids = std::move(prompt);
  return request;
}

}  // namespace

void install_interrupts() {
  struct sigaction action {};
  action.sa_handler = count_interrupt;  // without SA_RESTART, so that the wait at the prompt ends
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

int interrupts() { return interrupt_count; }

std::string printable(const std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++) {
    const unsigned char c = static_cast<unsigned char>(text[i]), next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += kReplacement;
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 .. U+009F
      out += kReplacement;
      i++;
    } else {
      out += text[i];
    }
  }
  return out;
}

Result<Reply> stream_reply(engine::Engine& engine, std::vector<std::int32_t> prompt, bool chat, const Options& options) {
  const double prompt_tokens = double(prompt.size());
  LOCKSTEP_ASSIGN(engine::Request request, make_request(engine.info(), std::move(prompt), chat, options));
  const int interrupts_before = interrupts();
  const std::int64_t rows_before = engine.stats().rows;
  const auto inbox = std::make_shared<Inbox>();
  LOCKSTEP_ASSIGN(const std::uint64_t handle,
                  engine.submit(std::move(request), [inbox](engine::Event&& event) { inbox->push(std::move(event)); }));

  Reply reply;
  Printer printer;
  bool cancelled = false, started = false, progress = false;
  const auto begin = std::chrono::steady_clock::now();
  for (bool ended = false; !ended;) {
    for (engine::Event& event : inbox->take()) {
      if (!started && progress) end_progress();
      started = true;
      printer.print(event);
      reply.reasoning += event.reasoning;
      reply.content += event.content;
      if (!event.finish) continue;
      reply.finish = std::move(*event.finish);
      ended = true;
    }
    if (!cancelled && interrupts() > interrupts_before) {
      engine.cancel(handle);
      cancelled = true;
    }
    if (!started && is_terminal(2) && std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(500)) {
      const double done = std::min(1.0, double(engine.stats().rows - rows_before) / prompt_tokens);
      std::fputs(fmt::format("\r\x1b[Kreading the prompt: {:.0f}%", 100 * done).c_str(), stderr);
      progress = true;
    }
  }
  printer.end();
  if (reply.finish.reason == engine::FinishReason::kError) return reply.finish.error;
  if (options.stats) {
    const double seconds = reply.finish.timings.decode_ms / 1000;
    const std::int64_t tokens = reply.finish.usage.completion_tokens;
    std::fputs(fmt::format("{} prompt tokens in {:.2f} s, {} tokens at {:.1f} a second, token_sha256 {}\n",
                           reply.finish.usage.prompt_tokens, reply.finish.timings.prefill_ms / 1000, tokens,
                           tokens > 1 && seconds > 0 ? double(tokens - 1) / seconds : 0.0, reply.finish.token_sha256)
                   .c_str(),
               stderr);
  }
  return reply;
}

}  // namespace lockstep::cli
