// Validates in the API server's order: unknown fields, defaults, the structural schema, list-map keys, then the CEL rules if no
// earlier error rules them out.
#include "controller/api/validation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/cel/evaluator.h"
#include "controller/api/metadata_rules.h"
#include "controller/api/schema.h"
#include "planner/base/foreign_text.h"

namespace windlass::api {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestForPattern = 4096;  // a longer string exceeds its maxLength anyway

std::string join(const std::string& path, const std::string& child) { return path.empty() ? child : path + "." + child; }

std::string shortened(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  return text;
}

// The value as shown in errors. Environment values may be secrets and are never shown.
std::string shown(const json& value, const std::string& path) {
  if (value.is_structured()) return value.is_object() ? "a map" : "a list";
  if (path.find(".env[") != std::string::npos) return fmt::format("a {}, not shown", value.type_name());
  return shortened(value);
}

std::int64_t characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

std::string range(const std::optional<double>& low, const std::optional<double>& high) {
  if (low.has_value() && high.has_value()) return fmt::format("from {} to {}", *low, *high);
  return low.has_value() ? fmt::format("at least {}", *low) : fmt::format("at most {}", *high);
}

class Validator {
 public:
  std::vector<FieldError> errors;

  void unknown_fields(const Schema& schema, const json& value, const std::string& path) {
    if (value.is_array() && schema.items != nullptr) {
      for (std::size_t i = 0; i < value.size(); ++i) unknown_fields(*schema.items, value[i], fmt::format("{}[{}]", path, i));
    }
    if (!value.is_object()) return;
    for (const auto& [key, child] : value.items()) {
      if (path.empty() && key == "metadata") continue;  // check_metadata checks it
      const Schema* known = schema.property(key);
      if (known == nullptr) known = schema.additional_properties.get();
      if (known != nullptr) {
        unknown_fields(*known, child, join(path, key));
      } else if (!schema.preserve_unknown_fields) {
        std::string names;
        for (const auto& [name, _] : schema.properties) names += (names.empty() ? "" : ", ") + name;
        add(join(path, shown_text(key)), FieldErrorClass::kUnknownField,
            names.empty() ? "must not be set, because no field is allowed here" : "must be one of " + names);
      }
    }
  }

  void structure(const Schema& schema, const json& value, const std::string& path) {
    if (!type_fits(schema, value)) {
      add(path, FieldErrorClass::kTypeInvalid,
          fmt::format("must be {} (got {}){}", type_wanted(schema), shown_type(value, path), how_to_quote(schema, value)));
    }
    if (!schema.allowed.empty()) one_of(schema, value, path);
    if (value.is_string()) text(schema, value.get_ref<const std::string&>(), path);
    if (value.is_number() && !in_range(schema, value)) {
      add(path, FieldErrorClass::kInvalid,
          fmt::format("must be {} (got {})", range(schema.minimum, schema.maximum), shown(value, path)));
    }
    if (value.is_array()) list(schema, value, path);
    if (value.is_object()) object(schema, value, path);
  }

  void list_keys(const Schema& schema, const json& value, const std::string& path) {
    if (value.is_array() && schema.items != nullptr) {
      if (!schema.list_map_keys.empty()) duplicates(schema, value, path);
      for (std::size_t i = 0; i < value.size(); ++i) list_keys(*schema.items, value[i], fmt::format("{}[{}]", path, i));
    }
    each_field(schema, value, path, [this](const Schema& s, const json& v, const std::string& p) { list_keys(s, v, p); });
  }

  void rules(const Schema& schema, const json& value, const std::string& path) {
    for (const Rule& rule : schema.rules) {
      const Result<bool> holds = cel::evaluate_rule(*rule.expression, value);
      if (!holds.ok()) {
        add(path, FieldErrorClass::kInvalid, fmt::format("{} evaluating rule: {}", holds.error().message, rule.message));
      } else if (!*holds) {
        broken(rule, value, path);
      }
    }
    if (value.is_array() && schema.items != nullptr) {
      for (std::size_t i = 0; i < value.size(); ++i) rules(*schema.items, value[i], fmt::format("{}[{}]", path, i));
    }
    each_field(schema, value, path, [this](const Schema& s, const json& v, const std::string& p) { rules(s, v, p); });
  }

  // Whether the API server would skip the rules after these errors.
  [[nodiscard]] bool blocked() const {
    return std::any_of(errors.begin(), errors.end(), [](const FieldError& error) {
      return error.error_class == FieldErrorClass::kTypeInvalid || error.error_class == FieldErrorClass::kRequired ||
             error.error_class == FieldErrorClass::kNotSupported || error.error_class == FieldErrorClass::kTooLong ||
             error.error_class == FieldErrorClass::kTooMany;
    });
  }

 private:
  void add(const std::string& path, FieldErrorClass error_class, std::string detail, std::string shown = "") {
    errors.push_back(FieldError{path, error_class, std::move(detail), std::move(shown)});
  }

  template <class Visit>
  static void each_field(const Schema& schema, const json& value, const std::string& path, Visit visit) {
    if (!value.is_object()) return;
    for (const auto& [name, property] : schema.properties) {
      const auto child = value.find(name);
      if (child != value.end()) visit(*property, *child, join(path, name));
    }
    if (schema.additional_properties == nullptr) return;
    for (const auto& [key, child] : value.items()) {
      if (schema.property(key) == nullptr) visit(*schema.additional_properties, child, join(path, key));
    }
  }

  // The API server accepts a number with a decimal point as an integer, within the range where doubles are exact.
  static bool whole(const json& value) {
    if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
    if (!value.is_number_float()) return value.is_number_integer();
    const double number = value.get<double>();
    return number == std::floor(number) && std::abs(number) <= 9007199254740991.0;
  }

  static bool type_fits(const Schema& schema, const json& value) {
    if (schema.int_or_string) return value.is_string() || whole(value);
    if (schema.type == "object") return value.is_object();
    if (schema.type == "array") return value.is_array();
    if (schema.type == "string") return value.is_string();
    if (schema.type == "integer") return whole(value);
    if (schema.type == "number") return value.is_number();
    if (schema.type == "boolean") return value.is_boolean();
    return true;
  }

  static std::string shown_type(const json& value, const std::string& path) {
    if (value.is_null() || value.is_structured() || path.find(".env[") != std::string::npos) return shown(value, path);
    return fmt::format("{}, {}", shown(value, path),
                       value.is_number_integer() ? "an integer" : fmt::format("a {}", value.type_name()));
  }

  static std::string type_wanted(const Schema& schema) {
    if (schema.int_or_string) return "an integer, or a quoted decimal such as \"2.5\"";
    if (schema.type == "object") return "a map";
    if (schema.type == "array") return "a list";
    if (schema.type == "integer") return "an integer";
    return schema.type == "string" ? "text" : "a " + schema.type;
  }

  static std::string how_to_quote(const Schema& schema, const json& value) {
    if (schema.int_or_string && value.is_number()) return fmt::format("; write \"{}\" in quotes", value.dump());
    return schema.type == "string" && !value.is_structured() ? "; quote it" : "";
  }

  static bool in_range(const Schema& schema, const json& value) {
    const double number = value.get<double>();
    return !(schema.minimum.has_value() && number < *schema.minimum) &&
           !(schema.maximum.has_value() && number > *schema.maximum);
  }

  void one_of(const Schema& schema, const json& value, const std::string& path) {
    if (value.is_string() &&
        std::find(schema.allowed.begin(), schema.allowed.end(), value.get_ref<const std::string&>()) != schema.allowed.end()) {
      return;
    }
    std::string names;
    for (const std::string& name : schema.allowed) names += (names.empty() ? "" : ", ") + name;
    add(path, FieldErrorClass::kNotSupported, fmt::format("must be one of {} (got {})", names, shown(value, path)));
  }

  // Reports the first violation of length or pattern, like the API server.
  void text(const Schema& schema, const std::string& value, const std::string& path) {
    const auto length = static_cast<std::size_t>(characters(value));
    if (schema.max_length.has_value() && length > *schema.max_length) {
      add(path, FieldErrorClass::kTooLong, fmt::format("must have at most {} characters (got {})", *schema.max_length, length));
    } else if (schema.min_length.has_value() && length < *schema.min_length) {
      add(path, FieldErrorClass::kInvalid,
          fmt::format("must have at least {} characters (got {})", *schema.min_length, length));
    } else if (schema.pattern.has_value() &&
               (value.size() > kLongestForPattern || !std::regex_search(value, *schema.pattern))) {
      add(path, FieldErrorClass::kInvalid,
          fmt::format("must match {} (got {}); {}", schema.pattern_text, shown(value, path), schema.description));
    }
  }

  void list(const Schema& schema, const json& value, const std::string& path) {
    if (schema.max_items.has_value() && value.size() > *schema.max_items) {
      add(path, FieldErrorClass::kTooMany, fmt::format("must have at most {} items (got {})", *schema.max_items, value.size()));
    }
    if (schema.min_items.has_value() && value.size() < *schema.min_items) {
      add(path, FieldErrorClass::kInvalid,
          fmt::format("must have at least {} items (got {})", *schema.min_items, value.size()));
    }
    if (schema.items == nullptr) return;
    for (std::size_t i = 0; i < value.size(); ++i) structure(*schema.items, value[i], fmt::format("{}[{}]", path, i));
  }

  void object(const Schema& schema, const json& value, const std::string& path) {
    if (schema.max_properties.has_value() && value.size() > *schema.max_properties) {
      add(path, FieldErrorClass::kTooMany,
          fmt::format("must have at most {} entries (got {})", *schema.max_properties, value.size()));
    }
    if (schema.min_properties.has_value() && value.size() < *schema.min_properties) {
      add(path, FieldErrorClass::kInvalid,
          fmt::format("must have at least {} entries (got {})", *schema.min_properties, value.size()));
    }
    for (const std::string& name : schema.required) {
      if (value.contains(name)) continue;
      const Schema* property = schema.property(name);
      const std::string what = property == nullptr ? "" : "; " + property->description;
      add(join(path, name), FieldErrorClass::kRequired, "must be set (got nothing)" + what);
    }
    each_field(schema, value, path, [this](const Schema& s, const json& v, const std::string& p) { structure(s, v, p); });
  }

  void duplicates(const Schema& schema, const json& value, const std::string& path) {
    std::set<json> seen;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_object()) continue;
      json key = json::object();
      for (const std::string& name : schema.list_map_keys) {
        if (value[i].contains(name)) key[name] = value[i][name];
      }
      const auto [first, is_new] = seen.insert(std::move(key));
      if (is_new) continue;
      add(fmt::format("{}[{}]", path, i), FieldErrorClass::kDuplicate,
          fmt::format("must be unique (got {} again)", shortened(*first)));
    }
  }

  void broken(const Rule& rule, const json& value, const std::string& path) {
    const json* part = &value;
    std::string at = path;
    if (!rule.field_path.empty()) {
      at = join(path, rule.field_path);
      std::size_t begin = 0;
      while (part != nullptr && begin <= rule.field_path.size()) {
        const std::size_t dot = std::min(rule.field_path.find('.', begin), rule.field_path.size());
        const std::string name = rule.field_path.substr(begin, dot - begin);
        part = part->is_object() && part->contains(name) ? &(*part)[name] : nullptr;
        begin = dot + 1;
      }
    }
    add(at, rule.error_class, rule.message, part == nullptr || part->is_structured() ? "" : "got " + shown(*part, at));
  }
};

// Applies defaults, then drops nulls: to the API server, null means absent.
void fill_defaults(const Schema& schema, json* value) {
  if (value->is_array() && schema.items != nullptr) {
    for (json& item : *value) fill_defaults(*schema.items, &item);
  }
  if (!value->is_object()) return;
  for (const auto& [name, property] : schema.properties) {
    const auto child = value->find(name);
    const bool absent = child == value->end() || child->is_null();
    if (absent && property->default_value.has_value()) {
      (*value)[name] = *property->default_value;
    } else if (child != value->end() && child->is_null()) {
      value->erase(name);
    }
    if (value->contains(name)) fill_defaults(*property, &(*value)[name]);
  }
  if (schema.additional_properties == nullptr) return;
  for (auto& [key, child] : value->items()) {
    if (schema.property(key) == nullptr) fill_defaults(*schema.additional_properties, &child);
  }
}

std::string text_at(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

std::string kinds_allowed() {
  const std::vector<std::string> kinds = known_kinds();
  std::string names;
  for (std::size_t i = 0; i < kinds.size(); ++i) names += (i == 0 ? "" : i + 1 < kinds.size() ? ", " : " or ") + kinds[i];
  return names;
}

}  // namespace

const char* title(FieldErrorClass error_class) {
  switch (error_class) {
    case FieldErrorClass::kRequired: return "Required value";
    case FieldErrorClass::kInvalid:
    case FieldErrorClass::kTypeInvalid: return "Invalid value";
    case FieldErrorClass::kNotSupported: return "Unsupported value";
    case FieldErrorClass::kDuplicate: return "Duplicate value";
    case FieldErrorClass::kTooLong: return "Too long";
    case FieldErrorClass::kTooMany: return "Too many";
    case FieldErrorClass::kForbidden: return "Forbidden";
    case FieldErrorClass::kUnknownField: return "Unknown field";
  }
  return "Invalid value";
}

const char* cause(FieldErrorClass error_class) {
  switch (error_class) {
    case FieldErrorClass::kRequired: return "FieldValueRequired";
    case FieldErrorClass::kInvalid: return "FieldValueInvalid";
    case FieldErrorClass::kTypeInvalid: return "FieldValueTypeInvalid";
    case FieldErrorClass::kNotSupported: return "FieldValueNotSupported";
    case FieldErrorClass::kDuplicate: return "FieldValueDuplicate";
    case FieldErrorClass::kTooLong: return "FieldValueTooLong";
    case FieldErrorClass::kTooMany: return "FieldValueTooMany";
    case FieldErrorClass::kForbidden: return "FieldValueForbidden";
    case FieldErrorClass::kUnknownField: return "UnknownField";
  }
  return "FieldValueInvalid";
}

std::string FieldError::text() const {
  std::string out = path.empty() ? "" : path + ": ";
  out += fmt::format("{}: {}", title(error_class), detail);
  if (!shown.empty()) out += fmt::format(" ({})", shown);
  return out;
}

std::vector<std::string> known_kinds() {
  std::vector<std::string> kinds;
  if (const auto& crds = embedded_crds(); crds.ok()) {
    for (const Crd& crd : *crds) kinds.push_back(crd.kind);
  }
  return kinds;
}

bool is_namespaced(std::string_view kind) {
  const Crd* crd = find_crd(kind);
  return crd != nullptr && crd->namespaced;
}

json with_defaults(json object) {
  if (!object.is_object()) return object;
  if (const Crd* crd = find_crd(text_at(object, "kind")); crd != nullptr) fill_defaults(crd->root, &object);
  return object;
}

std::vector<FieldError> validate(const json& object) {
  if (!object.is_object())
    return {{"", FieldErrorClass::kTypeInvalid, fmt::format("must be a map (got {})", shown(object, "")), ""}};
  if (const auto& crds = embedded_crds(); !crds.ok()) return {{"", FieldErrorClass::kInvalid, crds.error().message, ""}};
  Validator validator;
  for (const char* key : {"apiVersion", "kind"}) {
    if (text_at(object, key).empty()) {
      const std::string allowed = *key == 'a' ? std::string("windlass.dev/v1alpha1") : kinds_allowed();
      validator.errors.push_back({key, FieldErrorClass::kRequired, fmt::format("must be {} (got nothing)", allowed), ""});
    }
  }
  if (!validator.errors.empty()) return validator.errors;
  if (text_at(object, "apiVersion") != "windlass.dev/v1alpha1") {
    return {{"apiVersion", FieldErrorClass::kInvalid,
             fmt::format("must be windlass.dev/v1alpha1 (got {})", shown(object["apiVersion"], "")), ""}};
  }
  const Crd* crd = find_crd(text_at(object, "kind"));
  if (crd == nullptr) {
    return {{"kind", FieldErrorClass::kInvalid, fmt::format("must be {} (got {})", kinds_allowed(), shown(object["kind"], "")),
             ""}};
  }
  validator.unknown_fields(crd->root, object, "");
  const json metadata = object.contains("metadata") ? object["metadata"] : json(nullptr);
  if (!metadata.is_null() && !metadata.is_object()) {
    validator.errors.push_back(
        {"metadata", FieldErrorClass::kTypeInvalid, fmt::format("must be a map (got {})", shown(metadata, "")), ""});
  } else {
    for (FieldError& error : check_metadata(metadata, crd->namespaced)) validator.errors.push_back(std::move(error));
  }
  json full = object;
  full.erase("status");  // the API server ignores the status of a new object
  if (!metadata.is_object()) full.erase("metadata");
  fill_defaults(crd->root, &full);
  validator.structure(crd->root, full, "");
  validator.list_keys(crd->root, full, "");
  if (!validator.blocked()) validator.rules(crd->root, full, "");
  return validator.errors;
}

Result<void> check_crds() {
  const auto& crds = embedded_crds();
  if (!crds.ok()) return crds.error();
  return {};
}

}  // namespace windlass::api
