// Reads JSON objects and reports the path of the first error; see json_reader.h.
#include "planner/base/json_reader.h"

#include "planner/base/foreign_text.h"
#include "planner/base/shown_json.h"

namespace windlass {
namespace {

const nlohmann::json kNull;

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, std::string_view what) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: not valid JSON: {}", what, shown_text(e.what(), kLongestReason))};
  }
}

nlohmann::json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

JsonReader::JsonReader(const nlohmann::json& value, std::string path) : value_(value), path_(std::move(path)) {
  if (!value_.is_object()) {
    error_.message = fmt::format("{}: must be an object (got {})", path_.empty() ? "the document" : path_, shown(value_));
  }
}

bool JsonReader::has(const char* key) const { return value_.is_object() && value_.contains(key); }

const nlohmann::json* JsonReader::find(const char* key) {
  read_.insert(key);
  if (!has(key)) return nullptr;
  return &value_.at(key);
}

bool JsonReader::given(const char* key) {
  const nlohmann::json* value = find(key);
  return value != nullptr && !value->is_null();
}

const nlohmann::json& JsonReader::require(const char* key) {
  const nlohmann::json* found = find(key);
  if (found != nullptr) return *found;
  if (error_.message.empty()) error_.message = fmt::format("{}: missing", path_of(key));
  return kNull;
}

void JsonReader::fail(const char* key, const nlohmann::json& found, std::string_view allowed) {
  if (error_.message.empty()) error_.message = fmt::format("{}: must be {} (got {})", path_of(key), allowed, shown(found));
}

std::string JsonReader::string(const char* key) {
  const nlohmann::json& value = require(key);
  if (value.is_string()) return value.get<std::string>();
  fail(key, value, "a string");
  return {};
}

bool JsonReader::boolean(const char* key) {
  const nlohmann::json& value = require(key);
  if (value.is_boolean()) return value.get<bool>();
  fail(key, value, "true or false");
  return false;
}

double JsonReader::number(const char* key) {
  const nlohmann::json& value = require(key);
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  fail(key, value, "a number");
  return 0;
}

std::int64_t JsonReader::integer(const char* key, std::int64_t low, std::int64_t high) {
  const nlohmann::json& value = require(key);
  if (value.is_number_integer()) {
    const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (!too_large) {
      const auto number = value.get<std::int64_t>();
      if (number >= low && number <= high) return number;
    }
  }
  fail(key, value, fmt::format("an integer from {} to {}", low, high));
  return low;
}

Result<void> JsonReader::finish() {
  if (error_.message.empty() && value_.is_object()) {
    for (const auto& item : value_.items()) {
      if (read_.contains(item.key())) continue;
      std::string allowed;
      for (const std::string& key : read_) allowed += (allowed.empty() ? "" : ", ") + key;
      error_.message = fmt::format("{}: unknown field, must be one of {}", path_of(item.key().c_str()), allowed);
      break;
    }
  }
  if (error_.message.empty()) return {};
  return error_;
}

}  // namespace windlass
