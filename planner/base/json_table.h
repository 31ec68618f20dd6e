// Describes the JSON of a type once, as a table of its fields. The table defines how to write it, how to read it, and every
// error message.
//
//   constexpr auto json_fields(JsonType<Slo>) {  // in the namespace of Slo
//     return json_object(field("ttftS", &Slo::ttft_s), rare("windowS", &Slo::window_s));
//   }
//   write_fields(json, slo);                                         // json: an object, nlohmann::json or ordered_json
//   Result<Slo> slo = read_json<Slo>(value, "services[0].slo");
//
// Fields are written and read in the table's order; reading reports the first error. A member may be a string, a bool, a double
// (as json_number writes it), an integer, an enumeration (json_values(JsonType<Enum>) lists its values, to_string() names
// them), a std::vector of strings or of types with a table, a std::array of doubles, a type with a table, or a std::optional of
// these, which is omitted when empty. Use hook() for a member that fits no rule. json_object() also accepts other kinds of
// fields that have their own reader, for read_fields() (controller/api/json.cc). Pure.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"
#include "planner/base/result.h"

namespace windlass {

// Tag for json_fields() and json_values(), which live in the namespace of the type.
template <class T>
struct JsonType {};

// A rule for a number, with its description for errors: "greater than 0".
struct JsonLimit {
  bool (*holds)(double);
  const char* allowed;

  void check(JsonReader& reader, const char* key, double value) const {
    if (!holds(value)) reader.fail(key, json_number(value), allowed);
  }
};

namespace detail {

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsArray = false;
template <class T, std::size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;
template <class T>
inline constexpr bool kIsTextMap = std::is_same_v<T, std::map<std::string, std::string>>;

// The range of an integer; unused for other types.
template <class T>
inline constexpr std::int64_t kLowest = std::is_same_v<T, std::int64_t> ? INT64_MIN : INT32_MIN;
template <class T>
inline constexpr std::int64_t kHighest = std::is_same_v<T, std::int64_t> ? INT64_MAX : INT32_MAX;

}  // namespace detail

// ---- values

template <class Json, class T>
void write_fields(Json& object, const T& value);
template <class Reader, class T>
void read_fields(Reader& reader, T& value);
template <class T>
[[nodiscard]] Result<T> read_json(const nlohmann::json& value, const std::string& path);

template <class Json, class T>
void write_value(Json& json, const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    json = std::isfinite(value) ? Json(value) : Json(json_number(value).template get<std::string>());
  } else if constexpr (std::is_enum_v<T>) {
    json = to_string(value);
  } else if constexpr (detail::kIsVector<T> || detail::kIsArray<T>) {
    json = Json::array();
    for (const auto& element : value) write_value(json.emplace_back(), element);
  } else if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string> && !detail::kIsTextMap<T>) {
    json = Json::object();
    write_fields(json, value);
  } else {
    json = value;
  }
}

// Reads an enumeration by name. A type whose error should list its values differently overloads this in its own namespace.
template <class Enum>
[[nodiscard]] Enum read_enum(JsonReader& reader, const char* key, JsonType<Enum> type) {
  const std::string text = reader.string(key);
  std::string allowed;
  for (const Enum value : json_values(type)) {
    if (text == to_string(value)) return value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(value));
  }
  reader.fail(key, text, "one of " + allowed);
  return {};
}

// `low` and `high` apply to integers only.
template <class T>
void read_value(JsonReader& reader, const char* key, T& value, std::int64_t low = detail::kLowest<T>,
                std::int64_t high = detail::kHighest<T>) {
  if constexpr (detail::kIsOptional<T>) {
    read_value(reader, key, value.emplace(), low, high);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = reader.string(key);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = reader.boolean(key);
  } else if constexpr (std::is_floating_point_v<T>) {
    value = reader.number(key);
  } else if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(reader.integer(key, low, high));
  } else if constexpr (std::is_enum_v<T>) {
    value = read_enum(reader, key, JsonType<T>{});
  } else if constexpr (detail::kIsVector<T>) {
    reader.list(key, [&](const nlohmann::json& element, const std::string& path) {
      if constexpr (std::is_same_v<typename T::value_type, std::string>) {
        if (!element.is_string()) return reader.fail(key, element, "a list of strings");
        value.push_back(element.get<std::string>());
      } else {
        value.push_back(reader.unwrap(read_json<typename T::value_type>(element, path)));
      }
    });
  } else if constexpr (detail::kIsArray<T>) {
    const nlohmann::json& list = reader.require(key);
    if (!list.is_array() || list.size() != value.size()) {
      return reader.fail(key, list, fmt::format("a list of {} numbers", value.size()));
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!list[i].is_number()) return reader.fail(key, list[i], "a number");
      value[i] = list[i].template get<double>();
    }
  } else {
    value = reader.unwrap(read_json<T>(reader.require(key), reader.path_of(key)));
  }
}

// ---- the parts of a table

template <class Object, class Value>
struct JsonField {
  const char* key;
  Value Object::*member;
  std::int64_t low;
  std::int64_t high;
  bool may_be_missing = detail::kIsOptional<Value>;
  bool null_is_missing = false;
  bool only_if_unusual = false;
  const JsonLimit* limit = nullptr;

  // null counts as missing.
  [[nodiscard]] constexpr JsonField or_null() const {
    JsonField changed = *this;
    changed.null_is_missing = true;
    return changed;
  }
  [[nodiscard]] constexpr JsonField within(const JsonLimit& rule) const {
    JsonField changed = *this;
    changed.limit = &rule;
    return changed;
  }

  template <class Json>
  void write(Json& json, const Object& object) const {
    const Value& value = object.*member;
    if (only_if_unusual) {
      static const Object usual{};
      if (value == usual.*member) return;
    }
    if constexpr (detail::kIsOptional<Value>) {
      if (value) write_value(json[key], *value);
    } else {
      write_value(json[key], value);
    }
  }

  void read(JsonReader& reader, Object& object) const {
    if (may_be_missing && (null_is_missing ? !reader.given(key) : reader.find(key) == nullptr)) return;
    Value& value = object.*member;
    read_value(reader, key, value, low, high);
    if constexpr (std::is_floating_point_v<Value>) {
      if (limit != nullptr) limit->check(reader, key, value);
    }
  }
};

// Required, unless it is a std::optional. An integer must be in low..high.
template <class Object, class Value>
[[nodiscard]] constexpr JsonField<Object, Value> field(const char* key, Value Object::*member,
                                                       std::int64_t low = detail::kLowest<Value>,
                                                       std::int64_t high = detail::kHighest<Value>) {
  return {key, member, low, high};
}

// Always written. May be missing when read (older texts); then it keeps its default.
template <class Object, class Value>
[[nodiscard]] constexpr JsonField<Object, Value> added(const char* key, Value Object::*member,
                                                       std::int64_t low = detail::kLowest<Value>,
                                                       std::int64_t high = detail::kHighest<Value>) {
  return {key, member, low, high, true};
}

// Omitted if equal to its default.
template <class Object, class Value>
[[nodiscard]] constexpr JsonField<Object, Value> rare(const char* key, Value Object::*member,
                                                      std::int64_t low = detail::kLowest<Value>,
                                                      std::int64_t high = detail::kHighest<Value>) {
  return {key, member, low, high, true, false, true};
}

// Custom code: write(json, object) and read(JsonReader&, object).
template <class Write, class Read>
struct JsonHook {
  Write write;
  Read read;
};

template <class Write, class Read>
[[nodiscard]] constexpr JsonHook<Write, Read> hook(Write write, Read read) {
  return {write, read};
}

// Checks a field further up in the table, after the fields in between have been read.
template <class Object>
[[nodiscard]] constexpr auto limit(const char* key, double Object::*member, const JsonLimit& rule) {
  return hook([](auto&, const Object&) {},
              [=, rule = &rule](JsonReader& reader, const Object& object) { rule->check(reader, key, object.*member); });
}

// The fields of a member, in the same JSON object.
template <class Object, class Part>
[[nodiscard]] constexpr auto part(Part Object::*member) {
  return hook([=](auto& json, const Object& object) { write_fields(json, object.*member); },
              [=](JsonReader& reader, Object& object) { read_fields(reader, object.*member); });
}

// ---- tables

inline constexpr auto kNothingToCheck = [](const auto&, const std::string&) { return Result<void>(); };

template <class Check, class... Fields>
struct JsonObject {
  std::tuple<Fields...> fields;
  Check check;
  bool open = false;

  // For formats that others may extend: unknown keys are allowed.
  [[nodiscard]] constexpr JsonObject passing_over_unknown_keys() const { return {fields, check, true}; }
  // other(object, path) returns Result<void> and runs last, once every field has been read.
  template <class Other>
  [[nodiscard]] constexpr JsonObject<Other, Fields...> checked_by(Other other) const {
    return {fields, other, open};
  }

  template <class Json, class Object>
  void write(Json& json, const Object& object) const {
    std::apply([&](const Fields&... field) { (field.write(json, object), ...); }, fields);
  }
  template <class Reader, class Object>
  void read(Reader& reader, Object& object) const {
    std::apply([&](const Fields&... field) { (field.read(reader, object), ...); }, fields);
  }
};

template <class... Fields>
[[nodiscard]] constexpr auto json_object(Fields... fields) {
  return JsonObject<decltype(kNothingToCheck), Fields...>{{fields...}, kNothingToCheck};
}

// Fields that exist only where `condition`, a field further up in the table, is true.
template <class Object, class... Fields>
[[nodiscard]] constexpr auto when(bool Object::*condition, Fields... fields) {
  const auto write = [=](auto& json, const Object& object) {
    if (object.*condition) (fields.write(json, object), ...);
  };
  const auto read = [=](JsonReader& reader, Object& object) {
    if (object.*condition) (fields.read(reader, object), ...);
  };
  return hook(write, read);
}

template <class Json, class T>
void write_fields(Json& object, const T& value) {
  static constexpr auto kTable = json_fields(JsonType<T>{});
  kTable.write(object, value);
}

template <class Reader, class T>
void read_fields(Reader& reader, T& value) {
  static constexpr auto kTable = json_fields(JsonType<T>{});
  kTable.read(reader, value);
}

template <class T>
Result<T> read_json(const nlohmann::json& value, const std::string& path) {
  static constexpr auto kTable = json_fields(JsonType<T>{});
  JsonReader reader(value, path);
  T object{};
  kTable.read(reader, object);
  WINDLASS_RETURN_IF_ERROR(kTable.open ? reader.first_mistake() : reader.finish());
  WINDLASS_RETURN_IF_ERROR(kTable.check(object, path));
  return object;
}

}  // namespace windlass
