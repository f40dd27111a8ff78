#include "server/metrics.h"

#include <fmt/format.h>

#include "server/json_text.h"

namespace lockstep::server {
namespace {

// Debian's prometheus-cpp is a shared library only and the program links statically; the text format is this.
class Families {
 public:
  explicit Families(const std::string& model) : labels_("model_name=\"" + escaped(model) + "\"") {}

  void counter(std::string_view name, std::string_view help, double value) { add(name, help, "counter", value, labels_); }
  void gauge(std::string_view name, std::string_view help, double value) { add(name, help, "gauge", value, labels_); }
  void gauge(std::string_view name, std::string_view help, double value, std::string_view tag) {
    add(name, help, "gauge", value, fmt::format("tag=\"{}\"", tag));
  }
  std::string text() { return std::move(text_); }

 private:
  static std::string escaped(std::string_view label) {
    std::string out;
    for (char c : label) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  }
  // Rows of one name follow each other: they are one family.
  void add(std::string_view name, std::string_view help, std::string_view type, double value, std::string_view labels) {
    if (last_ != name) text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
    last_ = name;
    text_ += fmt::format("{}{{{}}} {}\n", name, labels, value);
  }

  std::string labels_, text_, last_;
};

}  // namespace

std::string metrics_text(const engine::EngineStats& s, const std::string& model_name) {
  Families f(model_name);
  f.gauge("vllm:num_requests_running", "Streams that fill or decode.", double(s.filling + s.decoding));
  f.gauge("vllm:num_requests_waiting", "Streams that wait for a lane.", double(s.queued));
  f.counter("vllm:prompt_tokens_total", "Prompt tokens of started streams.", double(s.prompt_tokens));
  f.counter("vllm:generation_tokens_total", "Tokens of replies.", double(s.generated_tokens));
  f.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prompt cache.", double(s.prompt_tokens));
  f.counter("vllm:prefix_cache_hits_total", "Prompt tokens taken from the prompt cache.", double(s.cached_tokens));
  f.counter("lockstep_requests_total", "Requests accepted.", double(s.requests));
  f.counter("lockstep_cancelled_total", "Streams cancelled or left by their client.", double(s.cancelled));
  f.counter("lockstep_failed_total", "Streams that ended with an error.", double(s.failed));
  f.counter("lockstep_rounds_total", "Forwards.", double(s.rounds));
  f.counter("lockstep_shared_rounds_total", "Forwards of more than one stream.", double(s.shared_rounds));
  f.gauge("lockstep_widest_round", "Most streams in one forward so far.", double(s.widest_round));
  f.counter("lockstep_computed_rows_total", "Rows computed.", double(s.rows));
  f.counter("lockstep_decode_rows_total", "Rows computed that were single tokens of replies.", double(s.decode_rows));
  f.counter("lockstep_forward_seconds_total", "Time in forwards.", s.forward_seconds);
  f.counter("lockstep_stopped_total", "Streams stopped to free memory or a lane, to be recomputed.", double(s.stopped));
  f.counter("lockstep_recomputed_total", "Stopped streams started again.", double(s.recomputed));
  f.counter("lockstep_prompt_cache_evictions_total", "Kept states dropped.", double(s.cache.evicted));
  f.counter("lockstep_prompt_cache_insertions_total", "States kept.", double(s.cache.inserted));
  f.gauge("lockstep_prompt_cache_entries", "Kept states.", double(s.cache.entries));
  f.gauge("lockstep_prompt_cache_bytes", "Bytes of kept states and their pages.", double(s.cache.bytes));
  const prompt_cache::DiskStats& disk = s.cache.disk;
  f.gauge("lockstep_prompt_cache_disk_states", "Kept states on disk.", double(disk.states));
  f.gauge("lockstep_prompt_cache_disk_bytes", "Bytes of files of kept states, those on their way included.", double(disk.bytes));
  f.counter("lockstep_prompt_cache_disk_hits_total", "States read from disk.", double(disk.hits));
  f.counter("lockstep_prompt_cache_disk_writes_total", "States written to disk.", double(disk.writes));
  f.counter("lockstep_prompt_cache_disk_write_drops_total", "States not written: queue full, memory wanted, disk full.", double(disk.write_drops));
  f.counter("lockstep_prompt_cache_disk_evictions_total", "States deleted for the limit.", double(disk.evictions));
  f.counter("lockstep_prompt_cache_disk_broken_total", "States deleted because a file was broken.", double(disk.broken));
  for (std::size_t tag = 0; tag < memory::kTags; tag++)
    f.gauge("lockstep_memory_bytes", "Bytes held in the ledger.", double(s.memory.by_tag[tag]), memory::tag_name(memory::Tag(tag)));
  f.gauge("lockstep_memory_peak_bytes", "Most bytes held so far.", double(s.memory.peak_bytes));
  f.gauge("lockstep_memory_budget_bytes", "Bytes that may be held.", double(s.memory.budget_bytes));
  return f.text();
}

Answer metrics(Service& service, const http::Request&, const std::string&) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_text(service.engine.stats(), service.name);
  return response;
}

Answer memory(Service& service, const http::Request&, const std::string&) {
  const memory::LedgerView view = service.engine.stats().memory;
  http::Response response;
  JsonText json(response.body);
  json.open_object()
      .number("budget_bytes", std::int64_t(view.budget_bytes))
      .number("held_bytes", std::int64_t(view.held_bytes))
      .number("peak_bytes", std::int64_t(view.peak_bytes))
      .open_object("by_tag");
  for (std::size_t tag = 0; tag < memory::kTags; tag++) json.number(memory::tag_name(memory::Tag(tag)), std::int64_t(view.by_tag[tag]));
  json.close_object().close_object();
  return response;
}

}  // namespace lockstep::server
