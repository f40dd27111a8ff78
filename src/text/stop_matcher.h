// Stop strings in text that arrives in pieces. The first stop string to be complete wins, the longest of those that end together: so
// the answer does not depend on how the text was cut. Held back is exactly the longest end of the text that begins a stop string.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::text {

/// Aho and Corasick's automaton over bytes: time linear in the text, memory in the stop strings. Text in whole characters keeps whole
/// characters.
class StopMatcher {
 public:
  /// Empty strings are passed over.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Piece {
    std::string text;      // may go out now
    bool stopped = false;  // a stop string is complete: `text` is the last before it
    std::string stop;
  };
  /// Not to be called again once stopped.
  Piece push(std::string_view text);
  /// The text ended: what was held back.
  std::string finish();

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct Node {
    std::uint32_t fail = 0;      // longest proper suffix that is in the tree too
    std::uint32_t depth = 0;     // bytes from the root
    std::uint32_t stop = kNone;  // longest stop string that ends here
  };
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  void add(std::uint32_t index);
  void link();

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node * 256 + byte
  std::uint32_t state_ = 0;
  std::string held_;
};

}  // namespace lockstep::text
