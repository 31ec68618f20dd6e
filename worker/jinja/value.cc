// Python's rules for values, as far as templates can see them.
#include "worker/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unicode/uchar.h>
#include <unicode/utf16.h>

namespace windlass::jinja {
namespace {

constexpr int kMaxValueHeight = 200;
constexpr std::int64_t kMaxWeight = 1'000'000;
constexpr std::int64_t kMaxSteps = 5'000'000;  // a long chat takes some tens of thousands
thread_local std::int64_t steps_left = kMaxSteps;

Text plain(std::string_view text) { return Text::of_template(text); }

// A string in quotes, as repr() writes it.
Text quoted_text(const Text& text) {
  const bool single = text.bytes().find('\'') == std::string::npos || text.bytes().find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  Text out = plain(std::string(1, quote));
  const auto starts = character_starts(text.bytes());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const Text character = text.substr(starts[i], starts[i + 1] - starts[i]);
    const std::string& bytes = character.bytes();
    const UChar32 code = code_point(bytes);
    std::string escaped;
    if (bytes[0] == quote || bytes[0] == '\\') {
      escaped = std::string("\\") + bytes[0];
    } else if (bytes[0] == '\n') {
      escaped = "\\n";
    } else if (bytes[0] == '\r') {
      escaped = "\\r";
    } else if (bytes[0] == '\t') {
      escaped = "\\t";
    } else if (code != ' ' && (code < 0 || !u_isprint(code) || u_isUWhiteSpace(code))) {
      const int value = code < 0 ? static_cast<unsigned char>(bytes[0]) : code;
      escaped = value < 0x100     ? fmt::format("\\x{:02x}", value)
                : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                                  : fmt::format("\\U{:08x}", value);
    }
    out += escaped.empty() ? character : Text::like(character, escaped);
  }
  out += plain(std::string(1, quote));
  return out;
}

Text json_text(const Text& text, bool ascii) {
  Text out = plain("\"");
  const auto starts = character_starts(text.bytes());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const Text character = text.substr(starts[i], starts[i + 1] - starts[i]);
    const char c = character.bytes()[0];
    const UChar32 code = code_point(character.bytes());
    std::string escaped;
    if (c == '"' || c == '\\') {
      escaped = std::string("\\") + c;
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (c == '\b') {
      escaped = "\\b";
    } else if (c == '\f') {
      escaped = "\\f";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      escaped = fmt::format("\\u{:04x}", static_cast<int>(c));
    } else if (ascii && code >= 0x10000) {
      escaped = fmt::format("\\u{:04x}\\u{:04x}", static_cast<int>(U16_LEAD(code)), static_cast<int>(U16_TRAIL(code)));
    } else if (ascii && code >= 0x7f) {
      escaped = fmt::format("\\u{:04x}", static_cast<int>(code));
    }
    if (ascii && code == 0x7f) escaped.clear();  // the last character that json.dumps treats as ASCII
    out += escaped.empty() ? character : Text::like(character, escaped);
  }
  out += plain("\"");
  return out;
}

template <class Each>
Text joined(const char* open, const char* close, std::size_t count, Each each) {
  Text out = plain(open);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += plain(", ");
    out += each(i);
  }
  out += plain(close);
  return out;
}

struct JsonStyle {
  int indent;
  bool sorted;
  std::string_view comma;
  std::string_view colon;
  bool ascii;
};

Text json_of(const Value& value, const JsonStyle& style, int depth) {
  const auto line = [&](int level) {
    return plain(style.indent < 0 ? "" : "\n" + std::string(static_cast<std::size_t>(style.indent) * level, ' '));
  };
  const auto all = [&](const char* open, const char* close, std::size_t count, const auto& each) {
    if (count == 0) return plain(std::string(open) + close);
    Text out = plain(open);
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += plain(style.comma);
      out += line(depth + 1);
      out += each(i);
    }
    out += line(depth);
    out += plain(close);
    return out;
  };
  if (const Text* text = value.text()) return json_text(*text, style.ascii);
  if (const auto* truth = value.get<bool>()) return plain(*truth ? "true" : "false");
  if (value.none()) return plain("null");
  if (const auto* number = value.get<double>(); number != nullptr && !std::isfinite(*number))
    return plain(std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity");
  if (value.number()) return shown(value);
  if (const List* list = value.list(); list != nullptr && list->kind != Sequence::kGenerator)
    return all("[", "]", list->items.size(), [&](std::size_t i) { return json_of(list->items[i], style, depth + 1); });
  if (const Dict* dict = value.dict()) {
    std::vector<const std::pair<Text, Value>*> items;
    for (const auto& item : dict->items) items.push_back(&item);
    if (style.sorted) {
      std::stable_sort(items.begin(), items.end(),
                       [](const auto* a, const auto* b) { return a->first.bytes() < b->first.bytes(); });
    }
    return all("{", "}", items.size(), [&](std::size_t i) {
      Text out = json_text(items[i]->first, style.ascii);
      out += plain(style.colon);
      out += json_of(items[i]->second, style, depth + 1);
      return out;
    });
  }
  throw TemplateError{fmt::format("tojson: must be a value that JSON has (got {})", type_name(value))};
}

// Updates height and weight for an added item. Limits exist because printing, comparing and destroying values is recursive.
template <class Holder>
void hold(Holder& holder, const Value& item) {
  check_item(item);
  const List* list = item.list();
  const Dict* dict = item.dict();
  holder.height = std::max(holder.height, 1 + (list != nullptr ? list->height : dict != nullptr ? dict->height : 0));
  holder.weight += list != nullptr ? list->weight : dict != nullptr ? dict->weight : 1;
  if (holder.height > kMaxValueHeight)
    throw TemplateError{fmt::format("lists and dicts: must be at most {} levels deep", kMaxValueHeight)};
  if (holder.weight > kMaxWeight) throw TemplateError{fmt::format("a list or dict: must have at most {} values", kMaxWeight)};
}

}  // namespace

void charge(std::int64_t steps) {
  steps_left -= steps;
  if (steps_left < 0) throw TemplateError{fmt::format("the template: must take at most {} steps", kMaxSteps)};
}

void begin_work() { steps_left = kMaxSteps; }

const Value* Dict::find(std::string_view key) const {
  charge(1 + static_cast<std::int64_t>(items.size()) / 8);
  for (const auto& [name, value] : items) {
    if (name.bytes() == key) return &value;
  }
  return nullptr;
}

void Dict::set(const Text& key, Value value) {
  charge(1 + static_cast<std::int64_t>(items.size()) / 8);
  for (auto& [name, there] : items) {
    if (name != key) continue;
    there = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
}

void check_item(const Value& item) {
  if (item.space() != nullptr || item.get<Macro>() != nullptr || item.get<Callable>() != nullptr)
    throw TemplateError{fmt::format("a list, dict or namespace: must not contain {}", type_name(item))};
}

Value::Value(List list) {
  charge(static_cast<std::int64_t>(list.items.size()));
  list.height = 1;
  list.weight = 1;
  for (const Value& item : list.items) hold(list, item);
  value_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  charge(static_cast<std::int64_t>(dict.items.size()));
  dict.height = 1;
  dict.weight = 1;
  for (const auto& [key, item] : dict.items) hold(dict, item);
  value_ = std::make_shared<const Dict>(std::move(dict));
}

Value Value::of_input(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean: return json.get<bool>();
    case nlohmann::json::value_t::number_integer: return json.get<std::int64_t>();
    case nlohmann::json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return static_cast<double>(number);
      return static_cast<std::int64_t>(number);
    }
    case nlohmann::json::value_t::number_float: return json.get<double>();
    case nlohmann::json::value_t::string: return Text::of_input(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& item : json) list.items.push_back(of_input(item));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.items.emplace_back(Text::of_input(key), of_input(item));
      return dict;
    }
    default: return None{};
  }
}

const Text* Value::text() const {
  const auto* pointer = get<std::shared_ptr<const Text>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

const List* Value::list() const {
  const auto* pointer = get<std::shared_ptr<const List>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

const Dict* Value::dict() const {
  const auto* pointer = get<std::shared_ptr<const Dict>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

Namespace* Value::space() const {
  const auto* pointer = get<std::shared_ptr<Namespace>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

const char* type_name(const Value& value) {
  if (value.undefined() != nullptr) return "undefined";
  if (value.none()) return "None";
  if (value.get<bool>() != nullptr) return "bool";
  if (value.integer() != nullptr) return "int";
  if (value.get<double>() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (const List* list = value.list())
    return list->kind == Sequence::kList ? "list" : list->kind == Sequence::kTuple ? "tuple" : "generator";
  if (value.dict() != nullptr) return "dict";
  return value.space() != nullptr ? "namespace" : "function";
}

bool truth(const Value& value) {
  if (value.undefined() != nullptr || value.none()) return false;
  if (value.number()) return as_double(value) != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return list->kind == Sequence::kGenerator || !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::abs(number);
  char buffer[400];
  const auto format = size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, format).ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Text shown(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.undefined() != nullptr) return {};
  return quoted(value);
}

Text quoted(const Value& value) {
  if (value.undefined() != nullptr) return plain("Undefined");
  if (value.none()) return plain("None");
  if (const auto* truth = value.get<bool>()) return plain(*truth ? "True" : "False");
  if (const auto* integer = value.integer()) return plain(std::to_string(*integer));
  if (const auto* number = value.get<double>()) return plain(float_text(*number));
  if (const Text* text = value.text()) return quoted_text(*text);
  if (const List* list = value.list()) {
    const bool tuple = list->kind == Sequence::kTuple;
    const char* close = !tuple ? "]" : list->items.size() == 1 ? ",)" : ")";
    return joined(tuple ? "(" : "[", close, list->items.size(), [&](std::size_t i) { return quoted(list->items[i]); });
  }
  if (const Dict* dict = value.dict()) {
    return joined("{", "}", dict->items.size(), [&](std::size_t i) {
      Text out = quoted_text(dict->items[i].first);
      out += plain(": ");
      out += quoted(dict->items[i].second);
      return out;
    });
  }
  return plain(fmt::format("<{}>", type_name(value)));
}

Text to_json(const Value& value, int indent, bool sorted, std::string_view comma, std::string_view colon, bool ascii) {
  return json_of(value, {indent, sorted, comma, colon, ascii}, 0);
}

bool equal(const Value& a, const Value& b) {
  charge(1);
  if (a.number() && b.number()) {
    if (a.get<double>() == nullptr && b.get<double>() == nullptr) return as_integer(a, "") == as_integer(b, "");
    return as_double(a) == as_double(b);
  }
  if (a.undefined() != nullptr || b.undefined() != nullptr) return a.undefined() != nullptr && b.undefined() != nullptr;
  if (a.none() || b.none()) return a.none() && b.none();
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  if (const List* left = a.list(), *right = b.list(); left != nullptr && right != nullptr) {
    return left->kind == right->kind &&
           std::equal(left->items.begin(), left->items.end(), right->items.begin(), right->items.end(), equal);
  }
  if (const Dict* left = a.dict(), *right = b.dict(); left != nullptr && right != nullptr) {
    return left->items.size() == right->items.size() &&
           std::all_of(left->items.begin(), left->items.end(), [&](const auto& item) {
             const Value* other = right->find(item.first.bytes());
             return other != nullptr && equal(item.second, *other);
           });
  }
  return a.space() != nullptr && a.space() == b.space();
}

bool less(const Value& a, const Value& b) {
  charge(1);
  if (a.number() && b.number()) {
    if (a.get<double>() == nullptr && b.get<double>() == nullptr) return as_integer(a, "") < as_integer(b, "");
    return as_double(a) < as_double(b);
  }
  if (a.text() != nullptr && b.text() != nullptr) return a.text()->bytes() < b.text()->bytes();
  if (const List* left = a.list(), *right = b.list(); left != nullptr && right != nullptr && left->kind == right->kind) {
    for (std::size_t i = 0; i < std::min(left->items.size(), right->items.size()); ++i) {
      if (!equal(left->items[i], right->items[i])) return less(left->items[i], right->items[i]);
    }
    return left->items.size() < right->items.size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->undefined() != nullptr) throw TemplateError{fmt::format("'{}' is undefined", value->undefined()->name)};
  }
  throw TemplateError{
      fmt::format("a comparison: must have two values of one kind with an order (got {} and {})", type_name(a), type_name(b))};
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text())
    return text->bytes().find(as_text(item, "'in' of a string").bytes()) != std::string::npos;
  if (container.dict() != nullptr &&
      (item.dict() != nullptr || (item.list() != nullptr && item.list()->kind == Sequence::kList)))
    throw TemplateError{fmt::format("'in' a dict: must be a key (got {})", type_name(item))};
  if (const Dict* dict = container.dict()) return item.text() != nullptr && dict->find(item.text()->bytes()) != nullptr;
  const std::vector<Value> items = items_of(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(one, item); });
}

std::vector<Value> items_of(const Value& value) {
  if (value.undefined() != nullptr) return {};
  if (const List* list = value.list()) return list->items;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, ignored] : dict->items) items.emplace_back(key);
    return items;
  }
  const Text* text = value.text();
  if (text == nullptr)
    throw TemplateError{fmt::format("a loop: must be over a list, a dict or a string (got {})", type_name(value))};
  const auto starts = character_starts(text->bytes());
  if (static_cast<std::int64_t>(starts.size()) > kMaxWeight)
    throw TemplateError{fmt::format("a loop: must be over a string of at most {} characters", kMaxWeight)};
  charge(static_cast<std::int64_t>(starts.size()));
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) items.emplace_back(text->substr(starts[i], starts[i + 1] - starts[i]));
  return items;
}

std::int64_t length_of(const Value& value) {
  if (value.undefined() != nullptr) return 0;
  if (const Text* text = value.text()) return static_cast<std::int64_t>(character_starts(text->bytes()).size()) - 1;
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->items.size());
  if (const List* list = value.list(); list != nullptr && list->kind != Sequence::kGenerator)
    return static_cast<std::int64_t>(list->items.size());
  throw TemplateError{fmt::format("length: must be of a list, a dict or a string (got {})", type_name(value))};
}

double as_double(const Value& value) {
  if (const auto* number = value.get<double>()) return *number;
  return static_cast<double>(as_integer(value, "a number"));
}

std::int64_t as_integer(const Value& value, std::string_view what) {
  if (const auto* integer = value.integer()) return *integer;
  if (const auto* truth = value.get<bool>()) return *truth ? 1 : 0;
  if (value.undefined() != nullptr) throw TemplateError{fmt::format("{}: '{}' is undefined", what, value.undefined()->name)};
  throw TemplateError{fmt::format("{}: must be an integer (got {})", what, type_name(value))};
}

const Text& as_text(const Value& value, std::string_view what) {
  if (const Text* text = value.text()) return *text;
  if (value.undefined() != nullptr) throw TemplateError{fmt::format("{}: '{}' is undefined", what, value.undefined()->name)};
  throw TemplateError{fmt::format("{}: must be a string (got {})", what, type_name(value))};
}

}  // namespace windlass::jinja
