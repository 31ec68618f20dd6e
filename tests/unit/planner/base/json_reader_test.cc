// Tests that JsonReader reports the first error with its path, what was found and what is allowed.
#include "planner/base/json_reader.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/shown_json.h"

namespace windlass {
namespace {

using ::testing::HasSubstr;

std::string mistake(const std::string& text) {
  const auto document = parse_json(text, "it").value();
  JsonReader reader(document, "top");
  static_cast<void>(reader.string("name"));
  static_cast<void>(reader.int32("count", 1, 9));
  static_cast<void>(reader.number("rate"));
  static_cast<void>(reader.boolean("flag"));
  reader.list("items", [](const nlohmann::json&, const std::string&) {});
  const Result<void> read = reader.finish();
  return read.ok() ? "" : read.error().message;
}

// Given objects with one error each; expects its path, what was found and what is allowed.
TEST(JsonReader, NamesTheFirstMistake) {
  EXPECT_EQ(mistake(R"({"name":"a","count":3,"rate":1.5,"flag":true,"items":[]})"), "");
  EXPECT_EQ(mistake(R"({"name":5,"count":3,"rate":1.5,"flag":true,"items":[]})"), "top.name: must be a string (got 5)");
  EXPECT_EQ(mistake(R"({"count":3,"rate":1.5,"flag":true,"items":[]})"), "top.name: missing");
  EXPECT_EQ(mistake(R"({"name":"a","count":10,"rate":1.5,"flag":true,"items":[]})"),
            "top.count: must be an integer from 1 to 9 (got 10)");
  EXPECT_EQ(mistake(R"({"name":"a","count":3.5,"rate":1.5,"flag":true,"items":[]})"),
            "top.count: must be an integer from 1 to 9 (got 3.5)");
  EXPECT_EQ(mistake(R"({"name":"a","count":99999999999999999999,"rate":1.5,"flag":true,"items":[]})"),
            "top.count: must be an integer from 1 to 9 (got 1e+20)");
  EXPECT_EQ(mistake(R"({"name":"a","count":18446744073709551615,"rate":1.5,"flag":true,"items":[]})"),
            "top.count: must be an integer from 1 to 9 (got 18446744073709551615)");
  EXPECT_EQ(mistake(R"({"name":"a","count":3,"rate":"fast","flag":true,"items":[]})"),
            "top.rate: must be a number (got \"fast\")");
  EXPECT_EQ(mistake(R"({"name":"a","count":3,"rate":1,"flag":1,"items":[]})"), "top.flag: must be true or false (got 1)");
  EXPECT_EQ(mistake(R"({"name":"a","count":3,"rate":1,"flag":true,"items":{}})"), "top.items: must be a list (got {})");
  EXPECT_EQ(mistake("[]"), "top: must be an object (got [])");
  EXPECT_THAT(mistake(R"({"name":"a","count":3,"rate":1,"flag":true,"items":[],"extra":0})"),
              HasSubstr("top.extra: unknown field, must be one of count, flag, items, name, rate"));
}

// Given text that is not JSON; expects an error that names the text.
TEST(JsonReader, RefusesInvalidJson) {
  const auto result = parse_json("{", "routing table");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("routing table: not valid JSON"));
}

// Given values of all kinds; expects JSON. Given large ones; expects the first whole characters, and that no more was written.
TEST(ShownJson, IsShort) {
  EXPECT_EQ(shown(nlohmann::json::parse(R"({"b":[1,null,"x\ny"],"a":{}})")), R"({"a":{},"b":[1,null,"x\ny"]})");
  EXPECT_EQ(shown(nlohmann::json(std::string(58, 'a'))), '"' + std::string(58, 'a') + '"');
  EXPECT_EQ(shown(nlohmann::json(std::string(59, 'a'))), '"' + std::string(56, 'a') + "...");
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\u00e9";
  EXPECT_EQ(shown(nlohmann::json(wide)), '"' + wide.substr(0, 56) + "...");
  EXPECT_EQ(shown(nlohmann::json(std::vector<int>(1'000'000, 0))).size(), 60U);
  EXPECT_EQ(shown(nlohmann::json("\xff")), "\"\xEF\xBF\xBD\"");
}

// Given a number that JSON lacks; expects it back from its name.
TEST(JsonReader, KeepsNanAndInfinity) {
  const nlohmann::json object = {{"nan", json_number(NAN)}, {"more", json_number(INFINITY)}, {"less", json_number(-INFINITY)}};
  JsonReader reader(object, "");
  EXPECT_TRUE(std::isnan(reader.number("nan")));
  EXPECT_EQ(reader.number("more"), INFINITY);
  EXPECT_EQ(reader.number("less"), -INFINITY);
  EXPECT_TRUE(reader.finish().ok());
}

}  // namespace
}  // namespace windlass
