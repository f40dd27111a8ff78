#include "server/openai/reply_writer.h"

#include "server/json_text.h"
#include "server/sse.h"

namespace lockstep::server::openai {
namespace {

std::string_view finish_name(engine::FinishReason reason) { return reason == engine::FinishReason::kLength ? "length" : "stop"; }

}  // namespace

ReplyWriter::ReplyWriter(ReplyShape shape)
    : shape_(std::move(shape)), choices_(static_cast<std::size_t>(shape_.choices)), unfinished_(shape_.choices) {
  for (Choice& choice : choices_) choice.in_reasoning = shape_.starts_in_reasoning;
  if (shape_.stream) {
    chunk_head_ = "data: ";
    head(chunk_head_, true);
  }
}

void ReplyWriter::head(std::string& out, bool chunk) const {
  const std::string_view object = !shape_.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  JsonText(out)
      .open_object()
      .text("id", shape_.reply_id)
      .text("object", object)
      .number("created", shape_.created)
      .text("model", shape_.model)
      .text("system_fingerprint", shape_.fingerprint);
}

void ReplyWriter::push(const engine::Event& event, std::string& out) {
  Choice& choice = choices_.at(static_cast<std::size_t>(event.choice));
  count_reasoning(choice, event.token_ids);
  if (shape_.return_token_ids) choice.ids.insert(choice.ids.end(), event.token_ids.begin(), event.token_ids.end());
  if (event.finish) {
    choice.finish = event.finish;
    --unfinished_;
  }
  if (!shape_.stream) {
    choice.reasoning += event.reasoning;
    choice.content += event.content;
    if (unfinished_ == 0) whole_body(out);
    return;
  }
  if (!choice.opened) role_chunk(event.choice, out);
  // Ids of a token without text (half a character, a held-back stop string) travel with the next chunk.
  if (!event.reasoning.empty() || !event.content.empty()) text_chunk(event, out);
  if (event.finish) finish_chunk(event.choice, out);
  if (unfinished_ > 0) return;
  if (shape_.include_usage) usage_chunk(out);
  out += kStreamDone;
}

void ReplyWriter::fail(std::string_view error_json, std::string& out) { append_event(out, error_json); }

// ---- chunks

void ReplyWriter::begin_chunk(int choice, std::string& out) const {
  out += chunk_head_;
  JsonText(out).open_array("choices").open_object().number("index", choice);
}

// Closes the choice; what belongs to the chunk itself follows, and close_object.
void ReplyWriter::end_chunk(Choice& choice, std::string_view finish_reason, std::string& out) const {
  JsonText json(out);
  json.null("logprobs");
  if (finish_reason.empty()) json.null("finish_reason");
  else json.text("finish_reason", finish_reason);
  if (shape_.return_token_ids) {
    json.ids("token_ids", choice.ids);
    choice.ids.clear();
  }
  json.close_object().close_array();
  if (shape_.include_usage) json.null("usage");
}

void ReplyWriter::role_chunk(int index, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  choice.opened = true;
  if (!shape_.chat && !shape_.return_token_ids) return;
  begin_chunk(index, out);
  JsonText json(out);
  if (shape_.chat) json.open_object("delta").text("role", "assistant").text("content", "").close_object();
  else json.text("text", "");
  std::vector<std::int32_t> ids;
  ids.swap(choice.ids);  // the first token's go with its text
  end_chunk(choice, "", out);
  choice.ids.swap(ids);
  if (shape_.return_token_ids && !prompt_sent_) json.ids("prompt_token_ids", shape_.prompt_ids);
  prompt_sent_ = true;
  json.close_object();
  out += "\n\n";
}

void ReplyWriter::text_chunk(const engine::Event& event, std::string& out) {
  begin_chunk(event.choice, out);
  JsonText json(out);
  if (shape_.chat) {
    json.open_object("delta");
    if (!event.reasoning.empty()) json.text("reasoning_content", event.reasoning);
    if (!event.content.empty()) json.text("content", event.content);
    json.close_object();
  } else {
    json.text("text", event.reasoning.empty() ? event.content : event.reasoning + event.content);
  }
  end_chunk(choices_[static_cast<std::size_t>(event.choice)], "", out);
  json.close_object();
  out += "\n\n";
}

void ReplyWriter::finish_chunk(int index, std::string& out) {
  Choice& choice = choices_[static_cast<std::size_t>(index)];
  begin_chunk(index, out);
  JsonText json(out);
  if (shape_.chat) json.open_object("delta").close_object();
  else json.text("text", "");
  end_chunk(choice, finish_name(choice.finish->reason), out);
  receipt(*choice.finish, out);
  json.close_object();
  out += "\n\n";
}

void ReplyWriter::usage_chunk(std::string& out) const {
  out += chunk_head_;
  JsonText json(out);
  json.open_array("choices").close_array();
  usage(out);
  json.close_object();
  out += "\n\n";
}

// ---- one body

void ReplyWriter::whole_body(std::string& out) const {
  head(out, false);
  JsonText json(out);
  json.open_array("choices");
  for (int i = 0; i < shape_.choices; ++i) whole_choice(i, out);
  json.close_array();
  if (shape_.return_token_ids) json.ids("prompt_token_ids", shape_.prompt_ids);
  usage(out);
  receipt(*choices_.front().finish, out);
  json.close_object();
}

void ReplyWriter::whole_choice(int index, std::string& out) const {
  const Choice& choice = choices_[static_cast<std::size_t>(index)];
  JsonText json(out);
  json.open_object().number("index", index);
  if (shape_.chat) {
    json.open_object("message").text("role", "assistant").text("content", choice.content);
    if (!choice.reasoning.empty()) json.text("reasoning_content", choice.reasoning);
    json.null("refusal").close_object();
  } else {
    json.text("text", choice.reasoning.empty() ? choice.content : choice.reasoning + choice.content);
  }
  json.null("logprobs").text("finish_reason", finish_name(choice.finish->reason));
  if (shape_.return_token_ids) json.ids("token_ids", choice.ids);
  if (shape_.choices > 1) receipt(*choice.finish, out);
  json.close_object();
}

// The prompt counts once, however many choices it has.
void ReplyWriter::usage(std::string& out) const {
  engine::Usage u = choices_.front().finish->usage;
  for (std::size_t i = 1; i < choices_.size(); ++i) u.completion_tokens += choices_[i].finish->usage.completion_tokens;
  JsonText json(out);
  json.open_object("usage")
      .number("prompt_tokens", u.prompt_tokens)
      .number("completion_tokens", u.completion_tokens)
      .number("total_tokens", u.prompt_tokens + u.completion_tokens)
      .open_object("prompt_tokens_details")
      .number("cached_tokens", u.cached_tokens)
      .close_object()
      .open_object("completion_tokens_details")
      .number("reasoning_tokens", reasoning_tokens_)
      .close_object()
      .close_object();
}

void ReplyWriter::receipt(const engine::Finish& finish, std::string& out) {
  const engine::Timings& t = finish.timings;
  JsonText json(out);
  json.open_object("lockstep").text("token_sha256", finish.token_sha256).text("seed", std::to_string(finish.seed));
  if (!finish.stop.empty()) json.text("stop", finish.stop);
  json.open_object("timings")
      .real("queued_ms", t.queued_ms)
      .real("prefill_ms", t.prefill_ms)
      .real("decode_ms", t.decode_ms)
      .real("forward_ms", t.forward_ms)
      .close_object()
      .close_object();
}

// Tokens inside a choice's first think block, its tags left out.
void ReplyWriter::count_reasoning(Choice& choice, const std::vector<std::int32_t>& ids) {
  if (!shape_.split_reasoning || choice.reasoning_over) return;
  for (const std::int32_t id : ids) {
    if (id == shape_.think_end) {
      choice.reasoning_over = choice.in_reasoning;
      choice.in_reasoning = false;
      if (choice.reasoning_over) return;
    } else if (id == shape_.think_start) {
      choice.in_reasoning = true;
    } else if (choice.in_reasoning) {
      ++reasoning_tokens_;
    }
  }
}

}  // namespace lockstep::server::openai
