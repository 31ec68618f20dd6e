// Kubernetes' rules for names, labels and annotations.
#include "controller/api/metadata_rules.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::api {
namespace {

using nlohmann::json;

bool lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool dns_label(const std::string& text) {
  if (text.empty() || text.size() > 63 || !lower_or_digit(text.front()) || !lower_or_digit(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return lower_or_digit(c) || c == '-'; });
}

bool dns_subdomain(const std::string& text) {
  if (text.empty() || text.size() > 253) return false;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t dot = text.find('.', begin);
    const std::string part = text.substr(begin, dot - begin);
    if (part.empty() || !lower_or_digit(part.front()) || !lower_or_digit(part.back())) return false;
    if (!std::all_of(part.begin(), part.end(), [](char c) { return lower_or_digit(c) || c == '-'; })) return false;
    if (dot == std::string::npos) return true;
    begin = dot + 1;
  }
}

bool word(const std::string& text) {
  if (text.empty() || text.size() > 63 || !letter_or_digit(text.front()) || !letter_or_digit(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

bool qualified_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return word(text);
  return dns_subdomain(text.substr(0, slash)) && word(text.substr(slash + 1));
}

void check_map(const json& metadata, const char* key, bool values_are_words, std::vector<FieldError>* errors) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || found->is_null()) return;
  const std::string path = fmt::format("metadata.{}", key);
  if (!found->is_object()) {
    errors->push_back(
        {path, FieldErrorClass::kTypeInvalid, fmt::format("must be a map of texts (got {})", found->type_name())});
    return;
  }
  for (const auto& [name, value] : found->items()) {
    std::string lower = name;
    if (!values_are_words) {  // the API server compares annotations in lower case
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    }
    if (!qualified_name(lower)) {
      errors->push_back({path, FieldErrorClass::kInvalid,
                         fmt::format("must have keys [prefix/]name of letters, digits, '-', '_' and '.' (got \"{}\")", name)});
    }
    if (!value.is_string()) {
      errors->push_back({path, FieldErrorClass::kTypeInvalid,
                         fmt::format("must be text at \"{}\" (got {}); quote it", name, value.type_name())});
    } else if (values_are_words && !value.get_ref<const std::string&>().empty() && !word(value.get<std::string>())) {
      errors->push_back({path, FieldErrorClass::kInvalid,
                         fmt::format("must be at most 63 letters, digits, '-', '_' and '.' at \"{}\" (got \"{}\")", name,
                                     value.get<std::string>())});
    }
  }
}

}  // namespace

std::vector<FieldError> check_metadata(const json& metadata, bool namespaced) {
  static constexpr std::array<std::string_view, 15> kKnown = {"name",
                                                              "generateName",
                                                              "namespace",
                                                              "labels",
                                                              "annotations",
                                                              "finalizers",
                                                              "ownerReferences",
                                                              "uid",
                                                              "resourceVersion",
                                                              "generation",
                                                              "creationTimestamp",
                                                              "deletionTimestamp",
                                                              "deletionGracePeriodSeconds",
                                                              "selfLink",
                                                              "managedFields"};
  std::vector<FieldError> errors;
  const auto text = [&](const char* key) -> std::string {
    if (!metadata.is_object()) return "";
    const auto found = metadata.find(key);
    if (found == metadata.end() || found->is_null()) return "";
    if (found->is_string()) return found->get<std::string>();
    errors.push_back({fmt::format("metadata.{}", key), FieldErrorClass::kTypeInvalid,
                      fmt::format("must be text (got {}); quote it", found->dump())});
    return "";
  };
  const std::string name = text("name");
  if (name.empty() && text("generateName").empty() && errors.empty()) {
    errors.push_back({"metadata.name", FieldErrorClass::kRequired, "name or generateName is required"});
  } else if (!name.empty() && !dns_subdomain(name)) {
    errors.push_back(
        {"metadata.name", FieldErrorClass::kInvalid,
         fmt::format("must be lower-case letters, digits, '-' and '.', with a letter or digit first and last (got \"{}\")",
                     name)});
  }
  const std::string name_space = text("namespace");
  if (!name_space.empty() && !namespaced) {
    errors.push_back({"metadata.namespace", FieldErrorClass::kForbidden, "not allowed on this type"});
  } else if (!name_space.empty() && !dns_label(name_space)) {
    errors.push_back({"metadata.namespace", FieldErrorClass::kInvalid,
                      fmt::format("must be at most 63 lower-case letters, digits and '-' (got \"{}\")", name_space)});
  }
  if (!metadata.is_object()) return errors;
  check_map(metadata, "labels", true, &errors);
  check_map(metadata, "annotations", false, &errors);
  for (const auto& [key, value] : metadata.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) {
      errors.push_back({"metadata." + key, FieldErrorClass::kUnknownField, "metadata has no such field"});
    }
  }
  return errors;
}

}  // namespace windlass::api
