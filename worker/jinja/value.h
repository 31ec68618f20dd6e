// Value: a value in a template, with Python's semantics: undefined, None, booleans, integers, floats, strings, lists, dicts,
// and callables. Lists and dicts are immutable (as in Jinja's immutable sandbox); only a namespace can change.
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

// An error in a template. Thrown only inside worker/jinja and caught at its boundary (template.cc).
struct TemplateError {
  std::string message;
  int line = 0;  // in the template; 0: not known here
};

class Value;
struct MacroNode;
struct Scope;

struct Undefined {
  std::string name;  // name of what is undefined, for messages
};
struct None {};

enum class Sequence {
  kList,
  kTuple,
  kGenerator,  // items that a filter yields one by one in Python: always true, without a length
};
struct List {
  std::vector<Value> items;
  Sequence kind = Sequence::kList;
  int height = 1;           // nesting of lists and dicts; set by Value, like weight
  std::int64_t weight = 1;  // number of values in it, with repetitions
};

struct Dict {
  std::vector<std::pair<Text, Value>> items;  // in order of insertion; keys are strings
  [[nodiscard]] const Value* find(std::string_view key) const;
  void set(const Text& key, Value value);  // only during construction
  int height = 1;
  std::int64_t weight = 1;
};

struct Namespace {
  Dict fields;  // the only thing that a template may change
};

struct Macro {
  const MacroNode* node = nullptr;
  std::weak_ptr<Scope> scope;  // the scope of its definition, which owns it
};

// A global function, or a method with its object.
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
  Value(List list);  // throw if it would be too deep or too heavy, or contain a callable or a namespace
  Value(Dict dict);
  Value(std::shared_ptr<Namespace> space) : value_(std::move(space)) {}
  Value(Macro macro) : value_(std::move(macro)) {}
  Value(Callable callable) : value_(std::move(callable)) {}
  Value(const char*) = delete;  // would convert to bool

  // Converts JSON from a request. All strings, including keys, are marked as input (text.h).
  [[nodiscard]] static Value of_input(const nlohmann::ordered_json& json);

  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&value_);
  }
  // Null for any other kind.
  [[nodiscard]] const Text* text() const;
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] Namespace* space() const;
  [[nodiscard]] const Undefined* undefined() const { return get<Undefined>(); }
  [[nodiscard]] bool none() const { return get<None>() != nullptr; }
  // A number in Python's sense: True is 1.
  [[nodiscard]] bool number() const {
    return get<bool>() != nullptr || get<std::int64_t>() != nullptr || get<double>() != nullptr;
  }
  [[nodiscard]] const std::int64_t* integer() const { return get<std::int64_t>(); }

 private:
  Variant value_;
};

// Charges `steps` to the current rendering on this thread; throws when its limit is reached. Every step, item and piece of text
// is charged, so that a hostile template ends.
void charge(std::int64_t steps);
// Starts a rendering with a full budget of steps.
void begin_work();

// Throws for values that no list, dict or namespace may contain, because they could contain themselves or hide their depth.
void check_item(const Value& item);

// "str", "list", ...: Python's names, for messages.
[[nodiscard]] const char* type_name(const Value& value);

[[nodiscard]] bool truth(const Value& value);
// str(): what {{ value }} prints.
[[nodiscard]] Text shown(const Value& value);
// repr(): as in a printed list.
[[nodiscard]] Text quoted(const Value& value);
// json.dumps(); indent < 0: on one line.
[[nodiscard]] Text to_json(const Value& value, int indent, bool sorted, std::string_view comma, std::string_view colon,
                           bool ascii);

[[nodiscard]] bool equal(const Value& a, const Value& b);
// a < b. Throws if Python defines no order for them.
[[nodiscard]] bool less(const Value& a, const Value& b);
[[nodiscard]] bool contains(const Value& container, const Value& item);

// The items of a for loop: items, a dict's keys, a string's characters, nothing for undefined. Throws for others.
[[nodiscard]] std::vector<Value> items_of(const Value& value);
[[nodiscard]] std::int64_t length_of(const Value& value);

// A number's value. REQUIRES: number().
[[nodiscard]] double as_double(const Value& value);
// The value of an integer or boolean. Throws for others, naming `what`.
[[nodiscard]] std::int64_t as_integer(const Value& value, std::string_view what);
// Throws if it is not a string, naming `what`.
[[nodiscard]] const Text& as_text(const Value& value, std::string_view what);

[[nodiscard]] std::string float_text(double number);  // repr() of a float

}  // namespace windlass::jinja
