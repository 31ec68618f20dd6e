// What templates may call: filters, tests, methods of strings and dicts, and the few functions that Hugging Face's environment
// has. As jinja2 3.1 and transformers have them; what is missing is refused by name when the template is parsed.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/jinja/value.h"

namespace windlass::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments of `callee` in the order of its parameters, null where none was given. Throws for others.
[[nodiscard]] std::vector<const Value*> bind(std::string_view callee, const Arguments& given,
                                             std::initializer_list<std::string_view> parameters);

[[nodiscard]] bool has_filter(std::string_view name);
[[nodiscard]] bool has_test(std::string_view name);
// REQUIRES: there is such a filter, such a test.
[[nodiscard]] Value apply_filter(std::string_view name, const Value& value, const Arguments& given);
[[nodiscard]] bool apply_test(std::string_view name, const Value& value, const std::vector<Value>& given);

// value.name and value[key]: undefined where there is none. Throw for what is undefined itself.
[[nodiscard]] Value attribute_of(const Value& value, const std::string& name);
[[nodiscard]] Value item_of(const Value& value, const Value& key);

[[nodiscard]] bool has_method(const Value& self, std::string_view name);
[[nodiscard]] Value call_method(const Value& self, const std::string& name, const Arguments& given);

[[nodiscard]] bool has_function(std::string_view name);
// unix_s: the present, for the functions that ask for it.
[[nodiscard]] Value call_function(const std::string& name, const Arguments& given, std::int64_t unix_s);

// Of strings, by characters.
[[nodiscard]] Text upper(const Text& text);
[[nodiscard]] Text lower(const Text& text);
[[nodiscard]] Text capitalized(const Text& text);  // the first character upper, the others lower
// Without the characters of `set`, or without white space where it is null, at its ends.
[[nodiscard]] Text stripped(const Text& text, const Text* set, bool left = true, bool right = true);
[[nodiscard]] Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t count);  // count < 0: all
[[nodiscard]] std::vector<Text> lines_of(const Text& text, bool with_ends);
[[nodiscard]] Value call_text_method(const Text& self, std::string_view name, const Arguments& given);
[[nodiscard]] bool has_text_method(std::string_view name);

}  // namespace windlass::jinja
