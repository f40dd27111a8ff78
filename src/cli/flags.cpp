#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <variant>

namespace lockstep::cli {
namespace {

constexpr unsigned bit(Command c) { return 1u << unsigned(c); }
constexpr unsigned kServe = bit(Command::kServe), kRun = bit(Command::kRun), kInfo = bit(Command::kInfo), kBench = bit(Command::kBench),
                   kContract = bit(Command::kContract);

struct CommandRow {
  Command command;
  std::string_view name, arguments, summary, notes;
};

constexpr std::string_view kFolderNote =
    "DIR is a checkpoint folder: config.json, *.safetensors, tokenizer.json, tokenizer_config.json,\n"
    "generation_config.json and a chat template, as published by Hugging Face or converted by MLX.\n"
    "Without DIR: the folder in LOCKSTEP_DEFAULT_MODEL, else the small bundled model.";

constexpr CommandRow kCommands[] = {
    {Command::kServe, "serve", "[DIR]", "serve a model over HTTP, as OpenAI clients expect it", kFolderNote},
    {Command::kRun, "run", "[DIR] [PROMPT]", "one reply, or a chat in the terminal where no PROMPT is given",
     "For a PROMPT to the bundled model leave DIR empty: lockstep run \"\" \"Hello\". A PROMPT of - is read\n"
     "from standard input. In a chat Ctrl-C stops the reply; at the prompt, twice ends the program."},
    {Command::kInfo, "info", "[DIR]", "what a folder is, what it needs, and whether it can be served (exit code 1: it cannot)", ""},
    {Command::kBench, "bench", "[DIR]", "decode and prefill speed beside this machine's bounds, measured in the same run", ""},
    {Command::kContract, "contract", "", "hold every kernel of this machine against its contract, planted failures included", ""},
    {Command::kVersion, "version", "", "version, compiler and the instruction sets of this machine", ""},
};

using Target = std::variant<bool Options::*, int Options::*, std::int64_t Options::*, double Options::*, std::string Options::*,
                            std::optional<double> Options::*, std::optional<int> Options::*, std::optional<std::uint64_t> Options::*,
                            std::optional<std::string> Options::*>;

struct Flag {
  std::string_view name;
  unsigned commands;
  std::string_view value;  // what follows it, for the help; empty: nothing does
  Target target;
  std::string_view unset;  // the default in words
  std::string_view help;
  double low = 0, high = 0;                 // range of a number; equal: none
  std::vector<std::string_view> choices{};  // words that are allowed; empty: any
};

const std::vector<Flag>& flags() {  // table
  constexpr double kMax = 1e9;
  static const std::vector<Flag> table = {
      {"--host", kServe, "ADDRESS", &Options::host, "127.0.0.1", "address to listen on; 0.0.0.0 for every network, with a key"},
      {"--port", kServe, "N", &Options::port, "8080", "port to listen on; 0 takes a free one", 0, 65535},
      {"--name", kServe, "NAME", &Options::name, "the folder's name", "model name in replies and in /v1/models"},
      {"--api-key", kServe, "KEY", &Options::api_key, "none",
       "key that clients must send (Authorization: Bearer KEY); other users of this machine can read it in the process list, so prefer "
       "the file or the environment variable LOCKSTEP_API_KEY"},
      {"--api-key-file", kServe, "FILE", &Options::api_key_file, "none", "file that holds the key, in one line"},
      {"--cors-origin", kServe, "LIST", &Options::cors_origin, "none", "web pages that may call: * or origins separated by commas"},
      {"--context", kServe | kRun | kInfo | kBench, "N", &Options::context, "the smaller of the model's limit and 32768",
       "tokens a request may have, prompt and reply together", 1, kMax},
      {"--parallel", kServe, "N", &Options::parallel, "as many as memory holds at 2048 tokens each, at most 16",
       "requests that run at the same time; the others wait in turn", 1, 64},
      {"--max-queue", kServe, "N", &Options::max_queue, "256", "requests that may wait; one more is told to come back later", 0, 100000},
      {"--threads", kServe | kRun | kBench, "N", &Options::threads, "every core this process may use", "threads of the engine", 1, 1024},
      {"--http-threads", kServe, "N", &Options::http_threads, "2", "threads that parse, render and tokenize", 1, 256},
      {"--isa",
       kServe | kRun | kBench | kContract,
       "NAME",
       &Options::isa,
       "the best of this machine",
       "instruction set of the kernels; replies are the same with every one",
       0,
       0,
       {"generic", "avx2", "avx512", "avx512bf16"}},
      {"--memory-gib", kServe | kRun, "N", &Options::memory_gib, "90 percent of what is available now",
       "memory the engine may hold, in GiB; it can change speed and what is refused, never a reply", 0.001, 1e6},
      {"--prompt-cache-gib", kServe, "N", &Options::prompt_cache_gib, "half of the memory", "memory for kept prompts, in GiB; 0 keeps none",
       0, 1e6},
      {"--prompt-cache-dir", kServe, "PATH", &Options::prompt_cache_dir, "none",
       "folder that keeps prompts over restarts; one server a folder; at the start all weights are read for their hash"},
      {"--prompt-cache-disk-gib", kServe, "N", &Options::prompt_cache_disk_gib, "16", "room for that folder's files, in GiB", 0.001, 1e6},
      {"--log-level",
       kServe,
       "WORD",
       &Options::log_level,
       "info",
       "least severity that is logged",
       0,
       0,
       {"trace", "debug", "info", "warn", "error", "off"}},

      {"--system", kRun, "TEXT", &Options::system, "none", "system message"},
      {"--temperature", kRun, "X", &Options::temperature, "generation_config.json, else 0", "0: always the likeliest token", 0, 2},
      {"--top-k", kRun, "N", &Options::top_k, "generation_config.json, else all", "keep the N likeliest tokens; 0 keeps all", 0, kMax},
      {"--top-p", kRun, "X", &Options::top_p, "generation_config.json, else 1", "keep the likeliest tokens that have this mass together", 0,
       1},
      {"--min-p", kRun, "X", &Options::min_p, "generation_config.json, else 0", "keep tokens at least X times as likely as the likeliest",
       0, 1},
      {"--seed", kRun, "N", &Options::seed, "from the prompt, so that it repeats", "64-bit number that the draws depend on"},
      {"--max-tokens", kRun, "N", &Options::max_tokens, "what is left of the context", "tokens of a reply, at most", 1, kMax},
      {"--thinking", kRun, "on|off", &Options::thinking, "the template's own", "enable_thinking of the chat template", 0, 0, {"on", "off"}},
      {"--raw", kRun, "", &Options::raw, "", "take PROMPT as it is, without the chat template"},
      {"--stats", kRun, "", &Options::stats, "", "after a reply: tokens, speed, hash of its token ids"},

      {"--prompt", kBench, "N", &Options::bench_prompt, "512", "tokens of the prompt", 1, 1e6},
      {"--tokens", kBench, "N", &Options::bench_tokens, "64", "tokens of the reply", 2, 1e6},
      {"--bounds", kBench, "", &Options::bounds_only, "", "measure the machine's bounds for DIR and stop"},
      {"--json", kInfo | kBench, "", &Options::json, "", "print JSON"},

      {"--seed", kContract, "N", &Options::contract_seed, "drawn, and printed", "seed of the random inputs"},
      {"--filter", kContract, "TEXT", &Options::filter, "all", "run cases whose operation, gate or name has TEXT in it"},
      {"--list", kContract, "", &Options::list, "", "print the cases and stop"},
      {"--verbose", kContract, "", &Options::verbose, "", "print every case"},
  };
  return table;
}

const CommandRow* row_of(Command command) {
  for (const CommandRow& row : kCommands)
    if (row.command == command) return &row;
  return nullptr;
}

/// "  --port N               port to listen on [8080]", wrapped to 100 columns.
std::string flag_help(std::string_view left, std::string help, std::string_view unset) {
  constexpr std::size_t kIndent = 26, kWidth = 100;
  if (!unset.empty()) help += fmt::format(" [{}]", unset);
  std::string out = fmt::format("  {}", left), line;
  out += out.size() < kIndent ? std::string(kIndent - out.size(), ' ') : "\n" + std::string(kIndent, ' ');
  std::size_t column = kIndent, at = 0;
  while (at < help.size()) {
    const std::size_t space = std::min(help.find(' ', at), help.size());
    if (column > kIndent && column + 1 + space - at > kWidth) {
      out += "\n" + std::string(kIndent, ' ');
      column = kIndent;
    }
    if (column > kIndent) {
      out += ' ';
      column++;
    }
    out.append(help, at, space - at);
    column += space - at;
    at = space + 1;
  }
  return out + "\n";
}

/// What is wrong with a number, empty where nothing is (also where it is none: the conversion says so).
std::string outside(const Flag& flag, const std::string& text) {
  double x = 0;
  if (!CLI::detail::lexical_cast(text, x)) return fmt::format("{} is not a number", text);
  return x >= flag.low && x <= flag.high ? "" : fmt::format("{} is not from {} to {}", text, flag.low, flag.high);
}

/// The conversion would let -1 and numbers above 64 bits pass as others.
std::string not_a_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("{} is not a whole number from 0 to {}", text, std::numeric_limits<std::uint64_t>::max());
}

std::string not_a_choice(const Flag& flag, const std::string& text) {
  if (std::find(flag.choices.begin(), flag.choices.end(), text) != flag.choices.end()) return "";
  return fmt::format("{} is not one of {}", text, fmt::join(flag.choices, ", "));
}

void add_to(CLI::App& app, const Flag& flag, Options& options) {
  std::visit(
      [&](auto member) {
        auto& field = options.*member;
        if constexpr (std::is_same_v<decltype(member), bool Options::*>) {
          app.add_flag(std::string(flag.name), field);
        } else {
          CLI::Option* option = app.add_option(std::string(flag.name), field);
          if constexpr (std::is_same_v<decltype(member), std::optional<std::uint64_t> Options::*>) option->check(not_a_seed);
          if (flag.low != flag.high) option->check([&flag](const std::string& text) { return outside(flag, text); });
          if (!flag.choices.empty()) option->check([&flag](const std::string& text) { return not_a_choice(flag, text); });
        }
      },
      flag.target);
}

Parsed usage_error(Command command, std::string words) {
  Parsed parsed{command, {}, kExitUsage, {}};
  const CommandRow* row = row_of(command);
  parsed.text = fmt::format("lockstep: {}\n{}\n", words,
                            row ? fmt::format("lockstep {} --help lists its flags", row->name) : "lockstep --help lists the commands");
  return parsed;
}

/// The first flag among the arguments that the command does not have, and what it may have meant.
std::optional<std::string> unknown_flag(Command command, std::span<const std::string> args) {
  std::vector<std::string_view> known{"--help"};
  for (const Flag& flag : flags())
    if (flag.commands & bit(command)) known.push_back(flag.name);
  for (std::size_t i = 0; i < args.size(); i++) {
    if (args[i] == "--") return {};
    if (args[i].size() < 2 || args[i][0] != '-' || args[i] == "-h") continue;
    const std::string name = args[i].substr(0, args[i].find('='));
    const auto is_it = [&](const Flag& flag) { return (flag.commands & bit(command)) && flag.name == name; };
    const auto flag = std::find_if(flags().begin(), flags().end(), is_it);
    if (flag != flags().end()) {
      if (!flag->value.empty() && name == args[i]) i++;  // its value may look like anything
      continue;
    }
    if (name == "--help") continue;
    const std::string meant = nearest(name, known);
    return fmt::format("{} has no flag {}{}", row_of(command)->name, name, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
  }
  return {};
}

/// What no single flag shows; empty where nothing is wrong.
std::string contradiction(const Options& options) {
  if (!options.prompt_cache_dir.empty() && options.prompt_cache_gib == 0.0)
    return "--prompt-cache-dir needs a prompt cache, but --prompt-cache-gib is 0";
  if (options.prompt_cache_dir.empty() && options.prompt_cache_disk_gib) return "--prompt-cache-disk-gib needs a --prompt-cache-dir";
  return "";
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    // Edit distance: insertions, deletions, substitutions and swaps of neighbours.
    std::vector<std::vector<std::size_t>> d(word.size() + 1, std::vector<std::size_t>(candidate.size() + 1));
    for (std::size_t i = 0; i <= word.size(); i++) d[i][0] = i;
    for (std::size_t j = 0; j <= candidate.size(); j++) d[0][j] = j;
    for (std::size_t i = 1; i <= word.size(); i++)
      for (std::size_t j = 1; j <= candidate.size(); j++) {
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (word[i - 1] != candidate[j - 1])});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1])
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    const std::size_t distance = d[word.size()][candidate.size()];
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string help_text(Command command) {
  const CommandRow* row = row_of(command);
  std::string out;
  if (!row) {
    out =
        "Lockstep: an exact server for language models. A reply is the same tokens however it is served.\n\nusage: lockstep COMMAND "
        "[...]\n\ncommands:\n";
    for (const CommandRow& c : kCommands) out += flag_help(fmt::format("{} {}", c.name, c.arguments), std::string(c.summary), "");
    out += "\nlockstep COMMAND --help lists the flags of a command. Exit codes: 0 done, 1 failed, 2 wrong usage.\n";
    return out;
  }
  out = fmt::format("usage: lockstep {} {}{}[FLAGS]\n\n{}\n", row->name, row->arguments, row->arguments.empty() ? "" : " ", row->summary);
  if (!row->notes.empty()) out += fmt::format("\n{}\n", row->notes);
  out += "\nflags:\n";
  for (const Flag& flag : flags()) {
    if (!(flag.commands & bit(command))) continue;
    std::string help(flag.help);
    if (!flag.choices.empty() && flag.value != "on|off") help += fmt::format(": {}", fmt::join(flag.choices, ", "));
    out += flag_help(fmt::format("{} {}", flag.name, flag.value), help, flag.unset);
  }
  return out + flag_help("-h, --help", "print this", "");
}

std::string cli_markdown() {
  std::string out =
      "# Command line\n\nPrinted from the table that parses it (`lockstep help --markdown`); a test holds the two equal. Exit codes: 0 "
      "done, 1 failed "
      "(the reason is on standard error), 2 wrong usage.\n";
  for (const CommandRow& row : kCommands) out += fmt::format("\n## lockstep {}\n\n```\n{}```\n", row.name, help_text(row.command));
  return out;
}

Parsed parse(std::span<const std::string> args) {
  if (args.empty()) return {Command::kNone, {}, kExitUsage, help_text(Command::kNone)};
  const std::string& word = args[0];
  if (word == "--version" || word == "-V") return {Command::kVersion, {}, {}, {}};
  if (word == "--help" || word == "-h" || word == "help") {
    if (args.size() > 1 && args[1] == "--markdown") return {Command::kNone, {}, kExitOk, cli_markdown()};
    for (const CommandRow& row : kCommands)
      if (args.size() > 1 && row.name == args[1]) return {Command::kNone, {}, kExitOk, help_text(row.command)};
    return {Command::kNone, {}, kExitOk, help_text(Command::kNone)};
  }
  const auto row = std::find_if(std::begin(kCommands), std::end(kCommands), [&](const CommandRow& r) { return r.name == word; });
  if (row == std::end(kCommands)) {
    std::vector<std::string_view> names;
    for (const CommandRow& r : kCommands) names.push_back(r.name);
    const std::string meant = nearest(word, names);
    return usage_error(Command::kNone,
                       fmt::format("there is no command {}{}", word, meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }
  if (auto words = unknown_flag(row->command, args.subspan(1))) return usage_error(row->command, *words);

  Parsed parsed{row->command, {}, {}, {}};
  CLI::App app;
  app.set_help_flag();
  app.add_flag("-h,--help", parsed.options.help);
  if (row->arguments.find("DIR") != std::string_view::npos) app.add_option("DIR", parsed.options.folder);
  if (row->arguments.find("PROMPT") != std::string_view::npos) app.add_option("PROMPT", parsed.options.prompt);
  for (const Flag& flag : flags())
    if (flag.commands & bit(row->command)) add_to(app, flag, parsed.options);
  std::vector<std::string> reversed(args.rbegin(), args.rend() - 1);  // CLI11 takes a vector from its end
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return usage_error(row->command, error.what());
  }
  if (parsed.options.help) return {row->command, {}, kExitOk, help_text(row->command)};
  if (const std::string words = contradiction(parsed.options); !words.empty()) return usage_error(row->command, words);
  return parsed;
}

}  // namespace lockstep::cli
