// FieldReader: picks typed fields out of a JSON object, with the field's path in every complaint.
//
// Private to controller/api. The first mistake is kept and later reads return their default, so that a converter reads like the
// list of its fields and checks once at the end. Not owning: the JSON must outlive the reader.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/api/meta.h"
#include "planner/base/bound.h"
#include "planner/base/result.h"

namespace windlass::api {

class FieldReader {
 public:
  // error collects the first mistake; it is shared by the readers of one object.
  FieldReader(const nlohmann::json& value, std::string path, std::optional<Error>* error);

  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }
  [[nodiscard]] FieldReader child(const char* key) const;                  // of an object; empty when absent
  [[nodiscard]] std::vector<FieldReader> children(const char* key) const;  // of a list of objects
  [[nodiscard]] std::string text(const char* key) const;                   // "" when absent
  [[nodiscard]] std::vector<std::string> texts(const char* key) const;
  [[nodiscard]] std::map<std::string, std::string> text_map(const char* key) const;
  [[nodiscard]] std::string json_text(const char* key) const;  // the value as JSON text; "" when absent
  [[nodiscard]] bool boolean(const char* key) const;           // false when absent
  [[nodiscard]] std::optional<std::int64_t> integer(const char* key) const;
  [[nodiscard]] std::optional<double> fraction(const char* key) const;     // integer or decimal string
  [[nodiscard]] std::optional<double> coefficient(const char* key) const;  // decimal string of any sign and exponent
  [[nodiscard]] std::optional<double> duration_s(const char* key) const;
  [[nodiscard]] std::optional<double> measured_duration_s(const char* key) const;  // "<10ms" too; bound() says which
  [[nodiscard]] Bound bound(const char* key) const;                                // by the sign that the text begins with
  [[nodiscard]] std::optional<double> quantity(const char* key) const;
  [[nodiscard]] std::optional<std::int64_t> bytes(const char* key) const;

  // One of the enumerators, by its to_string.
  template <class Enum>
  [[nodiscard]] std::optional<Enum> one_of(const char* key, std::initializer_list<Enum> allowed) const {
    const std::string found = text(key);
    if (found.empty()) return std::nullopt;
    std::string names;
    for (const Enum value : allowed) {
      if (found == to_string(value)) return value;
      names += (names.empty() ? "" : ", ") + std::string(to_string(value));
    }
    complain(key, "found \"" + found + "\", allowed are " + names);
    return std::nullopt;
  }

 private:
  const nlohmann::json* find(const char* key) const;  // nullptr when absent or null
  [[nodiscard]] std::optional<double> duration_s(const char* key, std::size_t from) const;
  void complain(const char* key, const std::string& what) const;

  const nlohmann::json* value_;
  std::string path_;
  std::optional<Error>* error_;
};

[[nodiscard]] ObjectMeta read_meta(const FieldReader& in);
[[nodiscard]] std::vector<Condition> read_conditions(const FieldReader& in);  // of a status

}  // namespace windlass::api
