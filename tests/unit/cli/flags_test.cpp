#include "cli/flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "cli/reply_stream.h"

namespace lockstep::cli {
namespace {

Parsed parsed(std::initializer_list<std::string> args) { return parse(std::vector<std::string>(args)); }

TEST(Flags, ValuesAndDefaults) {
  const Parsed p = parsed({"serve", "model", "--port", "0", "--host=0.0.0.0", "--api-key", "--odd", "--prompt-cache-gib", "0"});
  ASSERT_FALSE(p.exit_code) << p.text;
  EXPECT_EQ(p.command, Command::kServe);
  EXPECT_EQ(p.options.folder, "model");
  EXPECT_EQ(p.options.port, 0);
  EXPECT_EQ(p.options.host, "0.0.0.0");
  EXPECT_EQ(p.options.api_key, "--odd");  // a value may look like a flag
  EXPECT_EQ(p.options.prompt_cache_gib, 0.0);
  EXPECT_EQ(p.options.context, 0);
  EXPECT_FALSE(parsed({"serve"}).options.prompt_cache_gib);

  const Parsed r = parsed({"run", "model", "Hello there", "--seed", "18446744073709551615", "--top-p", "0.9"});
  ASSERT_FALSE(r.exit_code) << r.text;
  EXPECT_EQ(r.options.prompt, "Hello there");
  EXPECT_EQ(r.options.seed, 18446744073709551615ull);
  EXPECT_EQ(r.options.top_p, 0.9);
  EXPECT_FALSE(r.options.temperature);
  EXPECT_EQ(parsed({"run", "model", "--", "--help me"}).options.prompt, "--help me");
}

TEST(Flags, WrongUsageIsNamedWithTheNearestRightOne) {
  const auto expect = [](std::initializer_list<std::string> args, const std::string& words) {
    const Parsed p = parse(std::vector<std::string>(args));
    EXPECT_EQ(p.exit_code, kExitUsage) << words;
    EXPECT_NE(p.text.find(words), std::string::npos) << p.text;
  };
  expect({"serve", "--context", "0"}, "--context: 0 is not from 1 to");
  expect({"sevre"}, "there is no command sevre; did you mean serve?");
  expect({"quux"}, "there is no command quux\n");
  expect({"serve", "--prot", "90"}, "serve has no flag --prot; did you mean --port?");
  expect({"serve", "-port", "90"}, "did you mean --port?");
  expect({"serve", "--tread=3"}, "serve has no flag --tread; did you mean --threads?");
  expect({"run", "m", "--max_tokens", "5"}, "did you mean --max-tokens?");
  expect({"info", "m", "--temperature", "1"}, "info has no flag --temperature");  // another command's
  expect({"serve", "--port", "65536"}, "65536 is not from 0 to 65535");
  expect({"serve", "--port", "abc"}, "--port: abc is not a number");
  expect({"serve", "--port", "1.5"}, "--port");
  expect({"serve", "--port"}, "--port");
  expect({"run", "m", "--temperature", "nan"}, "nan is not from 0 to 2");
  expect({"run", "m", "--seed", "-1"}, "--seed");
  expect({"run", "m", "--seed", "18446744073709551616"}, "--seed");
  expect({"serve", "--isa", "avx3"}, "avx3 is not one of generic, avx2, avx512, avx512bf16");
  expect({"serve", "a", "b"}, "not expected");
  expect({"serve", "--prompt-cache-dir", "kept", "--prompt-cache-gib", "0"}, "--prompt-cache-dir needs a prompt cache, but --prompt-cache-gib is 0");
  expect({"serve", "--prompt-cache-disk-gib", "4"}, "--prompt-cache-disk-gib needs a --prompt-cache-dir");
  expect({"serve", "--prompt-cache-dir", "kept", "--prompt-cache-disk-gib", "0"}, "0 is not from 0.001");
}

TEST(Flags, HelpNamesEveryFlagAndCommand) {
  for (const char* command : {"serve", "run", "info", "bench", "contract", "version"}) {
    const Parsed p = parsed({command, "--help"});
    EXPECT_EQ(p.exit_code, kExitOk);
    EXPECT_NE(p.text.find("usage: lockstep " + std::string(command)), std::string::npos);
    EXPECT_NE(help_text(Command::kNone).find(command), std::string::npos);
    EXPECT_EQ(parsed({"help", command}).text, p.text);
  }
  EXPECT_NE(parsed({"serve", "-h"}).text.find("--cors-origin LIST"), std::string::npos);
  EXPECT_EQ(parsed({"serve", "-h"}).text.find("--temperature"), std::string::npos);
  EXPECT_EQ(parsed({}).exit_code, kExitUsage);
  EXPECT_EQ(parsed({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(parsed({"--version"}).command, Command::kVersion);
}

TEST(Flags, NoLineOfTheHelpIsWiderThanATerminal) {
  for (Command command : {Command::kNone, Command::kServe, Command::kRun, Command::kInfo, Command::kBench, Command::kContract}) {
    std::size_t begin = 0;
    const std::string text = help_text(command);
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
  }
}

TEST(Flags, DocsPageIsTheTable) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/cli.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(page, cli_markdown()) << "write it anew: lockstep help --markdown > docs/cli.md";
}

TEST(Flags, NearestWord) {
  const std::string_view words[] = {"--port", "--host", "--top-k", "--top-p"};
  EXPECT_EQ(nearest("--prot", words), "--port");  // two neighbours swapped is one step
  EXPECT_EQ(nearest("--hots", words), "--host");
  EXPECT_EQ(nearest("--topp", words), "--top-p");
  EXPECT_EQ(nearest("--temperature", words), "");
}

TEST(Terminal, ControlCharactersOfAReplyDoNotReachIt) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(printable("a\nb\tc \xC3\xA9 \xE6\x9D\xB1 \xF0\x9F\x99\x82"), "a\nb\tc \xC3\xA9 \xE6\x9D\xB1 \xF0\x9F\x99\x82");
  EXPECT_EQ(printable("\x1b[31mred\r\x07\x7f"), bad + "[31mred" + bad + bad + bad);
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            bad + "31m");                        // U+009B opens a sequence alone
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");  // a no-break space stays
}

}  // namespace
}  // namespace lockstep::cli
