// YAML as kubectl reads it: scalar types, documents, and errors with their lines.
#include "controller/api/yaml.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace windlass::api {
namespace {

using nlohmann::json;

struct Scalar {
  const char* yaml;
  json expected;
};

// Given a YAML scalar; expects the JSON that kubectl sends for it.
TEST(Yaml, TypesScalarsAsKubectlDoes) {
  const std::vector<Scalar> table = {
      {"text", "text"},
      {"'95'", "95"},
      {"\"95\"", "95"},
      {"'true'", "true"},
      {"'null'", "null"},
      {"''", ""},
      {"95", 95},
      {"-7", -7},
      {"+7", 7},
      {"1_000", 1000},
      {"0x1F", 31},
      {"0o17", 15},
      {"017", 15},
      {"0b101", 5},
      {"08", 8},
      {"18446744073709551615", 18446744073709551615ULL},
      {"-9223372036854775808", std::numeric_limits<std::int64_t>::min()},
      {"95.0", 95},
      {"1e3", 1000},
      {"99.5", 99.5},
      {".5", 0.5},
      {"-1.5e-3", -0.0015},
      {"1.2.3", "1.2.3"},
      {"500ms", "500ms"},
      {"80Gi", "80Gi"},
      {"2026-01-31", "2026-01-31"},
      {"true", true},
      {"yes", true},
      {"On", true},
      {"n", false},
      {"FALSE", false},
      {"yess", "yess"},
      {"null", nullptr},
      {"~", nullptr},
      {"", nullptr},
      {"!!str 95", "95"},
      {"!!int 95", 95},
      {"- ", json::array({nullptr})},
      {"[1, '1', {a: b}]", json::array({1, "1", {{"a", "b"}}})},
      {"|\n  two\n  lines\n", "two\nlines\n"},
  };
  for (const Scalar& item : table) {
    const auto value =
        yaml_to_json("value: " + std::string(item.yaml[0] == '-' && item.yaml[1] == ' ' ? "\n" : "") + item.yaml, "t");
    ASSERT_TRUE(value.ok()) << item.yaml << ": " << value.error().message;
    EXPECT_EQ(value->at("value"), item.expected) << item.yaml;
    EXPECT_EQ(value->at("value").type_name(), std::string(item.expected.type_name())) << item.yaml;
  }
}

// Given keys that are not text; expects the text that kubectl makes of them.
TEST(Yaml, KeysBecomeText) {
  const auto value = yaml_to_json("{1: a, true: b, 'x y': c}", "t");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(*value, (json{{"1", "a"}, {"true", "b"}, {"x y", "c"}}));
}

// Given anchors, aliases and a merge key; expects their values, with the map's own keys taking precedence.
TEST(Yaml, AliasesAndMergeKeys) {
  const auto value = yaml_to_json("a: &a {p: 1, q: 2}\nb: {<<: *a, q: 3}\nc: *a\n", "t");
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(value->at("b"), (json{{"p", 1}, {"q", 3}}));
  EXPECT_EQ(value->at("c"), (json{{"p", 1}, {"q", 2}}));
}

// Given several documents, some of them empty; expects the others in order, with the lines of their fields.
TEST(Yaml, SplitsDocuments) {
  const auto documents = parse_yaml("# head\n---\na: 1\n---\n---\n# nothing\n---\nb:\n- c: 2\n", "t");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  ASSERT_EQ(documents->size(), 2U);
  EXPECT_EQ((*documents)[0].json, R"({"a":1})");
  EXPECT_EQ((*documents)[0].line, 3);
  EXPECT_EQ((*documents)[1].json, R"({"b":[{"c":2}]})");
  EXPECT_EQ((*documents)[1].line_of.at("b[0].c"), 9);
}

struct BadText {
  const char* yaml;
  const char* message;  // that the error must contain
};

// Given invalid YAML; expects an error with the file, the line and the offending text.
TEST(Yaml, RefusesWithFileAndLine) {
  const std::string deep(300, '[');
  const std::vector<BadText> table = {
      {"a: 1\nb: 2\na: 3\n", "file.yaml:3: key \"a\" is already set"},
      {"a: [1,\n", "file.yaml:"},
      {"a: b: c\n", "file.yaml:1:"},
      {"a:\n\t- b\n", "file.yaml:2:"},
      {"a: .nan\n", "file.yaml:1: must be a number that JSON can hold (got .nan)"},
      {"x: 1\na: 1e999\n", "file.yaml:2: must be a number that JSON can hold (got 1e999)"},
      {"a: !!int text\n", "(got \"text\" tagged tag:yaml.org,2002:int)"},
      {"a: !thing text\n", "file.yaml:1: must be tagged !!str,"},
      {"? [1, 2]\n: a\n", "file.yaml:1: must have text as keys"},
      {"a: {<<: 3}\n", "file.yaml:1: <<: must be a map"},
      {"a: *nowhere\n", "file.yaml:1:"},
      {"a: \"\xff\xfe\"\n", "file.yaml:"},
      {deep.c_str(), "file.yaml:"},
  };
  for (const BadText& item : table) {
    const auto documents = parse_yaml(item.yaml, "file.yaml");
    ASSERT_FALSE(documents.ok()) << item.yaml;
    EXPECT_EQ(documents.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(documents.error().message.find(item.message), std::string::npos)
        << item.yaml << " gave " << documents.error().message;
  }
}

// Given a few lines whose aliases expand to a huge document; expects an error instead of a long wait.
TEST(Yaml, RefusesAnAliasBomb) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string below = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int k = 1; k < 10; ++k) text += ", " + below;
    text += "]\n";
  }
  const auto documents = parse_yaml(text, "bomb.yaml");
  ASSERT_FALSE(documents.ok());
  EXPECT_NE(documents.error().message.find("must hold at most"), std::string::npos) << documents.error().message;
}

// Given JSON of every type, with texts that look like other types; expects the same JSON back from its YAML.
TEST(Yaml, PrintsWhatItReadsBack) {
  const json value = {{"text", "plain"},
                      {"looks like a number", "95"},
                      {"yes", "yes"},
                      {"empty", ""},
                      {"colon", "a: b"},
                      {"hash", "a #b"},
                      {"star", "*a"},
                      {"lines", "one\ntwo\n"},
                      {"uri", "file://./models/tiny"},
                      {"umlaut", "Grüße"},
                      {"list", json::array({1, 2.5, true, nullptr, "x", json::array(), json::object(), json::array({1, 2})})},
                      {"maps", json::array({{{"a", 1}, {"b", {{"c", json::array({1})}}}}, {{"d", "e"}}})},
                      {"nothing", nullptr}};
  const auto back = yaml_to_json(to_yaml(value), "t");
  ASSERT_TRUE(back.ok()) << back.error().message << "\n" << to_yaml(value);
  EXPECT_EQ(*back, value) << to_yaml(value);
}

}  // namespace
}  // namespace windlass::api
