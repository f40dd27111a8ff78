// One reply in a terminal: from token ids to text as it comes, stopped by Ctrl-C.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "engine/engine.h"

namespace lockstep::cli {

struct Reply {
  std::string reasoning, content;
  engine::Finish finish;
};

/// Number of Ctrl-C (SIGINT) so far; install_interrupts() makes them counted instead of ending the program.
void install_interrupts();
int interrupts();

/// Text for a terminal: control characters of a reply other than newline and tab must not steer it; they become U+FFFD. `text` is UTF-8.
std::string printable(const std::string& text);

/// Runs `prompt` and prints the reply to standard output as it comes: on a terminal reasoning dimmed before the content, else the content
/// alone. A Ctrl-C after the call began cancels the reply; what came before it is kept. `chat`: reasoning is split off.
Result<Reply> stream_reply(engine::Engine& engine, std::vector<std::int32_t> prompt, bool chat, const Options& options);

}  // namespace lockstep::cli
