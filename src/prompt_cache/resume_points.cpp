#include "prompt_cache/resume_points.h"

#include <algorithm>

#include "text/chat_template.h"

namespace lockstep::prompt_cache {
namespace {

std::string without_marks(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = text.find(text::kPlainMark, at);
    out += text.substr(at, mark == std::string_view::npos ? mark : mark - at);
    if (mark == std::string_view::npos) break;
    at = mark + text::kPlainMark.size();
  }
  return out;
}

}  // namespace

std::vector<std::int64_t> resume_points(const text::Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view rendered,
                                        std::span<const std::string> others) {
  const std::string whole = without_marks(rendered);
  std::vector<std::size_t> shared;
  for (const std::string& other : others) {
    const std::string part = without_marks(other);
    const std::size_t n = std::min(whole.size(), part.size());
    shared.push_back(std::size_t(std::mismatch(whole.begin(), whole.begin() + std::ptrdiff_t(n), part.begin()).first - whole.begin()));
  }
  std::sort(shared.begin(), shared.end());
  std::vector<std::int64_t> points;
  std::size_t bytes = 0, next = 0;
  for (std::size_t i = 0; i < ids.size(); i++) {
    const std::string_view token = tokenizer.token_bytes(ids[i]);
    if (whole.compare(bytes, token.size(), token) != 0) return {};
    for (; next < shared.size() && shared[next] < bytes + token.size(); next++)
      if (i > 0 && (points.empty() || points.back() != std::int64_t(i))) points.push_back(std::int64_t(i));
    bytes += token.size();
  }
  return points;
}

}  // namespace lockstep::prompt_cache
