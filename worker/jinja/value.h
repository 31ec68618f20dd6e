// Value: what a template computes with, as Python has it: undefined, None, booleans, integers, floats, strings, lists, dicts,
// and what can be called. Lists and dicts never change once made (as in Jinja's immutable sandbox); only a namespace does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "worker/jinja/text.h"

namespace windlass::jinja {

// What a template asked for and cannot have. Thrown within this room alone, caught at its edge (template.cc).
struct TemplateError {
  std::string message;
  int line = 0;  // of the template; 0: not known here
};

class Value;
struct MacroNode;
struct Scope;

struct Undefined {
  std::string name;  // of what is not there, for messages
};
struct None {};

enum class Sequence {
  kList,
  kTuple,
  kGenerator,  // what a filter yields one by one in Python: always true, without a length
};
struct List {
  std::vector<Value> items;
  Sequence kind = Sequence::kList;
  int height = 1;           // of lists and dicts within one another; set by Value, as is
  std::int64_t weight = 1;  // how many values stand in it, however often one does
};

struct Dict {
  std::vector<std::pair<Text, Value>> items;  // in the order in which they came; keys are strings
  [[nodiscard]] const Value* find(std::string_view key) const;
  void set(const Text& key, Value value);  // while it is made
  int height = 1;
  std::int64_t weight = 1;
};

struct Namespace {
  Dict fields;  // the one thing that a template may change
};

struct Macro {
  const MacroNode* node = nullptr;
  std::weak_ptr<Scope> scope;  // in which it was defined, and which holds it
};

// A global function, or a method with what it belongs to.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;  // null: a function
};

class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, Macro, Callable>;
  Value() = default;
  Value(Undefined undefined) : value_(std::move(undefined)) {}  // NOLINT(google-explicit-constructor), and those below
  Value(None none) : value_(none) {}
  Value(bool truth) : value_(truth) {}
  Value(std::int64_t integer) : value_(integer) {}
  Value(double number) : value_(number) {}
  Value(Text text) : value_(std::make_shared<const Text>(std::move(text))) {}
  Value(List list);  // throw where it would be too deep or too heavy, or hold what can be called or changed
  Value(Dict dict);
  Value(std::shared_ptr<Namespace> space) : value_(std::move(space)) {}
  Value(Macro macro) : value_(std::move(macro)) {}
  Value(Callable callable) : value_(std::move(callable)) {}
  Value(const char*) = delete;  // would be a truth

  // Strings in it, keys too, are of the input.
  [[nodiscard]] static Value of_input(const nlohmann::ordered_json& json);

  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&value_);
  }
  // Null where it is something else.
  [[nodiscard]] const Text* text() const;
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] Namespace* space() const;
  [[nodiscard]] const Undefined* undefined() const { return get<Undefined>(); }
  [[nodiscard]] bool none() const { return get<None>() != nullptr; }
  // A number as Python takes one: True is 1.
  [[nodiscard]] bool number() const {
    return get<bool>() != nullptr || get<std::int64_t>() != nullptr || get<double>() != nullptr;
  }
  [[nodiscard]] const std::int64_t* integer() const { return get<std::int64_t>(); }

 private:
  Variant value_;
};

// "str", "list", ...: Python's names, for messages.
// Counts work against what one rendering may take, on this thread; throws where it is used up. Every step, item and piece of
// text is charged for, so that a hostile template ends.
void charge(std::int64_t steps);
// Of a rendering: gives it its steps.
void begin_work();

// Throws for what no list, dict or namespace may hold: it could hold itself, or hide how deep it is.
void check_item(const Value& item);

[[nodiscard]] const char* type_name(const Value& value);

[[nodiscard]] bool truth(const Value& value);
// str(): what {{ value }} prints.
[[nodiscard]] Text shown(const Value& value);
// repr(), as it stands within a printed list.
[[nodiscard]] Text quoted(const Value& value);
// json.dumps(); indent < 0: on one line.
[[nodiscard]] Text to_json(const Value& value, int indent, bool sorted, std::string_view comma, std::string_view colon,
                           bool ascii);

[[nodiscard]] bool equal(const Value& a, const Value& b);
// a < b. Throws where Python has no order for them.
[[nodiscard]] bool less(const Value& a, const Value& b);
[[nodiscard]] bool contains(const Value& container, const Value& item);

// What a for loop goes through: items, a dict's keys, a string's characters, nothing for undefined. Throws for others.
[[nodiscard]] std::vector<Value> items_of(const Value& value);
[[nodiscard]] std::int64_t length_of(const Value& value);

// A number's value. REQUIRES: number().
[[nodiscard]] double as_double(const Value& value);
// An integer's or boolean's. Throws, with what it was wanted for, for others.
[[nodiscard]] std::int64_t as_integer(const Value& value, std::string_view what);
// Throws, with what it was wanted for, for what is no string.
[[nodiscard]] const Text& as_text(const Value& value, std::string_view what);

[[nodiscard]] std::string float_text(double number);  // repr() of a float

}  // namespace windlass::jinja
