// Describes a section of a YAML text once, as a table of its fields: key, member and rule. The table defines how to read it,
// the notes on defaults, which keys are unknown, and every error message (yaml_reader.h).
//
//   static const auto kSlo = yaml::section("slo", &Service::slo, yaml::map(
//       yaml::duration("timeToFirstToken", &Slo::ttft_s, {1e-6, 3600}).required(),
//       yaml::number("percentile", &Slo::percentile, {0, 100}).noted()));
//   kSlo.read(file, service, context);  // file: a YamlReader
//
// Fields are read in the table's order, and only the first error is reported. A missing field leaves its member unchanged.
// `context` is what conditions, hooks and checks need to know about other sections.
//
// write(json, object) writes the same fields as JSON, for tables without conditions. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"

namespace windlass::yaml {

// ---- rules: how a value is read, how its default is shown, and how it is written as JSON

struct Number {
  NumberRange range;
  double unit = 1;  // member = number in the text * unit

  [[nodiscard]] double read(YamlReader& reader, const char* key) const { return unit * reader.number(key, range); }
  [[nodiscard]] std::string shown(double value) const { return fmt::format("{:g}", value / unit); }
};

struct Whole {
  std::int64_t low, high;

  [[nodiscard]] std::int64_t read(YamlReader& reader, const char* key) const { return reader.whole(key, low, high); }
  [[nodiscard]] std::string shown(auto value) const { return fmt::format("{}", value); }
  [[nodiscard]] std::int64_t written(auto value) const { return std::llround(value); }
};

struct Duration {
  NumberRange range_s;

  [[nodiscard]] double read(YamlReader& reader, const char* key) const { return reader.duration_s(key, range_s); }
  [[nodiscard]] std::string shown(double value_s) const { return duration_text(value_s); }
};

struct Text {
  const char* what;
  std::size_t max_bytes = YamlReader::kMaxTextBytes;

  [[nodiscard]] std::string read(YamlReader& reader, const char* key) const { return reader.text(key, what, max_bytes); }
  [[nodiscard]] std::string written(const std::string& text) const { return text; }
};

struct Flag {
  [[nodiscard]] bool read(YamlReader& reader, const char* key) const { return reader.flag(key); }
  [[nodiscard]] std::string shown(bool value) const { return value ? "true" : "false"; }
};

// The words are in the order of the enumeration.
struct Choice {
  std::span<const char* const> words;

  [[nodiscard]] std::size_t read(YamlReader& reader, const char* key) const { return reader.choice(key, words); }
  [[nodiscard]] std::string shown(auto value) const { return words[static_cast<std::size_t>(value)]; }
  [[nodiscard]] std::string written(auto value) const { return shown(value); }
};

// ---- fields

namespace detail {

// The value held; null: an empty optional.
template <class T>
const T* held(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}
template <class T>
const T* held(const T& value) {
  return &value;
}
template <class T>
using Held = std::remove_cvref_t<decltype(*held(std::declval<const T&>()))>;  // for an optional, the type of its value
template <class T>
inline constexpr bool kIsOptional = !std::is_same_v<Held<T>, T>;

// Calls a condition, hook or check with as many arguments as it takes.
template <class Function, class Context, class... Arguments>
decltype(auto) call(const Function& function, Context& context, Arguments&... arguments) {
  if constexpr (std::is_invocable_v<const Function&, Arguments&..., Context&>) {
    return std::invoke(function, arguments..., context);
  } else if constexpr (std::is_invocable_v<const Function&, Arguments&...>) {
    return std::invoke(function, arguments...);
  } else {
    return std::invoke(function, context);
  }
}

// Where a section puts its fields: in a member, or in the same object as the fields around it.
struct Same {};
template <class Object>
Object& part_of(Object& object, Same) {
  return object;
}
template <class Object, class Owner, class Value>
auto& part_of(Object& object, Value Owner::*member) {
  if constexpr (kIsOptional<Value>) {
    return (object.*member).emplace();
  } else {
    return object.*member;
  }
}

inline const YamlValue& empty_map() {
  static const YamlValue kMap = [] {
    YamlValue map;
    map.kind = YamlValue::Kind::kMap;
    return map;
  }();
  return kMap;
}

template <class Object>
void take_line(Object& object, const YamlReader& reader) {
  if constexpr (requires { object.line = 1; }) object.line = reader.line();
}

}  // namespace detail

template <class Owner, class Value, class Rule>
struct Field {
  const char* key;
  Value Owner::*member;
  Rule rule;
  bool must_be_there = false;
  bool told = false;
  const char* told_as = nullptr;
  bool only_if_unusual = false;

  [[nodiscard]] Field required() const { return {key, member, rule, true}; }
  // Notes the default for people, in these words or as the rule prints it.
  [[nodiscard]] Field noted(const char* words = nullptr) const { return {key, member, rule, false, true, words}; }
  // Not written if equal to its default.
  [[nodiscard]] Field rare() const { return {key, member, rule, false, false, nullptr, true}; }

  void read(YamlReader& reader, auto& object, auto&) const {
    Value& value = object.*member;
    if (!must_be_there && reader.find(key) == nullptr) {
      if (told) reader.note(key, told_as != nullptr ? told_as : shown(value));
      return;
    }
    value = static_cast<Held>(rule.read(reader, key));
  }
  void write(auto& json, const auto& object) const {
    const Held* value = detail::held(object.*member);
    if (value != nullptr && !(only_if_unusual && *value == Owner{}.*member)) json[key] = rule.written(*value);
  }
  void refuse(YamlReader& reader, const char* belongs_to) const { reader.belongs(key, belongs_to); }

 private:
  using Held = detail::Held<Value>;

  [[nodiscard]] std::string shown(const Value& value) const {
    if constexpr (!requires(const Held& held) { rule.shown(held); }) {
      return "";  // a rule that needs its own words for a default
    } else {
      return rule.shown(*detail::held(value));
    }
  }
};

template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Number> number(const char* key, Value Owner::*member, NumberRange range, double unit = 1) {
  return {key, member, {range, unit}};
}
template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Whole> whole(const char* key, Value Owner::*member, std::int64_t low, std::int64_t high) {
  return {key, member, {low, high}};
}
template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Duration> duration(const char* key, Value Owner::*member, NumberRange range_s) {
  return {key, member, {range_s}};
}
template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Text> text(const char* key, Value Owner::*member, const char* what,
                                             std::size_t max_bytes = YamlReader::kMaxTextBytes) {
  return {key, member, {what, max_bytes}};
}
template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Flag> flag(const char* key, Value Owner::*member) {
  return {key, member, {}};
}
// Borrows the words.
template <class Owner, class Value>
[[nodiscard]] Field<Owner, Value, Choice> choice(const char* key, Value Owner::*member, std::span<const char* const> words) {
  return {key, member, {words}};
}

struct Nothing {
  void operator()(auto&, const auto&) const {}
};

// A field with custom code: function(reader, object), function(reader, context) or function(reader, object, context). Written
// by writer(json, object).
template <class Function, class Writer>
struct Hook {
  Function function;
  Writer writer;

  template <class Object, class Context>
  void read(YamlReader& reader, Object& object, Context& context) const {
    if constexpr (std::is_invocable_v<const Function&, YamlReader&, Context&>) {
      function(reader, context);
    } else {
      detail::call(function, context, reader, object);
    }
  }
  void write(auto& json, const auto& object) const { writer(json, object); }
  void refuse(YamlReader&, const char*) const {}
};

template <class Function, class Writer = Nothing>
[[nodiscard]] Hook<Function, Writer> hook(Function function, Writer writer = {}) {
  return {function, writer};
}

// A default other than that of the type.
template <class Owner, class Value>
[[nodiscard]] auto preset(Value Owner::*member, Value value) {
  return hook([=](YamlReader&, Owner& object) { object.*member = value; });
}

// ---- groups of fields

// The fields of one YAML map.
template <class Check, class... Fields>
struct Map {
  std::tuple<Fields...> fields;
  Check check;

  // check(reader, object) or check(reader, object, context) runs last, on a map without errors.
  template <class Other>
  [[nodiscard]] Map<Other, Fields...> checked_by(Other other) const {
    return {fields, other};
  }

  void read(YamlReader& reader, auto& object, auto& context) const {
    std::apply([&](const Fields&... field) { (field.read(reader, object, context), ...); }, fields);
  }
  void write(auto& json, const auto& object) const {
    std::apply([&](const Fields&... field) { (field.write(json, object), ...); }, fields);
  }
  void refuse(YamlReader& reader, const char* belongs_to) const {
    std::apply([&](const Fields&... field) { (field.refuse(reader, belongs_to), ...); }, fields);
  }
  void read_all(YamlReader& reader, auto& object, auto& context) const {
    read(reader, object, context);
    reader.finish();
    if (reader.ok()) detail::call(check, context, reader, object);
  }
};

template <class... Fields>
[[nodiscard]] auto map(Fields... fields) {
  return Map<Nothing, Fields...>{{fields...}, {}};
}

// The fields of a member, in the same YAML map.
template <class Owner, class Value, class Inner>
struct Part {
  Value Owner::*member;
  Inner inner;

  void read(YamlReader& reader, auto& object, auto& context) const {
    inner.read(reader, detail::part_of(object, member), context);
  }
  void write(auto& json, const auto& object) const { inner.write(json, object.*member); }
  void refuse(YamlReader& reader, const char* belongs_to) const { inner.refuse(reader, belongs_to); }
};

template <class Owner, class Value, class... Fields>
[[nodiscard]] auto part(Value Owner::*member, Fields... fields) {
  return Part<Owner, Value, decltype(map(fields...))>{member, map(fields...)};
}

// Fields that exist only where a condition of the object or the context holds. Otherwise their keys are unknown or, with
// `belongs_to`, refused with a message that says what they belong to.
template <class Condition, class Inner>
struct When {
  Condition condition;
  const char* belongs_to;
  Inner inner;

  void read(YamlReader& reader, auto& object, auto& context) const {
    if (detail::call(condition, context, object)) {
      inner.read(reader, object, context);
    } else if (belongs_to != nullptr) {
      inner.refuse(reader, belongs_to);
    }
  }
  void refuse(YamlReader& reader, const char* others) const { inner.refuse(reader, others); }
};

template <class Condition, class... Fields>
[[nodiscard]] auto when(Condition condition, Fields... fields) {
  return When<Condition, decltype(map(fields...))>{condition, nullptr, map(fields...)};
}
template <class Condition, class... Fields>
[[nodiscard]] auto only(const char* belongs_to, Condition condition, Fields... fields) {
  return When<Condition, decltype(map(fields...))>{condition, belongs_to, map(fields...)};
}

// ---- maps and lists under a key

template <class Member, class Inner>
struct Section {
  const char* key;
  Member member;
  Inner inner;
  const char* required_as = nullptr;
  const char* told_as = nullptr;
  bool or_its_defaults = false;

  // "a map with name and gpus".
  [[nodiscard]] Section required(const char* what) const { return {key, member, inner, what}; }
  [[nodiscard]] Section noted(const char* words) const { return {key, member, inner, nullptr, words}; }
  // A missing map counts as an empty one, and the defaults of its fields are noted.
  [[nodiscard]] Section or_defaults() const { return {key, member, inner, nullptr, nullptr, true}; }

  void read(YamlReader& reader, auto& object, auto& context) const {
    const YamlValue* found = required_as != nullptr ? reader.require(key, required_as) : reader.find(key);
    if (found == nullptr && told_as != nullptr) reader.note(key, told_as);
    if (found == nullptr && !or_its_defaults) return;
    YamlReader fields = reader.inside(key, found != nullptr ? *found : detail::empty_map());
    auto& part = detail::part_of(object, member);
    if constexpr (!std::is_same_v<Member, detail::Same>) detail::take_line(part, fields);
    inner.read_all(fields, part, context);
  }
  void write(auto& json, const auto& object) const {
    if constexpr (std::is_same_v<Member, detail::Same>) {
      inner.write(json[key], object);
    } else if (const auto* part = detail::held(object.*member)) {
      inner.write(json[key], *part);
    }
  }
  void refuse(YamlReader& reader, const char* belongs_to) const { reader.belongs(key, belongs_to); }
};

// A map that fills a member.
template <class Owner, class Value, class Inner>
[[nodiscard]] Section<Value Owner::*, Inner> section(const char* key, Value Owner::*member, Inner inner) {
  return {key, member, inner};
}
// A map that fills the same object as the fields around it.
template <class Inner>
[[nodiscard]] Section<detail::Same, Inner> section(const char* key, Inner inner) {
  return {key, {}, inner};
}

// A list of 1 to `most` maps that fills a vector. Elements are added one after the other.
template <class Owner, class Element, class Inner>
struct List {
  const char* key;
  std::vector<Element> Owner::*member;
  std::size_t most;
  const char* of;  // "maps with name and gpus"
  Inner inner;
  bool must_be_there = false;

  [[nodiscard]] List required() const { return {key, member, most, of, inner, true}; }

  void read(YamlReader& reader, auto& object, auto& context) const {
    const YamlValue* list = reader.list(key, 1, most, of, must_be_there);
    if (list == nullptr) return;
    (object.*member).reserve(list->items.size());
    for (std::size_t i = 0; i < list->items.size() && reader.ok(); ++i) {
      YamlReader fields = reader.item(key, *list, i);
      Element& element = (object.*member).emplace_back();
      detail::take_line(element, fields);
      inner.read_all(fields, element, context);
    }
  }
  void write(auto& json, const auto& object) const {
    json[key] = json.array();
    for (const Element& element : object.*member) inner.write(json[key].emplace_back(), element);
  }
  void refuse(YamlReader& reader, const char* belongs_to) const { reader.belongs(key, belongs_to); }
};

template <class Owner, class Element, class Inner>
[[nodiscard]] List<Owner, Element, Inner> list(const char* key, std::vector<Element> Owner::*member, std::size_t most,
                                               const char* of, Inner inner) {
  return {key, member, most, of, inner};
}

}  // namespace windlass::yaml
