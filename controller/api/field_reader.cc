// Reads typed fields from JSON and reports the first error.
#include "controller/api/field_reader.h"

#include <fmt/format.h>

#include "controller/api/quantity.h"
#include "planner/base/duration.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::api {

using nlohmann::json;

FieldReader::FieldReader(const json& value, std::string path, std::optional<Error>* error)
    : value_(&value), path_(std::move(path)), error_(error) {
  if (!value.is_object() && !value.is_null() && !error_->has_value()) {
    *error_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be an object (got {})", path_, value.type_name())};
  }
}

const json* FieldReader::find(const char* key) const {
  if (!value_->is_object()) return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::complain(const char* key, const std::string& what) const {
  if (error_->has_value()) return;
  *error_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}{}{}: {}", path_, path_.empty() ? "" : ".", key, what)};
}

FieldReader FieldReader::child(const char* key) const {
  static const json kNothing = json::object();
  const json* found = find(key);
  return FieldReader(found == nullptr ? kNothing : *found, path_.empty() ? key : path_ + "." + key, error_);
}

std::vector<FieldReader> FieldReader::children(const char* key) const {
  std::vector<FieldReader> readers;
  const json* found = find(key);
  if (found == nullptr) return readers;
  if (!found->is_array()) {
    complain(key, fmt::format("must be a list (got {})", found->type_name()));
    return readers;
  }
  for (std::size_t i = 0; i < found->size(); ++i) {
    readers.emplace_back((*found)[i], fmt::format("{}{}{}[{}]", path_, path_.empty() ? "" : ".", key, i), error_);
  }
  return readers;
}

std::string FieldReader::text(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return "";
  if (found->is_string()) return found->get<std::string>();
  complain(key, fmt::format("must be text (got {})", found->type_name()));
  return "";
}

std::vector<std::string> FieldReader::texts(const char* key) const {
  std::vector<std::string> values;
  const json* found = find(key);
  if (found == nullptr) return values;
  bool fits = found->is_array();
  if (fits) {
    for (const json& item : *found) {
      fits = fits && item.is_string();
      if (item.is_string()) values.push_back(item.get<std::string>());
    }
  }
  if (!fits)
    complain(key, fmt::format("must be a list of texts (got {})", found->is_array() ? "other items" : found->type_name()));
  return values;
}

std::map<std::string, std::string> FieldReader::text_map(const char* key) const {
  std::map<std::string, std::string> values;
  const json* found = find(key);
  if (found == nullptr) return values;
  bool fits = found->is_object();
  if (fits) {
    for (const auto& [name, item] : found->items()) {
      fits = fits && item.is_string();
      if (item.is_string()) values.emplace(name, item.get<std::string>());
    }
  }
  if (!fits)
    complain(key, fmt::format("must be a map of texts (got {})", found->is_object() ? "other values" : found->type_name()));
  return values;
}

std::optional<std::string> FieldReader::json_text(const char* key) const {
  const json* found = find(key);
  return found == nullptr ? std::nullopt : std::optional(found->dump());
}

std::optional<bool> FieldReader::boolean(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  complain(key, fmt::format("must be true or false (got {})", found->type_name()));
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::integer(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  complain(key, fmt::format("must be an integer (got {})", found->dump()));
  return std::nullopt;
}

template <class T>
std::optional<T> FieldReader::parsed(const char* key, Result<T> (*parse)(std::string_view), std::size_t from) const {
  if (!has(key)) return std::nullopt;
  const Result<T> value = parse(text(key).substr(from));
  if (value.ok()) return *value;
  complain(key, value.error().message);
  return std::nullopt;
}

std::optional<double> FieldReader::fraction(const char* key) const {
  const json* found = find(key);
  return found != nullptr && found->is_number() ? found->get<double>() : parsed(key, parse_fraction);
}

std::optional<double> FieldReader::coefficient(const char* key) const {
  if (!has(key)) return std::nullopt;
  const std::string found = text(key);
  if (const auto number = planner::parse_coefficient(found)) return number;
  complain(key, fmt::format("must be a decimal number (got \"{}\")", found));
  return std::nullopt;
}

std::optional<double> FieldReader::duration_s(const char* key) const { return parsed(key, parse_duration_s); }

std::optional<double> FieldReader::measured_duration_s(const char* key) const {
  return parsed(key, parse_duration_s, sign_of(bound(key)).size());
}

Bound FieldReader::bound(const char* key) const {
  const std::string found = text(key);
  return found.starts_with('<') ? Bound::kBelow : found.starts_with('>') ? Bound::kAbove : Bound::kNone;
}

std::optional<double> FieldReader::quantity(const char* key) const {
  const json* found = find(key);
  return found != nullptr && found->is_number() ? found->get<double>() : parsed(key, parse_quantity);
}

std::optional<std::int64_t> FieldReader::bytes(const char* key) const { return parsed(key, parse_bytes); }

}  // namespace windlass::api
