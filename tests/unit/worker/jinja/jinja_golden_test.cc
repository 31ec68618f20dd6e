// Templates and expressions compared with the output of transformers' own environment
// (tests/golden/chat_templates/make_chat_templates.py).
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "worker/jinja/template.h"

namespace windlass::jinja {
namespace {

using nlohmann::ordered_json;

ordered_json golden(const std::string& file) {
  std::ifstream in(source_path() + "/tests/golden/chat_templates/" + file);
  return ordered_json::parse(in);
}

// The output; nothing if the template is rejected.
std::optional<std::string> outcome(const std::string& source, const ordered_json& variables, std::string& why) {
  const auto parsed = Template::parse(source, "golden");
  if (!parsed.ok()) return why = parsed.error().message, std::nullopt;
  const auto given = [&] {
    Variables all;
    for (const auto& [name, value] : variables.items()) all.emplace_back(name, Value::of_input(value));
    return all;
  };
  const auto text = parsed->render(given, 0);
  if (!text.ok()) return why = text.error().message, std::nullopt;
  return text->bytes();
}

void expect_same(const ordered_json& expected, const std::optional<std::string>& found, const std::string& what,
                 const std::string& why, int& wrong) {
  const std::optional<std::string> wanted = expected.is_null() ? std::nullopt : std::optional(expected.get<std::string>());
  if (wanted == found) return;
  if (++wrong > 20) return;  // enough to diagnose
  ADD_FAILURE() << what << "\n  expected: " << wanted.value_or("(refused)")
                << "\n  found:    " << found.value_or("(refused: " + why + ")");
}

// Given templates in the style of well-known families, and chats with tools, calls, odd characters and wrong turns; expects the
// reference's text, or a refusal where the reference refuses.
TEST(JinjaGolden, ChatTemplates) {
  const ordered_json file = golden("templates.json");
  int wrong = 0;
  for (const ordered_json& test : file.at("cases")) {
    ordered_json variables = test.at("variables");
    variables.emplace("documents", nullptr);
    variables.emplace("bos_token", "<s>");
    variables.emplace("eos_token", "</s>");
    const std::string name = test.at("template");
    std::string why;
    const auto text = outcome(file.at("templates").at(name), variables, why);
    expect_same(test.at("text"), text, name + " of " + test.at("variables").dump(), why, wrong);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(file.at("cases").size(), 150U);
}

// Given 3,000 random expressions over all filters, tests, methods and operators; expects the same.
TEST(JinjaGolden, Expressions) {
  const ordered_json file = golden("expressions.json");
  const ordered_json& variables = file.at("variables");
  int wrong = 0;
  for (const ordered_json& test : file.at("cases")) {
    std::string why;
    const auto text = outcome(test.at("source"), variables, why);
    expect_same(test.at("text"), text, test.at("source"), why, wrong);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(file.at("cases").size(), 3000U);
}

}  // namespace
}  // namespace windlass::jinja
