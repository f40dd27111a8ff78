// Chat templates: renders and refusals of the oracles, the environment case by case, bounds.
#include "text/chat_template.h"

#include <fmt/format.h>

#include <ctime>

#include "unit/text/small_tokenizer.h"

namespace lockstep::testing {
namespace {

using text::ChatTemplate;

Result<std::shared_ptr<const ChatTemplate>> try_template(std::string_view source) {
  TempFolder folder;
  folder.write("chat_template.jinja", source);
  static const auto tokenizer =
      load(byte_level_tokenizer(), R"({"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "bos_token": null})");
  return ChatTemplate::load(folder.path(), tokenizer);
}

Result<std::string> render(std::string_view source, std::string_view variables = "{}") {
  LOCKSTEP_ASSIGN(const auto chat, try_template(source));
  return chat->render(variables);
}

std::string variables_of(const boost::json::value& conversation) {
  boost::json::object variables = conversation.as_object();
  variables.erase("text");
  variables.erase("error");
  return boost::json::serialize(variables);
}

TEST(ChatTemplateOracle, RendersAndRefusals) {
  LOCKSTEP_NEED_FIXTURE(oracle("templates.json"));
  const auto oracles = read_json(oracle("templates.json"));
  int folders = 0;
  // The template in a file of its own, and inside tokenizer_config.json.
  for (const char* name : {"tiny-qwen3_5-mlx-4bit", "tiny-qwen3_5", "tiny-llama"}) {
    const auto folder = checkpoint(name);
    if (!std::filesystem::exists(folder)) continue;
    folders++;
    const auto tokenizer = text::Tokenizer::load(folder).value();
    const auto chat = ChatTemplate::load(folder, tokenizer).value();
    for (const auto& conversation : oracles.at("renders").as_array()) {
      const auto rendered = chat->render(variables_of(conversation));
      ASSERT_TRUE(rendered.ok()) << rendered.error().message;
      EXPECT_EQ(*rendered, conversation.at("text").as_string().c_str());
    }
    for (const auto& conversation : oracles.at("errors").as_array()) {
      const auto rendered = chat->render(variables_of(conversation));
      ASSERT_FALSE(rendered.ok());
      EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(rendered.error().message, conversation.at("error").as_string().c_str());
    }
  }
  EXPECT_GT(folders, 0);
}

TEST(ChatTemplate, EnvironmentCases) {
  const auto file = read_json(LOCKSTEP_SOURCE_DIR "/tests/unit/text/template_cases.json");
  const std::string variables(file.at("variables").as_string());
  EXPECT_GT(file.at("cases").as_array().size(), 100u);
  for (const auto& test : file.at("cases").as_array()) {
    const std::string source(test.at("template").as_string());
    const auto rendered = render(source, variables);
    if (test.as_object().contains("error")) {
      EXPECT_FALSE(rendered.ok()) << source << "\n" << *rendered;
    } else {
      ASSERT_TRUE(rendered.ok()) << source << "\n" << rendered.error().message;
      EXPECT_EQ(*rendered, test.at("text").as_string().c_str()) << source;
    }
  }
}

TEST(ChatTemplate, WhereTheSourceIs) {
  const auto tokenizer = load(byte_level_tokenizer());
  TempFolder folder;
  EXPECT_EQ(ChatTemplate::load(folder.path(), tokenizer).error().code, ErrorCode::kNotFound);
  folder.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(ChatTemplate::load(folder.path(), tokenizer).error().code, ErrorCode::kNotFound);
  const auto text_of = [&] { return ChatTemplate::load(folder.path(), tokenizer).value()->render("{}").value(); };
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(text_of(), "config");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(text_of(), "d");
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(text_of(), "json");
  folder.write("chat_template.jinja", "jinja");
  EXPECT_EQ(text_of(), "jinja");
}

TEST(ChatTemplate, BrokenFilesAreNamed) {
  const auto tokenizer = load(byte_level_tokenizer());
  const auto expect = [&](const char* file, std::string_view text, std::string_view words) {
    TempFolder folder;
    folder.write(file, text);
    const auto loaded = ChatTemplate::load(folder.path(), tokenizer);
    ASSERT_FALSE(loaded.ok()) << text.substr(0, 80);
    EXPECT_NE(loaded.error().message.find(file), std::string::npos) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(words), std::string::npos) << loaded.error().message;
    EXPECT_EQ(loaded.error().subject, file);
  };
  expect("chat_template.jinja", "line\n{% if x %}", "line 2");
  expect("chat_template.jinja", "{{ 1 + }}", "syntax error");
  expect("chat_template.jinja", "{% include 'etc' %}", "line 1");
  expect("chat_template.jinja", "\xFF", "UTF-8");
  expect("chat_template.jinja", "x\n{{ " + std::string(5000, '-') + "1 }}", "line 2: a tag with");
  expect("chat_template.jinja", "{{ " + std::string(2000, '(') + "1", "recursion");
  expect("chat_template.jinja", std::string((1 << 20) + 1, 'a'), "more than");
  std::string elifs = "{% if a %}";
  for (int i = 0; i < 2000; i++) elifs += "{% elif a %}";
  expect("chat_template.jinja", elifs + "{% endif %}", "elif");
  expect("tokenizer_config.json", "{", "EOF");
  expect("tokenizer_config.json", R"({"chat_template": 7})", "neither");
  expect("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})", "default");
  expect("chat_template.json", R"({"chat_template": "{{ x"})", "chat_template.json");
}

TEST(ChatTemplate, ErrorsOfRendering) {
  const auto raised = render("{{ raise_exception('only ' ~ n ~ ' turns') }}", R"({"n": 2})");
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().message, "only 2 turns");
  const auto nested = render("{% macro m() %}{% for i in [1] %}{{ raise_exception('deep') }}{% endfor %}{% endmacro %}{{ m() }}");
  EXPECT_EQ(nested.error().message, "deep");
  const auto undefined = render("a\n{{ 'x' + y }}");
  EXPECT_EQ(undefined.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(undefined.error().message.find("chat_template.jinja, line 2"), std::string::npos) << undefined.error().message;
}

TEST(ChatTemplate, Variables) {
  for (const char* broken :
       {"", "[]", "3", "{", "{\"a\":}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":1.}", "{\"a\":1e999}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\n\"}",
        "{\"a\":tru}", "{\"a\":1} x", "{'a':1}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12g4\"}", "\xFF", "{\"a\":\"\\u"}) {
    EXPECT_EQ(render("x", broken).error().code, ErrorCode::kInvalidArgument) << broken;
  }
  const std::string deep(10000, '[');
  EXPECT_FALSE(render("x", "{\"a\":" + deep + std::string(10000, ']') + "}").ok());
  EXPECT_EQ(render("{{ a|tojson }}", R"({"a": 1, "a": [2, {"b": "\ud83d\ude00\u0000\/"}]})").value(),
            "[2, {\"b\": \"\U0001F600\\u0000/\"}]");
  EXPECT_EQ(render("{{ a }}", R"({"a": 0.30000000000000004, "b": -0})").value(), "0.30000000000000004");
  EXPECT_EQ(
      render("{{ a|tojson }}", R"({"a": [9223372036854775807, 18446744073709551615, -9223372036854775809, -0.0, 1E5, 5e-324]})").value(),
      "[9223372036854775807, 18446744073709551615, -9223372036854775809, -0.0, 100000.0, 5e-324]");
}

TEST(ChatTemplate, Clock) {
  char before[32], after[32];
  const auto now = [](char* out) {
    const std::time_t t = std::time(nullptr);
    std::tm parts{};
    localtime_r(&t, &parts);
    std::strftime(out, 32, "%d %b %Y", &parts);
  };
  now(before);
  const std::string text = render("{{ strftime_now('%d %b %Y') }}").value();
  now(after);
  EXPECT_TRUE(text == before || text == after) << text;
  EXPECT_EQ(render("{{ strftime_now('') }}").value(), "");
  EXPECT_FALSE(render("{{ strftime_now('%Y' * 100000) }}").ok());
}

TEST(ChatTemplate, GenerationBlocksAreTransparent) {
  EXPECT_EQ(render("  {% generation %}\n  x\n  {% endgeneration %}\ny").value(), "  x\ny");
  EXPECT_EQ(render("a {%- generation -%} b {%- endgeneration -%} c").value(), "abc");
  EXPECT_EQ(render("{{ '{% generation %}' }}{# {% generation %} #}{% raw %}{% generation %}{{ '{% endraw %}!").value(),
            "{% generation %}{% generation %}{{ '!");
}

TEST(ChatTemplate, BoundsOnWorkAndOutput) {
  const auto expect = [](std::string_view source, std::string_view words) {
    const auto rendered = render(source);
    ASSERT_FALSE(rendered.ok()) << source;
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(rendered.error().message.find(words), std::string::npos) << source << "\n" << rendered.error().message;
  };
  expect("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "more work");
  expect("{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "more work");
  expect("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}", "more work");
  expect("{{ 'a' * 99999999 }}", "longer than");
  expect("{% set ns = namespace(x={'a': 1}) %}{% for a in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x }}",
         "longer than");
  expect("{% set ns = namespace(x={'a': 1}) %}{% for a in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x|tojson }}",
         "more work");
  expect("{% macro r() %}{{ r() }}{% endmacro %}{{ r() }}", "recursion");
  expect("{{ '{:999999999}'.format(1) }}", "width");
}

TEST(ChatTemplate, LongConversations) {
  const auto chat = try_template(
                        "{% for m in messages %}{% if m.role == 'user' %}{{ '<u>' + m.content + '</u>\\n' }}{% else %}{{ '<a>' + "
                        "m.content|trim + '</a>\\n' }}{% endif %}"
                        "{% endfor %}")
                        .value();
  boost::json::array messages;
  for (int i = 0; i < 50000; i++) messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "a"}});
  const std::string variables = boost::json::serialize(boost::json::object{{"messages", messages}});
  const double start = thread_ms();
  const auto rendered = chat->render(variables);
  fmt::print("50,000 messages: {:.0f} ms\n", thread_ms() - start);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(rendered->size(), 50000u * 9);
}

TEST(ChatTemplate, KeepsAMarkInEveryWayTextIsPrinted) {
  const std::string mark(text::kPlainMark);
  const std::string variables = "{\"x\": \"<" + mark + "b>\"}";
  EXPECT_EQ(render("{{ x }}{{ x|trim }}{{ x|tojson }}{{ x.split('b')[0] }}", variables).value(),
            "<" + mark + "b><" + mark + "b>\"<" + mark + "b>\"<" + mark);
}

}  // namespace
}  // namespace lockstep::testing
