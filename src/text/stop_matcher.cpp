#include "text/stop_matcher.h"

#include <utility>

namespace lockstep::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)), nodes_(1) {
  for (std::uint32_t i = 0; i < stops_.size(); i++) add(i);
  link();
}

std::uint32_t StopMatcher::child(std::uint32_t node, std::uint8_t byte) const {
  const auto found = children_.find(std::uint64_t(node) * 256 + byte);
  return found == children_.end() ? kNone : found->second;
}

void StopMatcher::add(std::uint32_t index) {
  std::uint32_t node = 0;
  for (const char c : stops_[index]) {
    std::uint32_t next = child(node, std::uint8_t(c));
    if (next == kNone) {
      next = std::uint32_t(nodes_.size());
      nodes_.push_back({0, nodes_[node].depth + 1, kNone});
      children_[std::uint64_t(node) * 256 + std::uint8_t(c)] = next;
    }
    node = next;
  }
  if (node != 0) nodes_[node].stop = index;
}

/// Fail links, parents before children.
void StopMatcher::link() {
  struct Edge {
    std::uint32_t parent, node;
    std::uint8_t byte;
  };
  std::vector<std::vector<Edge>> by_depth;
  for (const auto& [key, node] : children_) {
    const std::size_t depth = nodes_[node].depth;
    if (by_depth.size() <= depth) by_depth.resize(depth + 1);
    by_depth[depth].push_back({std::uint32_t(key / 256), node, std::uint8_t(key % 256)});
  }
  for (const auto& edges : by_depth) {
    for (const Edge& edge : edges) {
      std::uint32_t fail = 0;
      for (std::uint32_t from = edge.parent; from != 0;) {
        from = nodes_[from].fail;
        if (const std::uint32_t next = child(from, edge.byte); next != kNone) {
          fail = next;
          break;
        }
      }
      nodes_[edge.node].fail = fail;
      if (nodes_[edge.node].stop == kNone) nodes_[edge.node].stop = nodes_[fail].stop;
    }
  }
}

StopMatcher::Piece StopMatcher::push(std::string_view text) {
  const std::size_t before = held_.size();
  held_ += text;
  for (std::size_t i = before; i < held_.size(); i++) {
    const auto byte = std::uint8_t(held_[i]);
    std::uint32_t next;
    while ((next = child(state_, byte)) == kNone && state_ != 0) state_ = nodes_[state_].fail;
    state_ = next == kNone ? 0 : next;
    if (const std::uint32_t stop = nodes_[state_].stop; stop != kNone) {
      held_.resize(i + 1 - stops_[stop].size());
      return {std::exchange(held_, {}), true, stops_[stop]};
    }
  }
  const std::size_t keep = nodes_[state_].depth;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return {std::move(out), false, {}};
}

std::string StopMatcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace lockstep::text
