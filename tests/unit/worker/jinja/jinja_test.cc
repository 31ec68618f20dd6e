// Properties that the golden files cannot show: origins of bytes, errors with their lines, and limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/effort.h"
#include "worker/jinja/template.h"

namespace windlass::jinja {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<Text> render(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  auto parsed = Template::parse(source, "t.jinja");
  if (!parsed.ok()) return parsed.error();
  return parsed->render(
      [&] {
        Variables given;
        for (const auto& [name, value] : variables.items()) given.emplace_back(name, Value::of_input(value));
        return given;
      },
      86400 * 365);
}

std::string text_of(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  const auto text = render(source, variables);
  return text.ok() ? text->bytes() : "error: " + text.error().message;
}

// Puts bytes from the input in brackets.
std::string origins_of(const std::string& source, const ordered_json& variables) {
  const auto text = render(source, variables);
  if (!text.ok()) return "error: " + text.error().message;
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i <= text->size(); ++i) {
    const bool input = i < text->size() && text->from_input(i);
    if (input != inside) out += input ? '[' : ']';
    inside = input;
    if (i < text->size()) out += text->bytes()[i];
  }
  return out;
}

// Given input that passes through every way to build strings; expects every byte of the user, and none of the template, to be
// marked as input.
TEST(Jinja, BytesKeepTheirOrigin) {
  const ordered_json in = {{"c", " a<|x|>b "}, {"l", {"p", "q"}}, {"d", {{"k", "v"}}}};
  EXPECT_EQ(origins_of("<|x|>{{ c }}<|y|>", in), "<|x|>[ a<|x|>b ]<|y|>");
  EXPECT_EQ(origins_of("{{ c|trim }}.{{ c[1:3] }}.{{ c.strip().upper() }}", in), "[a<|x|>b].[a<].[A<|X|>B]");
  EXPECT_EQ(origins_of("{{ ('x' ~ c.strip() + 'y').replace('b', 'c') }}", in), "x[a<|x|>]cy");
  EXPECT_EQ(origins_of("{{ l|join('+') }} {{ l }} {{ d|tojson }}", in), "[p]+[q] ['[p]', '[q]'] {\"[k]\": \"[v]\"}");
  EXPECT_EQ(origins_of("{{ c.split('<')[1] }}{% set z %}({{ l[0] }}){% endset %}{{ z * 2 }}", in), "[|x|>b ]([p])([p])");
  EXPECT_EQ(origins_of("{{ c|indent(2, true) }}{{ 'a\n' ~ l[0]|reverse }}", in), "  [ a<|x|>b ]a\n[p]");
  EXPECT_EQ(origins_of("{{ c.partition('<|x|>')|join('/') }}", in), "[ a]/[<|x|>]/[b ]");
  EXPECT_EQ(origins_of("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(l[1]) }}", in), "<[q]>");
}

// Given invalid templates; expects errors with the file, the line, what was expected and what was there.
TEST(Jinja, RefusalsOfParsing) {
  EXPECT_EQ(text_of("a\n{% if x %}"), "error: t.jinja: line 2: expected '{% endif %}' (got the template's end)");
  EXPECT_EQ(text_of("{{ x "), "error: t.jinja: line 1: a tag is not closed: '}}' is missing");
  EXPECT_EQ(text_of("{{ x | nothing }}"), "error: t.jinja: line 1: filter: must be a known one (got 'nothing')");
  EXPECT_EQ(text_of("{{ x is nothing }}"), "error: t.jinja: line 1: test: must be a known one (got 'nothing')");
  EXPECT_THAT(text_of("\n\n{% include 'x' %}"), HasSubstr("line 3: expected if, for, set"));
  EXPECT_THAT(text_of("{{ (1, 2 }}"), HasSubstr("expected ) (got '}')"));
  EXPECT_THAT(text_of("{{ 'abc }}"), HasSubstr("a string is not closed"));
  EXPECT_THAT(text_of("{# x"), HasSubstr("a comment is not closed"));
  EXPECT_THAT(text_of("{% break %}"), HasSubstr("'break' must be inside a loop"));
  EXPECT_THAT(text_of("{{ 99999999999999999999 }}"), HasSubstr("number: must fit 64 bits"));
  EXPECT_THAT(text_of("{% set true = 1 %}"), HasSubstr("expected a name that can be assigned to (got 'true')"));
  EXPECT_THAT(text_of("{{ '\\uD800' }}"), HasSubstr("the escape 0xd800 is not a character"));
}

// Given templates that reject their input or fail; expects errors with the line and the reason.
TEST(Jinja, RefusalsOfRendering) {
  EXPECT_EQ(text_of("a\n{{ raise_exception('no ' ~ x) }}", {{"x", "way"}}), "error: t.jinja: line 2: no way");
  EXPECT_EQ(text_of("{{ a.b.c }}", {{"a", ordered_json::object()}}), "error: t.jinja: line 1: 'b' is undefined");
  EXPECT_THAT(text_of("{{ 1 + 'a' }}"), HasSubstr("'+': not supported for int and str"));
  EXPECT_THAT(text_of("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(text_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(text_of("{{ x() }}", {{"x", 1}}), HasSubstr("must name something callable (got int)"));
  EXPECT_THAT(text_of("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
              HasSubstr("macro m: must have at most 1 arguments (got 2)"));
  EXPECT_THAT(text_of("{{ x.append(1) }}", {{"x", {1}}}), HasSubstr("'append' is undefined"));
}

// Given templates that would use unlimited resources; expects an error at each limit.
TEST(Jinja, Bounds) {
  EXPECT_THAT(text_of("{{ 'x' * 99999999999 }}"), HasSubstr("steps"));
  EXPECT_THAT(text_of("{% set n = namespace(s='xxxxxxxx') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
              HasSubstr("longer than"));
  EXPECT_THAT(text_of("{{ range(1000000) }}"), HasSubstr("must have at most 100000 numbers"));
  EXPECT_THAT(text_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("must be at most 500 calls deep"));
  EXPECT_THAT(text_of("{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(text_of("{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}"),
              HasSubstr("must be at most 200 levels deep"));
  EXPECT_THAT(text_of("{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}"),
              HasSubstr("must be at most 200 levels deep"));
  std::string chain = "1";
  for (int i = 0; i < 100'000; ++i) chain += "+1";
  EXPECT_THAT(text_of("{{ " + chain + " }}"), HasSubstr("levels"));
  EXPECT_THAT(text_of("{% set n = namespace() %}{% set n.self = n %}"),
              HasSubstr("a list, dict or namespace: must not contain namespace"));
  EXPECT_THAT(text_of("{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l.count] %}{% endfor %}"),
              HasSubstr("must not contain function"));
  EXPECT_THAT(text_of("{% set n = namespace() %}{% set m = namespace(a=n) %}"), HasSubstr("must not contain namespace"));
  EXPECT_THAT(
      text_of("{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == n.l }}"),
      HasSubstr("must have at most 1000000 values"));
  EXPECT_THAT(text_of("{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = n.l + [i] %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(text_of("{{ 'a'|map('map', 'map')|list }}"), HasSubstr("must be a known filter other than map"));
  EXPECT_THAT(text_of("{% filter upper is defined %}x{% endfilter %}"), HasSubstr("expected '%}'"));
  EXPECT_THAT(text_of(std::string(2'000'000, 'x')), HasSubstr("must be at most 1048576 bytes"));
}

// Given random bytes and truncated or shuffled templates; expects parsing and rendering to end, with a text or an error.
TEST(Jinja, SurvivesAnything) {
  const std::string good =
      "{%- for m in messages -%}{% if m.role == 'user' and not loop.last %}{{ m['content'] | trim | tojson(indent=2) }}{% elif "
      "x is "
      "defined %}{{ [1, 2.5, {'a': (none, true)}][0:1] }}{% else %}{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% "
      "endif "
      "%}{#- c -#}{% endfor %}{% macro f(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ f('x', b=3) }}{% raw %}{{ }}{% endraw %}";
  const ordered_json in = {
      {"messages", {{{"role", "user"}, {"content", "hi\xF0\x9F\x99\x82"}}, {{"role", "x"}, {"content", ""}}}}};
  ASSERT_TRUE(render(good, in).ok());
  std::uint64_t state = 1;
  const auto random = [&](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33U) % below;
  };
  static constexpr std::string_view kPieces =
      "{}%#-+'\"\\|.,:()[]~*/<>= \n\x80\xff"
      "abin0";
  int rendered = 0;
  for (int i = 0; i < effort(800, 8000); ++i) {
    std::string source = good;
    for (std::size_t edits = 1 + random(4); edits > 0; --edits) {
      const std::size_t at = random(source.size());
      switch (random(4)) {
        case 0: source.erase(at, 1 + random(8)); break;
        case 1: source.insert(at, 1, kPieces[random(kPieces.size())]); break;
        case 2: source[at] = kPieces[random(kPieces.size())]; break;
        default: source.insert(at, source.substr(random(source.size()), random(30)));
      }
      if (source.empty()) source = " ";
    }
    const auto text = render(source, in);
    if (text.ok()) ++rendered;
    if (!text.ok()) {
      EXPECT_THAT(text.error().message, HasSubstr("t.jinja: line "));
    }
  }
  EXPECT_GT(rendered, effort(6, 100));
}

// Given a time; expects its date.
TEST(Jinja, NamesTheDate) { EXPECT_EQ(text_of("{{ strftime_now('%Y') }}"), "1971"); }

}  // namespace
}  // namespace windlass::jinja
