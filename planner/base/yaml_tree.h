// Parses YAML from outside into a tree of plain values with line numbers, for files whose every key is known.
//
// Deliberately narrower than YAML: one document; no anchors, aliases or tags (a small text could describe a huge document);
// keys are text and unique in their map; depth and size are limited. Errors are values. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass {

struct YamlMember;

struct YamlValue {
  enum class Kind { kNull, kText, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 1;
  std::string text;                 // if kText
  bool quoted = false;              // if kText; "40" in quotes is not a number
  std::vector<YamlValue> items;     // if kList
  std::vector<YamlMember> members;  // if kMap, in the order of the file
};

struct YamlMember {
  std::string key;
  int line = 1;
  YamlValue value;
};

// Null if the value is not a map or has no such key.
[[nodiscard]] const YamlValue* member_of(const YamlValue& value, std::string_view key);

// The error is "SOURCE:LINE: what is wrong", one line.
[[nodiscard]] Result<YamlValue> parse_yaml_tree(std::string_view text, const std::string& source);

// Describes a value for an error: 'abc' (shortened, no control characters), nothing, a list, a map.
[[nodiscard]] std::string found_text(const YamlValue& value);

}  // namespace windlass
