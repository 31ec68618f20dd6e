// FieldReader reads typed fields from a JSON object; every error has the field's path.
//
// Private to controller/api. The first error is kept and later reads return their defaults, so a converter can read all fields
// and check once at the end. Does not own the JSON, which must outlive the reader.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/api/enum_names.h"
#include "planner/base/bound.h"
#include "planner/base/result.h"

namespace windlass::api {

class FieldReader {
 public:
  // `error` receives the first mistake. All readers of one object share it.
  FieldReader(const nlohmann::json& value, std::string path, std::optional<Error>* error);

  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }
  [[nodiscard]] FieldReader child(const char* key) const;                  // an object; empty when absent
  [[nodiscard]] std::vector<FieldReader> children(const char* key) const;  // a list of objects
  [[nodiscard]] std::string text(const char* key) const;                   // "" when absent
  [[nodiscard]] std::vector<std::string> texts(const char* key) const;
  [[nodiscard]] std::map<std::string, std::string> text_map(const char* key) const;
  [[nodiscard]] std::optional<std::string> json_text(const char* key) const;  // the value as JSON text
  [[nodiscard]] std::optional<bool> boolean(const char* key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const char* key) const;
  [[nodiscard]] std::optional<double> fraction(const char* key) const;     // integer or decimal string
  [[nodiscard]] std::optional<double> coefficient(const char* key) const;  // decimal string with any sign and exponent
  [[nodiscard]] std::optional<double> duration_s(const char* key) const;
  [[nodiscard]] std::optional<double> measured_duration_s(const char* key) const;  // also accepts "<10ms"; see bound()
  [[nodiscard]] Bound bound(const char* key) const;                                // from the text's first character
  [[nodiscard]] std::optional<double> quantity(const char* key) const;
  [[nodiscard]] std::optional<std::int64_t> bytes(const char* key) const;

  // An enumerator, by name.
  template <class Enum>
  [[nodiscard]] std::optional<Enum> one_of(const char* key) const {
    const std::string found = text(key);
    if (found.empty()) return std::nullopt;
    std::string names;
    for (std::size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
      if (found == kEnumNames<Enum>[i]) return static_cast<Enum>(i);
      names += (names.empty() ? "" : ", ") + std::string(kEnumNames<Enum>[i]);
    }
    complain(key, "must be one of " + names + " (got \"" + found + "\")");
    return std::nullopt;
  }

  // Converts the value with `read`, or null if the field is absent. Stores the error and returns a default on failure.
  template <class T>
  [[nodiscard]] T read_by(Result<T> (*read)(const nlohmann::json&), const char* key) const {
    const nlohmann::json* found = find(key);
    Result<T> result = read(found == nullptr ? nlohmann::json() : *found);
    if (result.ok()) return std::move(result).value();
    if (!error_->has_value()) *error_ = result.error();
    return T{};
  }

 private:
  const nlohmann::json* find(const char* key) const;  // nullptr when absent or null
  // Parses the text from position `from`.
  template <class T>
  [[nodiscard]] std::optional<T> parsed(const char* key, Result<T> (*parse)(std::string_view), std::size_t from = 0) const;
  void complain(const char* key, const std::string& what) const;

  const nlohmann::json* value_;
  std::string path_;
  std::optional<Error>* error_;
};

}  // namespace windlass::api
