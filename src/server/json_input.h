// JSON from a client: strict UTF-8 and grammar, bounded depth and memory, no duplicate keys, no number that is not finite.
#pragma once
#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "server/limits.h"

namespace lockstep::server {

/// Memory of one parsed document; throws std::bad_alloc (parse_json turns it into kDoesNotFit) above its limit.
class BoundedMemory final : public boost::json::memory_resource {
 public:
  explicit BoundedMemory(std::size_t limit_bytes) : left_bytes_(limit_bytes) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  std::size_t left_bytes_;
};

/// Parses `text`. The value lives in `memory`, which must outlive it. `subject` names the text in an error ("the request body",
/// "messages[2].tool_calls[0].function.arguments"); kInvalidArgument, or kDoesNotFit when `memory` is spent.
Result<boost::json::value> parse_json(std::string_view text, std::string_view subject, int depth, BoundedMemory& memory);

}  // namespace lockstep::server
