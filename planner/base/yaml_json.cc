// See yaml_json.h.
#include "planner/base/yaml_json.h"

#include <cmath>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "planner/base/yaml_reader.h"

namespace windlass {
namespace {

constexpr double kLargestExactWhole = 9007199254740992.0;  // 2^53

nlohmann::json scalar_of(const YamlValue& value) {
  if (value.quoted) return value.text;
  if (value.text == "true" || value.text == "false") return value.text == "true";
  const auto number = plain_number(value);
  if (!number) return value.text;
  if (*number == std::floor(*number) && std::abs(*number) <= kLargestExactWhole) return static_cast<std::int64_t>(*number);
  return *number;
}

}  // namespace

nlohmann::json json_of(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull: return nullptr;
    case YamlValue::Kind::kText: return scalar_of(value);
    case YamlValue::Kind::kList: {
      auto list = nlohmann::json::array();
      for (const YamlValue& item : value.items) list.push_back(json_of(item));
      return list;
    }
    case YamlValue::Kind::kMap: break;
  }
  auto map = nlohmann::json::object();
  for (const YamlMember& member : value.members) map[member.key] = json_of(member.value);
  return map;
}

}  // namespace windlass
