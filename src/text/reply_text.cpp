#include "text/reply_text.h"

#include <utility>

#include "text/reply_parser.h"
#include "text/stop_matcher.h"
#include "text/text_stream.h"

namespace lockstep::text {
namespace {

enum class Trim { kNone, kLeadingNewlines, kSurroundingSpace };

/// One channel: bytes, whole characters, without leading white space, stop strings, without trailing white space. The stop strings see
/// no leading white space (a newline after the reasoning is no stop), but all that follows, so that they match at once.
class Channel {
 public:
  Channel(const std::vector<std::string>& stop, Trim trim) : trim_(trim), stop_(stop) {}
  void set_trim(Trim trim) { trim_ = trim; }

  StopMatcher::Piece push(std::string_view bytes) { return pass(characters_.push(bytes)); }
  /// Everything held back but trailing white space.
  StopMatcher::Piece finish() {
    StopMatcher::Piece piece = pass(characters_.finish());
    if (!piece.stopped) piece.text += without_trailing(stop_.finish());
    return piece;
  }

 private:
  StopMatcher::Piece pass(std::string text) {
    if (at_start_ && trim_ != Trim::kNone) {
      text.erase(0, trim_ == Trim::kSurroundingSpace ? leading_space_bytes(text) : std::min(text.find_first_not_of('\n'), text.size()));
    }
    if (!text.empty()) at_start_ = false;
    StopMatcher::Piece piece = stop_.push(text);
    piece.text = without_trailing(std::move(piece.text));
    return piece;
  }

  std::string without_trailing(std::string text) {
    if (trim_ != Trim::kSurroundingSpace) return text;
    const std::size_t keep = text.size() - trailing_space_bytes(text);
    if (keep == 0) {
      space_ += text;
      return {};
    }
    std::string out = std::exchange(space_, text.substr(keep));
    return out.append(text, 0, keep);
  }

  Trim trim_;
  bool at_start_ = true;
  TextStream characters_;
  StopMatcher stop_;
  std::string space_;  // trailing white space, out once something follows it
};

}  // namespace

struct ReplyText::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;
  ReplyParser parser;
  Channel reasoning, content;
  bool strip_space;
  bool stopped = false;

  Impl(std::shared_ptr<const Tokenizer> t, const ReplyTextOptions& o)
      : tokenizer(std::move(t)),
        parser(o.split_reasoning, o.starts_in_reasoning, o.think_start, o.think_end),
        reasoning(o.stop, Trim::kSurroundingSpace),
        content(o.stop, Trim::kNone),
        strip_space(tokenizer->strips_leading_space()) {}

  /// Text a piece adds to one of the delta's channels.
  void add(Delta& delta, std::string Delta::*channel, StopMatcher::Piece piece) {
    delta.*channel += piece.text;
    if (piece.stopped) {
      stopped = delta.stopped = true;
      delta.stop = std::move(piece.stop);
    }
  }
};

ReplyText::ReplyText(std::shared_ptr<const Tokenizer> tokenizer, ReplyTextOptions options)
    : impl_(std::make_unique<Impl>(std::move(tokenizer), options)) {}
ReplyText::~ReplyText() = default;
ReplyText::ReplyText(ReplyText&&) noexcept = default;

ReplyText::Delta ReplyText::push(std::int32_t id) {
  Delta delta;
  if (impl_->stopped) return delta;
  std::string_view bytes = impl_->tokenizer->is_special(id) ? std::string_view() : impl_->tokenizer->token_bytes(id);
  if (impl_->strip_space && !bytes.empty()) {
    impl_->strip_space = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  const bool was_reasoning = impl_->parser.in_reasoning();
  switch (impl_->parser.place(id, bytes)) {
    case ReplyPart::kReasoning:
      impl_->add(delta, &Delta::reasoning, impl_->reasoning.push(bytes));
      break;
    case ReplyPart::kContent:
      impl_->add(delta, &Delta::content, impl_->content.push(bytes));
      break;
    case ReplyPart::kBorder:
      if (was_reasoning && !impl_->parser.in_reasoning()) {
        impl_->content.set_trim(Trim::kLeadingNewlines);
        impl_->add(delta, &Delta::reasoning, impl_->reasoning.finish());
      }
      break;
  }
  return delta;
}

ReplyText::Delta ReplyText::finish() {
  Delta delta;
  if (impl_->stopped) return delta;
  if (impl_->parser.in_reasoning()) {
    impl_->add(delta, &Delta::reasoning, impl_->reasoning.finish());
  } else {
    impl_->add(delta, &Delta::content, impl_->content.finish());
  }
  return delta;
}

}  // namespace lockstep::text
