// Implements builtins.h: filters, tests, functions, attributes and items. String methods are in text_methods.cc.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>

#include <fmt/core.h>

#include "worker/jinja/builtins.h"

namespace windlass::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

Text plain_text(std::string_view text) { return Text::of_template(text); }

Value generated(std::vector<Value> items) { return List{std::move(items), Sequence::kGenerator}; }

// A path of attributes and indices: "function.name", 0.
Value path_of(const Value& value, const Value& path) {
  if (path.text() == nullptr) return item_of(value, path);
  Value at = value;
  const std::string& names = path.text()->bytes();
  for (std::size_t from = 0; from <= names.size();) {
    const std::size_t end = std::min(names.find('.', from), names.size());
    const std::string name = names.substr(from, end - from);
    std::int64_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = !name.empty() && read.ec == std::errc() && read.ptr == name.data() + name.size();
    at = item_of(at, number ? Value(index) : Value(plain_text(name)));
    from = end + 1;
  }
  return at;
}

// The key by which sort, unique, min and max compare.
Value key_of(const Value& value, const Value* attribute, bool case_sensitive) {
  Value key = attribute == nullptr || attribute->none() ? value : path_of(value, *attribute);
  if (case_sensitive || key.text() == nullptr) return key;
  return lower(*key.text());
}

Value rounded(const Value& value, const Arguments& given) {
  const auto bound = bind("round", given, {"precision", "method"});
  const std::int64_t digits = bound[0] == nullptr ? 0 : as_integer(*bound[0], "round: precision");
  const std::string method = bound[1] == nullptr ? "common" : as_text(*bound[1], "round: method").bytes();
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double number = as_double(value);
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  if (method != "common") throw TemplateError{fmt::format("round: method: must be common, ceil or floor (got '{}')", method)};
  if (value.get<double>() == nullptr && digits >= 0) return as_integer(value, "round");
  if (digits <= 0) return std::nearbyint(number * scale) / scale;
  // Rounds the exact decimal digits, like Python: 2.675 is slightly less than that.
  const std::string text = fmt::format("{:.{}f}", number, static_cast<int>(std::min<std::int64_t>(digits, 300)));
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

Value to_integer(const Value& value, const Arguments& given) {
  const auto bound = bind("int", given, {"default", "base"});
  const Value fallback = bound[0] == nullptr ? Value(std::int64_t{0}) : *bound[0];
  const int base = bound[1] == nullptr ? 10 : static_cast<int>(as_integer(*bound[1], "int: base"));
  const auto of_double = [&](double number) -> Value {
    if (!std::isfinite(number) || std::abs(number) >= 9.2e18) return fallback;
    return static_cast<std::int64_t>(std::trunc(number));
  };
  if (const auto* number = value.get<double>()) return of_double(*number);
  if (value.number() || value.undefined() != nullptr) return as_integer(value, "int");
  if (value.text() == nullptr || base < 2 || base > 36) return fallback;
  std::string text = stripped(*value.text(), nullptr).bytes();
  std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  std::int64_t integer = 0;
  const char* end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, integer, base); read.ec == std::errc() && read.ptr == end)
    return integer;
  double number = 0;
  if (const auto read = std::from_chars(text.data(), end, number); read.ec == std::errc() && read.ptr == end)
    return of_double(number);
  return fallback;
}

Value to_float(const Value& value, const Arguments& given) {
  const Value* fallback = bind("float", given, {"default"})[0];
  if (value.number() || value.undefined() != nullptr) return as_double(value);
  if (value.text() != nullptr) {
    std::string text = stripped(*value.text(), nullptr).bytes();
    if (text.starts_with('+')) text.erase(0, 1);
    double number = 0;
    const char* end = text.data() + text.size();
    if (const auto read = std::from_chars(text.data(), end, number); read.ec == std::errc() && read.ptr == end) return number;
  }
  return fallback == nullptr ? Value(0.0) : *fallback;
}

Value indented(const Value& value, const Arguments& given) {
  const auto bound = bind("indent", given, {"width", "first", "blank"});
  Text step = plain_text("    ");
  if (bound[0] != nullptr) {
    step = bound[0]->text() != nullptr
               ? *bound[0]->text()
               : plain_text(std::string(
                     static_cast<std::size_t>(std::clamp<std::int64_t>(as_integer(*bound[0], "indent"), 0, 1000)), ' '));
  }
  const bool blank = bound[2] != nullptr && truth(*bound[2]);
  Text all = as_text(value, "indent");
  all += plain_text("\n");
  const std::vector<Text> lines = lines_of(all, false);
  Text out;
  if (bound[1] != nullptr && truth(*bound[1])) out += step;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += plain_text("\n");
    if (i > 0 && (blank || !lines[i].empty())) out += step;
    out += lines[i];
  }
  return out;
}

Value json_filter(const Value& value, const Arguments& given) {
  const auto bound = bind("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  const int indent = bound[1] == nullptr || bound[1]->none()
                         ? -1
                         : static_cast<int>(std::clamp<std::int64_t>(as_integer(*bound[1], "tojson: indent"), 0, 100));
  std::string comma = indent < 0 ? ", " : ",";
  std::string colon = ": ";
  if (bound[2] != nullptr && !bound[2]->none()) {
    const List* both = bound[2]->list();
    if (both == nullptr || both->items.size() != 2) throw TemplateError{"tojson: separators: must be two strings"};
    comma = as_text(both->items[0], "tojson: separators").bytes();
    colon = as_text(both->items[1], "tojson: separators").bytes();
  }
  const bool sorted = bound[3] != nullptr && truth(*bound[3]);
  return to_json(value, indent, sorted, comma, colon, bound[0] != nullptr && truth(*bound[0]));
}

Value joined_items(const Value& value, const Arguments& given) {
  const auto bound = bind("join", given, {"d", "attribute"});
  const Text between = bound[0] == nullptr ? Text() : shown(*bound[0]);
  Text out;
  bool first = true;
  for (const Value& item : items_of(value)) {
    if (!std::exchange(first, false)) out += between;
    out += shown(bound[1] == nullptr || bound[1]->none() ? item : path_of(item, *bound[1]));
  }
  return out;
}

Value sorted(const Value& value, const Arguments& given) {
  const auto bound = bind("sort", given, {"reverse", "case_sensitive", "attribute"});
  const bool reverse = bound[0] != nullptr && truth(*bound[0]);
  const bool case_sensitive = bound[1] != nullptr && truth(*bound[1]);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items_of(value)) {
    Value key = key_of(item, bound[2], case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (equal(a.first, b.first)) return false;  // e.g. two None, which have no order
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  List list;
  for (auto& [key, item] : keyed) list.items.push_back(std::move(item));
  return list;
}

Value sorted_dict(const Value& value, const Arguments& given) {
  const auto bound = bind("dictsort", given, {"case_sensitive", "by", "reverse"});
  if (value.dict() == nullptr) throw TemplateError{fmt::format("dictsort: must be a dict (got {})", type_name(value))};
  const bool case_sensitive = bound[0] != nullptr && truth(*bound[0]);
  const bool by_value = bound[1] != nullptr && as_text(*bound[1], "dictsort: by").bytes() == "value";
  const bool reverse = bound[2] != nullptr && truth(*bound[2]);
  auto items = value.dict()->items;
  const auto key = [&](const auto& item) {
    return key_of(by_value ? item.second : Value(item.first), nullptr, case_sensitive);
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const auto& a, const auto& b) { return reverse ? less(key(b), key(a)) : less(key(a), key(b)); });
  List list;
  for (auto& [name, item] : items) list.items.emplace_back(List{{name, item}, Sequence::kTuple});
  return list;
}

Value unique(const Value& value, const Arguments& given) {
  const auto bound = bind("unique", given, {"case_sensitive", "attribute"});
  std::vector<Value> seen, kept;
  for (Value& item : items_of(value)) {
    Value key = key_of(item, bound[1], bound[0] != nullptr && truth(*bound[0]));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); })) continue;
    seen.push_back(std::move(key));
    kept.push_back(std::move(item));
  }
  return generated(std::move(kept));
}

Value extreme(const Value& value, const Arguments& given, bool largest) {
  const auto bound = bind(largest ? "max" : "min", given, {"case_sensitive", "attribute"});
  std::optional<std::pair<Value, Value>> best;
  for (Value& item : items_of(value)) {
    Value key = key_of(item, bound[1], bound[0] != nullptr && truth(*bound[0]));
    if (!best || (largest ? less(best->first, key) : less(key, best->first))) best.emplace(std::move(key), std::move(item));
  }
  return best ? best->second : Value(Undefined{"an item of an empty sequence"});
}

Value sum_of(const Value& value, const Arguments& given) {
  const auto bound = bind("sum", given, {"attribute", "start"});
  bool whole = true;
  double total = 0;
  std::int64_t integer = 0;
  const auto add = [&](const Value& item) {
    if (!item.number()) throw TemplateError{fmt::format("sum: items: must be numbers (got {})", type_name(item))};
    total += as_double(item);
    if (item.get<double>() != nullptr) {
      whole = false;
    } else if (__builtin_add_overflow(integer, as_integer(item, "sum"), &integer)) {
      throw TemplateError{"sum: the result has more than 64 bits"};
    }
  };
  if (bound[1] != nullptr) add(*bound[1]);
  for (const Value& item : items_of(value)) add(bound[0] == nullptr || bound[0]->none() ? item : path_of(item, *bound[0]));
  return whole ? Value(integer) : Value(total);
}

Arguments from(const Arguments& given, std::size_t first) {
  Arguments rest;
  if (given.positional.size() > first)
    rest.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(first), given.positional.end());
  rest.named = given.named;
  return rest;
}

Value mapped(const Value& value, const Arguments& given) {
  std::vector<Value> out;
  if (!truth(value)) return generated({});  // false values of any kind
  if (given.positional.empty()) {
    const auto bound = bind("map", given, {"attribute", "default"});
    if (bound[0] == nullptr) throw TemplateError{"map: must have a filter's name or attribute="};
    for (const Value& item : items_of(value)) {
      Value part = path_of(item, *bound[0]);
      out.push_back(part.undefined() != nullptr && bound[1] != nullptr ? *bound[1] : std::move(part));
    }
    return generated(std::move(out));
  }
  const std::string& name = as_text(given.positional[0], "map: the filter's name").bytes();
  if (!has_filter(name) || name == "map")
    throw TemplateError{fmt::format("map: filter: must be a known filter other than map (got '{}')", name)};
  const Arguments rest = from(given, 1);
  for (const Value& item : items_of(value)) out.push_back(apply_filter(name, item, rest));
  return generated(std::move(out));
}

// select, reject, selectattr, rejectattr.
Value selected(const Value& value, const Arguments& given, bool by_attribute, bool wanted) {
  const std::size_t first = by_attribute ? 1 : 0;
  if (by_attribute && given.positional.empty()) throw TemplateError{"selectattr: must have the attribute's name"};
  std::optional<std::string> test;
  if (given.positional.size() > first) test = as_text(given.positional[first], "select: the test's name").bytes();
  if (test && !has_test(*test)) throw TemplateError{fmt::format("select: test: must be a known test (got '{}')", *test)};
  const std::vector<Value> rest = from(given, first + 1).positional;
  std::vector<Value> kept;
  if (!truth(value)) return generated({});  // false values of any kind
  for (Value& item : items_of(value)) {
    const Value part = by_attribute ? path_of(item, given.positional[0]) : item;
    if ((test ? apply_test(*test, part, rest) : truth(part)) == wanted) kept.push_back(std::move(item));
  }
  return generated(std::move(kept));
}

Value reversed(const Value& value) {
  std::vector<Value> items = items_of(value);
  std::reverse(items.begin(), items.end());
  if (value.text() == nullptr) return generated(std::move(items));
  Text out;
  for (const Value& character : items) out += *character.text();
  return out;
}

Value pairs_of(const Value& value) {
  if (value.undefined() != nullptr) return List{};
  if (value.dict() == nullptr) throw TemplateError{fmt::format("items: must be a dict (got {})", type_name(value))};
  List list;
  for (const auto& [name, item] : value.dict()->items) list.items.emplace_back(List{{name, item}, Sequence::kTuple});
  return list;
}

Value escaped(const Value& value) {
  Text out = shown(value);
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEscapes = {
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&#34;"}, {"'", "&#39;"}}};
  for (const auto& [from, to] : kEscapes) out = replaced(out, plain_text(from), plain_text(to), -1);
  return out;
}

Value titled_words(const Text& text) {
  Text out;
  bool begins = true;
  for (const Value& one : items_of(text)) {
    const std::string& bytes = one.text()->bytes();
    const bool boundary = bytes.find_first_of("-({[<") != std::string::npos || stripped(*one.text(), nullptr).empty();
    out += boundary ? *one.text() : begins ? upper(*one.text()) : lower(*one.text());
    begins = boundary;
  }
  return out;
}

Value defaulted(const Value& value, const Arguments& given) {
  const auto bound = bind("default", given, {"default_value", "boolean"});
  const bool empty_too = bound[1] != nullptr && truth(*bound[1]);
  if (value.undefined() == nullptr && !(empty_too && !truth(value))) return value;
  return bound[0] == nullptr ? Value(Text()) : *bound[0];
}

Value first_of(const Value& value, bool last) {
  const std::vector<Value> items = items_of(value);
  if (items.empty()) return Undefined{"an item of an empty sequence"};
  return last ? items.back() : items.front();
}

Value absolute(const Value& value) {
  if (const auto* number = value.get<double>()) return std::abs(*number);
  const std::int64_t integer = as_integer(value, "abs");
  return integer == INT64_MIN ? Value(-static_cast<double>(integer)) : Value(std::abs(integer));
}

Value replaced_text(const Value& value, const Arguments& given) {
  const auto bound = bind("replace", given, {"old", "new", "count"});
  if (bound[0] == nullptr || bound[1] == nullptr) throw TemplateError{"replace: must have two arguments"};
  const std::int64_t count = bound[2] == nullptr || bound[2]->none() ? -1 : as_integer(*bound[2], "replace: count");
  return replaced(shown(value), shown(*bound[0]), shown(*bound[1]), count);
}

Value trimmed(const Value& value, const Arguments& given) {
  const Value* set = bind("trim", given, {"chars"})[0];
  return stripped(shown(value), set == nullptr || set->none() ? nullptr : &as_text(*set, "trim"));
}

struct Filter {
  std::string_view name;
  Value (*apply)(const Value& value, const Arguments& given);
};

// A filter without arguments.
template <auto Function>
Value bare(const Value& value, const Arguments& given) {
  static_cast<void>(bind("the filter", given, {}));
  return Function(value);
}

constexpr std::array kFilters = {
    Filter{"abs", bare<absolute>},
    Filter{"attr",
           [](const Value& value, const Arguments& given) -> Value {
             const Value* name = bind("attr", given, {"name"})[0];
             if (name == nullptr) throw TemplateError{"attr: must have a name"};
             return attribute_of(value, as_text(*name, "attr").bytes());
           }},
    Filter{"capitalize", bare<[](const Value& value) -> Value { return capitalized(shown(value)); }>},
    Filter{"count", bare<[](const Value& value) -> Value { return length_of(value); }>},
    Filter{"d", defaulted},
    Filter{"default", defaulted},
    Filter{"dictsort", sorted_dict},
    Filter{"e", bare<escaped>},
    Filter{"escape", bare<escaped>},
    Filter{"first", bare<[](const Value& value) -> Value { return first_of(value, false); }>},
    Filter{"float", to_float},
    Filter{"indent", indented},
    Filter{"int", to_integer},
    Filter{"items", bare<pairs_of>},
    Filter{"join", joined_items},
    Filter{"last", bare<[](const Value& value) -> Value { return first_of(value, true); }>},
    Filter{"length", bare<[](const Value& value) -> Value { return length_of(value); }>},
    Filter{"list", bare<[](const Value& value) -> Value { return List{items_of(value)}; }>},
    Filter{"lower", bare<[](const Value& value) -> Value { return lower(shown(value)); }>},
    Filter{"map", mapped},
    Filter{"max", [](const Value& value, const Arguments& given) { return extreme(value, given, true); }},
    Filter{"min", [](const Value& value, const Arguments& given) { return extreme(value, given, false); }},
    Filter{"reject", [](const Value& value, const Arguments& given) { return selected(value, given, false, false); }},
    Filter{"rejectattr", [](const Value& value, const Arguments& given) { return selected(value, given, true, false); }},
    Filter{"replace", replaced_text},
    Filter{"reverse", bare<reversed>},
    Filter{"round", rounded},
    Filter{"safe", bare<[](const Value& value) -> Value { return shown(value); }>},
    Filter{"select", [](const Value& value, const Arguments& given) { return selected(value, given, false, true); }},
    Filter{"selectattr", [](const Value& value, const Arguments& given) { return selected(value, given, true, true); }},
    Filter{"sort", sorted},
    Filter{"string", bare<[](const Value& value) -> Value { return shown(value); }>},
    Filter{"sum", sum_of},
    Filter{"title", bare<[](const Value& value) -> Value { return titled_words(shown(value)); }>},
    Filter{"tojson", json_filter},
    Filter{"trim", trimmed},
    Filter{"unique", unique},
    Filter{"upper", bare<[](const Value& value) -> Value { return upper(shown(value)); }>},
};

const Filter* filter_of(std::string_view name) {
  const auto found = std::find_if(kFilters.begin(), kFilters.end(), [&](const Filter& one) { return one.name == name; });
  return found == kFilters.end() ? nullptr : found;
}

using Given = std::vector<Value>;

bool is_callable(const Value& value) {  // in Python, undefined is callable until it is called
  return value.get<Macro>() != nullptr || value.get<Callable>() != nullptr || value.undefined() != nullptr;
}
bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.dict() != nullptr || value.undefined() != nullptr ||
         (value.list() != nullptr && value.list()->kind != Sequence::kGenerator);
}
// The remainder, with the divisor's sign.
double remainder_of(const Value& value, std::int64_t divisor) {
  if (divisor == 0) throw TemplateError{"division by zero"};
  if (const auto* number = value.get<double>()) {
    const double rest = std::fmod(*number, static_cast<double>(divisor));
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + static_cast<double>(divisor) : rest;
  }
  if (divisor == -1) return 0;
  const std::int64_t rest = as_integer(value, "a test of numbers") % divisor;
  return static_cast<double>(rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest);
}

struct ValueTest {
  std::string_view name;
  std::size_t arguments;
  bool (*apply)(const Value& value, const Given& given);
};

constexpr auto kEqual = [](const Value& value, const Given& given) { return equal(value, given[0]); };
constexpr auto kLess = [](const Value& value, const Given& given) { return less(value, given[0]); };
constexpr auto kMore = [](const Value& value, const Given& given) { return less(given[0], value); };

constexpr std::array kTests = {
    ValueTest{"!=", 1, [](const Value& value, const Given& given) { return !equal(value, given[0]); }},
    ValueTest{"<", 1, kLess},
    ValueTest{"<=", 1, [](const Value& value, const Given& given) { return !less(given[0], value); }},
    ValueTest{"==", 1, kEqual},
    ValueTest{">", 1, kMore},
    ValueTest{">=", 1, [](const Value& value, const Given& given) { return !less(value, given[0]); }},
    ValueTest{"boolean", 0, [](const Value& value, const Given&) { return value.get<bool>() != nullptr; }},
    ValueTest{"callable", 0, [](const Value& value, const Given&) { return is_callable(value); }},
    ValueTest{"defined", 0, [](const Value& value, const Given&) { return value.undefined() == nullptr; }},
    ValueTest{
        "divisibleby", 1,
        [](const Value& value, const Given& given) { return remainder_of(value, as_integer(given[0], "divisibleby")) == 0; }},
    ValueTest{"eq", 1, kEqual},
    ValueTest{"equalto", 1, kEqual},
    ValueTest{"even", 0, [](const Value& value, const Given&) { return remainder_of(value, 2) == 0; }},
    ValueTest{"false", 0, [](const Value& value, const Given&) { return value.get<bool>() != nullptr && !truth(value); }},
    ValueTest{"float", 0, [](const Value& value, const Given&) { return value.get<double>() != nullptr; }},
    ValueTest{"ge", 1, [](const Value& value, const Given& given) { return !less(value, given[0]); }},
    ValueTest{"gt", 1, kMore},
    ValueTest{"greaterthan", 1, kMore},
    ValueTest{"in", 1, [](const Value& value, const Given& given) { return contains(given[0], value); }},
    ValueTest{"integer", 0, [](const Value& value, const Given&) { return value.integer() != nullptr; }},
    ValueTest{"iterable", 0, [](const Value& value, const Given&) { return is_sequence(value) || value.list() != nullptr; }},
    ValueTest{"le", 1, [](const Value& value, const Given& given) { return !less(given[0], value); }},
    ValueTest{"lessthan", 1, kLess},
    ValueTest{"lower", 0,
              [](const Value& value, const Given&) { return truth(call_text_method(shown(value), "islower", {})); }},
    ValueTest{"lt", 1, kLess},
    ValueTest{"mapping", 0, [](const Value& value, const Given&) { return value.dict() != nullptr; }},
    ValueTest{"ne", 1, [](const Value& value, const Given& given) { return !equal(value, given[0]); }},
    ValueTest{"none", 0, [](const Value& value, const Given&) { return value.none(); }},
    ValueTest{"number", 0, [](const Value& value, const Given&) { return value.number(); }},
    ValueTest{"odd", 0, [](const Value& value, const Given&) { return remainder_of(value, 2) == 1; }},
    ValueTest{"sequence", 0, [](const Value& value, const Given&) { return is_sequence(value); }},
    ValueTest{"string", 0, [](const Value& value, const Given&) { return value.text() != nullptr; }},
    ValueTest{"true", 0, [](const Value& value, const Given&) { return value.get<bool>() != nullptr && truth(value); }},
    ValueTest{"undefined", 0, [](const Value& value, const Given&) { return value.undefined() != nullptr; }},
    ValueTest{"upper", 0,
              [](const Value& value, const Given&) { return truth(call_text_method(shown(value), "isupper", {})); }},
};

const ValueTest* test_of(std::string_view name) {
  const auto found = std::find_if(kTests.begin(), kTests.end(), [&](const ValueTest& one) { return one.name == name; });
  return found == kTests.end() ? nullptr : found;
}

constexpr std::array<std::string_view, 4> kDictMethods = {"get", "items", "keys", "values"};
constexpr std::array<std::string_view, 2> kListMethods = {"count", "index"};
constexpr std::array<std::string_view, 5> kFunctions = {"dict", "namespace", "raise_exception", "range", "strftime_now"};

Value range_of(const Arguments& given) {
  std::vector<std::int64_t> bounds;
  for (const Value& value : given.positional) bounds.push_back(as_integer(value, "range"));
  if (bounds.empty() || bounds.size() > 3 || !given.named.empty())
    throw TemplateError{"range: must have one to three integers"};
  if (bounds.size() == 1) bounds.insert(bounds.begin(), 0);
  if (bounds.size() == 2) bounds.push_back(1);
  const std::int64_t step = bounds[2];
  if (step == 0) throw TemplateError{"range: step: must not be 0"};
  List list;
  for (std::int64_t at = bounds[0]; step > 0 ? at < bounds[1] : at > bounds[1];) {
    if (static_cast<std::int64_t>(list.items.size()) == kMaxRange)
      throw TemplateError{fmt::format("range: must have at most {} numbers", kMaxRange)};
    list.items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return list;
}

Dict dict_of(const Arguments& given) {
  Dict dict;
  if (given.positional.size() > 1) throw TemplateError{"dict: must have at most one unnamed argument"};
  if (!given.positional.empty()) {
    const Value& first = given.positional[0];
    if (first.dict() != nullptr) {
      dict = *first.dict();
    } else {
      for (const Value& pair : items_of(first)) {
        const std::vector<Value> both = items_of(pair);
        if (both.size() != 2) throw TemplateError{"dict: items: must be pairs"};
        dict.set(as_text(both[0], "dict: a key"), both[1]);
      }
    }
  }
  for (const auto& [name, value] : given.named) {
    check_item(value);
    dict.set(plain_text(name), value);
  }
  return dict;
}

Value now_text(const Arguments& given, std::int64_t unix_s) {
  const Value* format = bind("strftime_now", given, {"format"})[0];
  if (format == nullptr) throw TemplateError{"strftime_now: must have a format"};
  const std::time_t seconds = unix_s;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 256> buffer{};
  const std::size_t length =
      std::strftime(buffer.data(), buffer.size(), as_text(*format, "strftime_now").bytes().c_str(), &parts);
  return Text::like(as_text(*format, "strftime_now"), std::string_view(buffer.data(), length));
}

}  // namespace

std::vector<const Value*> bind(std::string_view callee, const Arguments& given,
                               std::initializer_list<std::string_view> parameters) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (given.positional.size() > parameters.size()) {
    throw TemplateError{
        fmt::format("{}: must have at most {} arguments (got {})", callee, parameters.size(), given.positional.size())};
  }
  for (std::size_t i = 0; i < given.positional.size(); ++i) bound[i] = &given.positional[i];
  for (const auto& [name, value] : given.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) throw TemplateError{fmt::format("{}: has no argument '{}'", callee, name)};
    bound[static_cast<std::size_t>(found - parameters.begin())] = &value;
  }
  return bound;
}

bool has_filter(std::string_view name) { return filter_of(name) != nullptr; }
bool has_test(std::string_view name) { return test_of(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& value, const Arguments& given) {
  return filter_of(name)->apply(value, given);
}

bool apply_test(std::string_view name, const Value& value, const std::vector<Value>& given) {
  const ValueTest& test = *test_of(name);
  if (given.size() != test.arguments)
    throw TemplateError{fmt::format("test {}: must have {} arguments (got {})", name, test.arguments, given.size())};
  return test.apply(value, given);
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", value.undefined()->name)};
  if (has_method(value, name)) return Callable{name, std::make_shared<const Value>(value)};
  const Dict* fields = value.space() != nullptr ? &value.space()->fields : value.dict();
  const Value* found = fields == nullptr ? nullptr : fields->find(name);
  return found == nullptr ? Value(Undefined{name}) : *found;
}

Value item_of(const Value& value, const Value& key) {
  if (value.undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", value.undefined()->name)};
  if (key.text() != nullptr) {
    const std::string& name = key.text()->bytes();
    if (const Value* found = value.dict() == nullptr ? nullptr : value.dict()->find(name)) return *found;
    return attribute_of(value, name);
  }
  const auto missing = [&] { return Undefined{fmt::format("item {}", quoted(key).bytes())}; };
  if (key.integer() == nullptr && key.get<bool>() == nullptr) return missing();
  std::int64_t index = as_integer(key, "an index");
  if (const Text* text = value.text()) {
    const auto starts = character_starts(text->bytes());
    const auto count = static_cast<std::int64_t>(starts.size()) - 1;
    if (index < 0) index += count;
    if (index < 0 || index >= count) return missing();
    const auto at = static_cast<std::size_t>(index);
    return text->substr(starts[at], starts[at + 1] - starts[at]);
  }
  const List* list = value.list();
  if (list == nullptr || list->kind == Sequence::kGenerator) return missing();
  const auto count = static_cast<std::int64_t>(list->items.size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) return missing();
  return list->items[static_cast<std::size_t>(index)];
}

bool has_method(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return has_text_method(name);
  if (self.dict() != nullptr) return std::find(kDictMethods.begin(), kDictMethods.end(), name) != kDictMethods.end();
  if (self.list() != nullptr) return std::find(kListMethods.begin(), kListMethods.end(), name) != kListMethods.end();
  return false;
}

Value call_method(const Value& self, const std::string& name, const Arguments& given) {
  if (const Text* text = self.text()) return call_text_method(*text, name, given);
  if (const List* list = self.list()) {
    const Value* wanted = bind(name, given, {"value"})[0];
    if (wanted == nullptr) throw TemplateError{fmt::format("{}: must have a value", name)};
    const auto is = [&](const Value& item) { return equal(item, *wanted); };
    if (name == "count") return static_cast<std::int64_t>(std::count_if(list->items.begin(), list->items.end(), is));
    const auto found = std::find_if(list->items.begin(), list->items.end(), is);
    if (found == list->items.end()) throw TemplateError{"index: the list does not hold it"};
    return static_cast<std::int64_t>(found - list->items.begin());
  }
  const Dict& dict = *self.dict();
  if (name == "get") {
    const auto bound = bind(name, given, {"key", "default"});
    if (bound[0] == nullptr) throw TemplateError{"get: must have a key"};
    const Value* found = bound[0]->text() == nullptr ? nullptr : dict.find(bound[0]->text()->bytes());
    return found != nullptr ? *found : bound[1] != nullptr ? *bound[1] : Value(None{});
  }
  static_cast<void>(bind(name, given, {}));
  if (name == "items") return pairs_of(self);
  List list;
  for (const auto& [key, item] : dict.items) list.items.push_back(name == "keys" ? Value(key) : item);
  return list;
}

bool has_function(std::string_view name) { return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end(); }

Value call_function(const std::string& name, const Arguments& given, std::int64_t unix_s) {
  if (name == "raise_exception") {
    const Value* message = bind(name, given, {"message"})[0];
    throw TemplateError{message == nullptr ? "the template rejects the messages" : shown(*message).bytes()};
  }
  if (name == "range") return range_of(given);
  if (name == "dict") return dict_of(given);
  if (name == "strftime_now") return now_text(given, unix_s);
  auto space = std::make_shared<Namespace>();
  space->fields = dict_of(given);
  return space;
}

}  // namespace windlass::jinja
