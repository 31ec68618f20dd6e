// JsonReader: takes a JSON object apart field by field and names the path of whatever is wrong.
//
//   JsonReader reader(value, "services[0]");
//   std::string name = reader.string("name");
//   int workers = reader.integer<int>("workers", 0, 100);
//   WINDLASS_RETURN_IF_ERROR(reader.finish());   // the first mistake, unknown keys included
//
// After a mistake every further read returns a default value, so a parser reads straight through and asks once. Borrowed value:
// it must outlive the reader.
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

// Parses text into a JSON value; `what` names the text in the error.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, std::string_view what);

// NaN and infinities, which JSON lacks, become strings. The reader's number() takes them back.
[[nodiscard]] nlohmann::json json_number(double value);

class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string path);

  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] std::string path_of(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  // Whether the member is there and is not null. Counts as read.
  [[nodiscard]] bool given(const char* key);
  // The member, or null when it is not there. Counts as read.
  [[nodiscard]] const nlohmann::json* find(const char* key);
  // The member, which must be there.
  [[nodiscard]] const nlohmann::json& require(const char* key);

  [[nodiscard]] std::string string(const char* key);
  [[nodiscard]] bool boolean(const char* key);
  [[nodiscard]] bool boolean_or(const char* key, bool fallback) { return given(key) ? boolean(key) : fallback; }
  // Finite, and NaN or an infinity when it was written by json_number.
  [[nodiscard]] double number(const char* key);
  [[nodiscard]] std::int64_t integer(const char* key, std::int64_t low, std::int64_t high);
  [[nodiscard]] int int32(const char* key, int low = std::numeric_limits<int>::min(),
                          int high = std::numeric_limits<int>::max()) {
    return static_cast<int>(integer(key, low, high));
  }
  // A list; calls each(element, path) on every element.
  template <class Each>
  void list(const char* key, Each each) {
    const nlohmann::json& value = require(key);
    if (!error_.message.empty()) return;
    if (!value.is_array()) return fail(key, value, "a list");
    for (std::size_t i = 0; i < value.size(); ++i) each(value[i], fmt::format("{}[{}]", path_of(key), i));
  }

  // Keeps the first error. For checks that the caller makes.
  void fail(const char* key, const nlohmann::json& found, std::string_view allowed);
  void take(const Result<void>& result) {
    if (!result.ok() && error_.message.empty()) error_ = result.error();
  }
  void take(const Error& error) {
    if (error_.message.empty()) error_ = error;
  }
  // The value, or a default one while keeping the error.
  template <class T>
  T unwrap(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    take(result.error());
    return T{};
  }

  // The first mistake so far; unknown keys are none. For formats that others extend at will.
  [[nodiscard]] Result<void> first_mistake() const {
    if (error_.message.empty()) return {};
    return error_;
  }

  // The first mistake; a key that nobody asked for is one.
  [[nodiscard]] Result<void> finish();

 private:
  const nlohmann::json& value_;
  std::string path_;
  std::set<std::string> read_;
  Error error_{ErrorCode::kInvalidArgument, ""};
};

}  // namespace windlass
