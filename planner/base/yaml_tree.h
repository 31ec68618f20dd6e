// A YAML text as a tree of plain values with their lines, for files whose every key is known. Foreign bytes: errors are values.
//
// Narrower than YAML on purpose: one document; no anchors, aliases or tags (a small text could name a huge document); a key is
// text and stands once in its map; depth and size have limits. Pure.
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
  std::string text;                 // of kText
  bool quoted = false;              // of kText: "40" is no number
  std::vector<YamlValue> items;     // of kList
  std::vector<YamlMember> members;  // of kMap, as they stand in the file
};

struct YamlMember {
  std::string key;
  int line = 1;
  YamlValue value;
};

// Null where the value is no map or has no such key.
[[nodiscard]] const YamlValue* member_of(const YamlValue& value, std::string_view key);

// The error is "SOURCE:LINE: what is wrong", one line.
[[nodiscard]] Result<YamlValue> parse_yaml_tree(std::string_view text, const std::string& source);

// What a person is told that was found: 'abc' (cut when long, no control characters), nothing, a list, a map.
[[nodiscard]] std::string found_text(const YamlValue& value);

}  // namespace windlass
