// Parses, defaults, validates and converts objects. All documents are checked before anything is returned, so that one run
// reports every error.
#include "controller/api/load.h"

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/validation.h"
#include "controller/api/yaml.h"

namespace windlass::api {
namespace {

using nlohmann::json;

constexpr std::size_t kErrorsListed = 100;  // per object

std::string text_of(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

// "ModelService default/tiny", with what is known of kind, namespace and name.
std::string title_of(const json& object) {
  std::string kind = text_of(object, "kind");
  if (kind.empty()) kind = "object";
  const json metadata = object.is_object() && object.contains("metadata") ? object["metadata"] : json();
  const std::string name = text_of(metadata, "name");
  const std::string name_space = text_of(metadata, "namespace");
  if (name.empty()) return kind;
  return name_space.empty() ? fmt::format("{} {}", kind, name) : fmt::format("{} {}/{}", kind, name_space, name);
}

// The line of the field, or of its nearest parent that has one.
int line_of(const YamlDocument& document, std::string path) {
  for (;;) {
    const auto found = document.line_of.find(path);
    if (found != document.line_of.end() && !path.empty()) return found->second;
    const std::size_t cut = path.find_last_of(".[");
    if (cut == std::string::npos) return document.line;
    path.resize(cut);
  }
}

Result<Object> convert(const json& object, const std::string& source, int line) {
  if (text_of(object, "kind") == ModelService::kKind) {
    WINDLASS_ASSIGN_OR_RETURN(ModelService service, model_service_from_json(object));
    return Object{source, line, std::move(service)};
  }
  if (text_of(object, "kind") == PerformanceProfile::kKind) {
    WINDLASS_ASSIGN_OR_RETURN(PerformanceProfile profile, performance_profile_from_json(object));
    return Object{source, line, std::move(profile)};
  }
  WINDLASS_ASSIGN_OR_RETURN(AcceleratorClass accelerator, accelerator_class_from_json(object));
  return Object{source, line, std::move(accelerator)};
}

void load_text(const std::string& source, std::string_view text, const std::string& default_namespace,
               std::vector<Object>* objects, std::vector<std::string>* errors) {
  const auto documents = parse_yaml(text, source);
  if (!documents.ok()) {
    errors->push_back(documents.error().message);
    return;
  }
  for (const YamlDocument& document : *documents) {
    json object = json::parse(document.json, nullptr, false);
    if (object.is_object() && is_namespaced(text_of(object, "kind")) && object.contains("metadata") &&
        object["metadata"].is_object() && !object["metadata"].contains("namespace")) {
      object["metadata"]["namespace"] = default_namespace;
    }
    const std::vector<FieldError> found = validate(object);
    for (const FieldError& error : std::span(found).first(std::min(found.size(), kErrorsListed))) {
      errors->push_back(fmt::format("{}:{}: {}: {}", source, line_of(document, error.path), title_of(object), error.text()));
    }
    if (found.size() > kErrorsListed) {
      errors->push_back(
          fmt::format("{}:{}: {}: {} more errors", source, document.line, title_of(object), found.size() - kErrorsListed));
    }
    if (!found.empty()) continue;
    Result<Object> converted = convert(with_defaults(std::move(object)), source, document.line);
    if (converted.ok()) {
      objects->push_back(std::move(converted).value());
    } else {
      errors->push_back(fmt::format("{}:{}: {}", source, document.line, converted.error().message));
    }
  }
}

}  // namespace

std::string Object::title() const {
  if (const auto* service = std::get_if<ModelService>(&value)) {
    return fmt::format("{} {}/{}", ModelService::kKind, service->metadata.name_space, service->metadata.name);
  }
  if (const auto* profile = std::get_if<PerformanceProfile>(&value)) {
    return fmt::format("{} {}/{}", PerformanceProfile::kKind, profile->metadata.name_space, profile->metadata.name);
  }
  return fmt::format("{} {}", AcceleratorClass::kKind, std::get<AcceleratorClass>(value).metadata.name);
}

Result<std::vector<Object>> load_objects(const std::vector<std::pair<std::string, std::string>>& sources,
                                         const std::string& default_namespace) {
  std::vector<Object> objects;
  std::vector<std::string> errors;
  for (const auto& [source, text] : sources) load_text(source, text, default_namespace, &objects, &errors);
  std::map<std::string, const Object*> seen;
  for (const Object& object : objects) {
    const auto [first, is_new] = seen.emplace(object.title(), &object);
    if (is_new) continue;
    errors.push_back(fmt::format("{}:{}: {}: metadata.name: Duplicate value: the same object stands at {}:{}", object.source,
                                 object.line, object.title(), first->second->source, first->second->line));
  }
  if (errors.empty()) return objects;
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}", fmt::join(errors, "\n"))};
}

Result<std::vector<Object>> load_objects(std::string_view text, const std::string& source_name,
                                         const std::string& default_namespace) {
  return load_objects({{source_name, std::string(text)}}, default_namespace);
}

}  // namespace windlass::api
