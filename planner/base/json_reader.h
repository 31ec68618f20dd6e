// JsonReader reads a JSON object field by field and reports the path of the first error.
//
//   JsonReader reader(value, "services[0]");
//   std::string name = reader.string("name");
//   int workers = reader.integer<int>("workers", 0, 100);
//   WINDLASS_RETURN_IF_ERROR(reader.finish());   // the first error; unknown keys count
//
// After an error every further read returns a default value, so a parser reads all fields and checks once at the end. The value
// must outlive the reader.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/result.h"

namespace windlass {

// Parses text as JSON; `what` names the text in errors.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, std::string_view what);

// Writes NaN and infinities as strings, because JSON has no such numbers. JsonReader::number() reads them back.
[[nodiscard]] nlohmann::json json_number(double value);

class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string path);

  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] std::string path_of(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  // Whether the member exists and is not null. Marks the key as known.
  [[nodiscard]] bool given(const char* key);
  // The member, or null if it is missing. Marks the key as known.
  [[nodiscard]] const nlohmann::json* find(const char* key);
  // The member; an error if it is missing.
  [[nodiscard]] const nlohmann::json& require(const char* key);

  [[nodiscard]] std::string string(const char* key);
  [[nodiscard]] bool boolean(const char* key);
  [[nodiscard]] bool boolean_or(const char* key, bool fallback) { return given(key) ? boolean(key) : fallback; }
  // A finite number, or a NaN or infinity written by json_number.
  [[nodiscard]] double number(const char* key);
  [[nodiscard]] std::int64_t integer(const char* key, std::int64_t low, std::int64_t high);
  [[nodiscard]] int int32(const char* key, int low = std::numeric_limits<int>::min(),
                          int high = std::numeric_limits<int>::max()) {
    return static_cast<int>(integer(key, low, high));
  }
  // A list; calls each(element, path) for every element.
  template <class Each>
  void list(const char* key, Each each) {
    const nlohmann::json& value = require(key);
    if (!error_.message.empty()) return;
    if (!value.is_array()) return fail(key, value, "a list");
    for (std::size_t i = 0; i < value.size(); ++i) each(value[i], fmt::format("{}[{}]", path_of(key), i));
  }

  // Records an error found by the caller; only the first one is kept.
  void fail(const char* key, const nlohmann::json& found, std::string_view allowed);
  void take(const Result<void>& result) {
    if (!result.ok() && error_.message.empty()) error_ = result.error();
  }
  void take(const Error& error) {
    if (error_.message.empty()) error_ = error;
  }
  // The value, or a default value if there is an error, which is recorded.
  template <class T>
  T unwrap(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    take(result.error());
    return T{};
  }

  // The first error so far; unknown keys are allowed. For formats that others may extend.
  [[nodiscard]] Result<void> first_mistake() const {
    if (error_.message.empty()) return {};
    return error_;
  }

  // The first error; a key that was never read is one.
  [[nodiscard]] Result<void> finish();

 private:
  const nlohmann::json& value_;
  std::string path_;
  std::set<std::string> read_;
  Error error_{ErrorCode::kInvalidArgument, ""};
};

}  // namespace windlass
