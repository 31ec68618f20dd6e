// Filters, tests, methods of strings and dicts, and functions that templates may call, as in jinja2 3.1 and transformers. A
// missing one is rejected by name when the template is parsed.
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

// The arguments of `callee` in the order of its parameters, null if not given. Throws for unknown or surplus arguments.
[[nodiscard]] std::vector<const Value*> bind(std::string_view callee, const Arguments& given,
                                             std::initializer_list<std::string_view> parameters);

[[nodiscard]] bool has_filter(std::string_view name);
[[nodiscard]] bool has_test(std::string_view name);
// REQUIRES: the filter or test exists.
[[nodiscard]] Value apply_filter(std::string_view name, const Value& value, const Arguments& given);
[[nodiscard]] bool apply_test(std::string_view name, const Value& value, const std::vector<Value>& given);

// value.name and value[key]: undefined if there is none. Throw if `value` itself is undefined.
[[nodiscard]] Value attribute_of(const Value& value, const std::string& name);
[[nodiscard]] Value item_of(const Value& value, const Value& key);

[[nodiscard]] bool has_method(const Value& self, std::string_view name);
[[nodiscard]] Value call_method(const Value& self, const std::string& name, const Arguments& given);

[[nodiscard]] bool has_function(std::string_view name);
// `unix_s`: current time, for functions that need it.
[[nodiscard]] Value call_function(const std::string& name, const Arguments& given, std::int64_t unix_s);

// String operations, by characters.
[[nodiscard]] Text upper(const Text& text);
[[nodiscard]] Text lower(const Text& text);
[[nodiscard]] Text capitalized(const Text& text);  // first character upper case, the others lower case
// Removes characters of `set`, or white space if null, at the ends.
[[nodiscard]] Text stripped(const Text& text, const Text* set, bool left = true, bool right = true);
[[nodiscard]] Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t count);  // count < 0: all
[[nodiscard]] std::vector<Text> lines_of(const Text& text, bool with_ends);
[[nodiscard]] Value call_text_method(const Text& self, std::string_view name, const Arguments& given);
[[nodiscard]] bool has_text_method(std::string_view name);

}  // namespace windlass::jinja
