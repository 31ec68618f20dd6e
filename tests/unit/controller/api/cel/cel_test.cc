// The CEL interpreter: values, CEL's own errors, and parse errors for everything outside the supported subset.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/cel/evaluator.h"
#include "controller/api/cel/parser.h"

namespace windlass::api::cel {
namespace {

using nlohmann::json;

const json& self() {
  static const json kSelf = {{"min", 2},
                             {"max", 5},
                             {"name", "grüße"},
                             {"rate", 2.5},
                             {"list", {1, 2, 3}},
                             {"items", json::array({{{"k", "a"}, {"n", 1}}, {{"k", "b"}}})},
                             {"map", {{"x", 1}, {"y", 2}}},
                             {"yes", true}};
  return kSelf;
}

// Given an expression over `self`; expects the value that CEL's specification defines.
TEST(Cel, Evaluates) {
  const std::vector<std::pair<const char*, json>> table = {
      {"self.min <= self.max", true},
      {"self.min > self.max", false},
      {"self.min + self.max * 2 == 12", true},
      {"(self.min + self.max) * 2", 14},
      {"10 - 4 - 3", 3},
      {"7 / 2", 3},
      {"-7 % 4", -3},
      {"7.0 / 2.0", 3.5},
      {"-self.min", -2},
      {"!!self.yes", true},
      {"self.min < self.rate", true},
      {"self.min == 2.0", true},
      {"self.min == '2'", false},
      {"1 < 2 && 2 < 3 || false", true},
      {"false && true || true", true},
      {"true || false && false", true},
      {"self.min > 3 ? 'many' : self.min > 1 ? 'some' : 'few'", "some"},
      {"has(self.min)", true},
      {"has(self.none)", false},
      {"!has(self.none) || self.none > 3", true},
      {"has(self.map.x) && !has(self.map.z)", true},
      {"self.map['y']", 2},
      {"self.list[1]", 2},
      {"size(self.list)", 3},
      {"self.list.size()", 3},
      {"self.name.size()", 5},
      {"size(self.map)", 2},
      {"2 in self.list", true},
      {"self.name in ['a', 'b']", false},
      {"'x' in self.map", true},
      {"[1, 2] == [1, 2]", true},
      {"'ab' + \"cd\"", "abcd"},
      {"'a' < 'b'", true},
      {"self.name.startsWith('gr')", true},
      {"self.name.endsWith('e')", true},
      {"self.name.contains('zzz')", false},
      {"'file://x'.matches('^(hf|file)://.')", true},
      {"'a.b'.matches('^a\\\\.b$')", true},
      {"'a.b'.matches(r'^a\\.b$')", true},
      {"'abc'.matches('b')", true},
      {"'it\\'s'", "it's"},
      {"type(self.min) == int", true},
      {"type(self.name) == string && type(self.rate) == double", true},
      {"type(self.list) == list && type(self.map) == map && type(self.yes) == bool", true},
      {"self.items.all(i, has(i.k))", true},
      {"self.items.exists(i, has(i.n) && i.n == 1)", true},
      {"self.items.exists_one(i, i.k == 'b')", true},
      {"self.map.all(k, k.size() == 1)", true},
      {"self.list.all(a, self.list.exists(b, b == a))", true},
      {"[].all(x, false)", true},
      {"null == null", true},
      // && and || ignore an error if the other operand decides the result.
      {"self.none > 1 || true", true},
      {"false && self.none > 1", false},
      {"self.items.exists(i, i.n == 1)", true},
  };
  for (const auto& [text, expected] : table) {
    const auto expression = parse(text);
    ASSERT_TRUE(expression.ok()) << text << ": " << expression.error().message;
    const auto value = evaluate(**expression, self());
    ASSERT_TRUE(value.ok()) << text << ": " << value.error().message;
    EXPECT_EQ(value->json(), expected) << text;
  }
}

// Given an expression that fails on this `self`; expects CEL's own error.
TEST(Cel, ReportsCelsErrors) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"self.none", "no such key: none"},
      {"self.none > 1 || false", "no such key: none"},
      {"self.items.all(i, i.n == 1)", "no such key: n"},
      {"self.list[3]", "index out of bounds: 3"},
      {"self.list[-1]", "index out of bounds: -1"},
      {"self.map['z']", "no such key: z"},
      {"self.min < 'a'", "no such overload"},
      {"self.name + 1", "no such overload"},
      {"!self.min", "no such overload"},
      {"self.min ? 1 : 2", "no such overload"},
      {"self.min.startsWith('a')", "no such overload"},
      {"self.name.startsWith(1)", "no such overload"},
      {"size(self.min)", "no such overload"},
      {"self.min.x", "no such overload"},
      {"1 in self.min", "no such overload"},
      {"self.min / 0", "division by zero"},
      {"self.min % 0", "modulus by zero"},
      {"9223372036854775807 + 1", "integer overflow"},
      {"-9223372036854775807 - 2", "integer overflow"},
      {"1 + 1.0", "no such overload"},
  };
  for (const auto& [text, message] : table) {
    const auto expression = parse(text);
    ASSERT_TRUE(expression.ok()) << text << ": " << expression.error().message;
    const auto value = evaluate(**expression, self());
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().message, message) << text;
  }
}

// Given a rule whose value is not a bool; expects an error that says so.
TEST(Cel, RuleMustBeABool) {
  const auto expression = parse("self.min");
  ASSERT_TRUE(expression.ok());
  EXPECT_FALSE(evaluate_rule(**expression, self()).ok());
}

// Given text outside the subset; expects a parse error with the place and the offending text.
TEST(Cel, RefusesUnsupportedExpressions) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"", "(got the end)"},
      {"self.a >", "(got the end)"},
      {"self.a = 1", "'='"},
      {"self.a & 1", "'&'"},
      {"other.a", "(got 'other')"},
      {"oldSelf.a == self.a", "(got 'oldSelf')"},
      {"duration(self)", "(got 'duration')"},
      {"self.a.map(x, x)", "(got 'map')"},
      {"self.a.startsWith()", "startsWith with 2 arguments"},
      {"startsWith(self.a, 'b')", "(got 'startsWith')"},
      {"self.a.matches(self.b)", "matches('literal')"},
      {"self.a.matches('(')", "a pattern that compiles"},
      {"has(self)", "has(a.field)"},
      {"has(self.a, self.b)", "has(a.field)"},
      {"'open", "the string must end"},
      {"'\\x41'", "escape"},
      {"0x1F", "number is not supported"},
      {"1u", "number is not supported"},
      {"99999999999999999999", "must fit in 64 bits"},
      {"self.a ? 1", "must be ':'"},
      {"(1 + 2", "must be ')'"},
      {"[1, 2", "must be ','"},
      {"1 2", "an operator or the end"},
      {"self.all(self, true)", "a new variable"},
      {"{'a': 1}", "'{'"},
      {"self.'a'", "a field's or function's name"},
      {"x'abc'", "(got 'x')"},
  };
  for (const auto& [text, message] : table) {
    const auto expression = parse(text);
    ASSERT_FALSE(expression.ok()) << text;
    EXPECT_NE(expression.error().message.find(message), std::string::npos) << text << " gave " << expression.error().message;
  }
  EXPECT_FALSE(parse(std::string(5000, '(')).ok());
  EXPECT_FALSE(parse(std::string(5000, '!') + "true").ok());
  // A macro's variable is unknown outside it.
  EXPECT_FALSE(parse("self.a.all(x, x > 1) && x > 1").ok());
}

}  // namespace
}  // namespace windlass::api::cel
