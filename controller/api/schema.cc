// Compiles a CRD file. Every keyword is interpreted, known to be irrelevant for validation, or refused.
#include "controller/api/schema.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "controller/api/embedded_crds.h"
#include "controller/api/yaml.h"

namespace windlass::api {
namespace {

using nlohmann::json;

// JSON loses the order of a YAML mapping. The line of each path restores it for the properties of a schema.
using Lines = std::map<std::string, int>;

class Loader {
 public:
  Loader(std::string source, const Lines& lines) : source_(std::move(source)), lines_(lines) {}

  Result<void> load(const json& in, const std::string& at, Schema* out) {
    if (!in.is_object()) return refuse(at, "must be a schema object");
    for (const auto& [keyword, value] : in.items()) {
      try {
        WINDLASS_RETURN_IF_ERROR(read(keyword, value, at, out));
      } catch (const json::exception&) {
        return refuse(at + "." + keyword, "must have the type that this keyword takes");
      } catch (const std::regex_error&) {
        return refuse(at + "." + keyword, "must be a pattern that compiles");
      }
    }
    return {};
  }

 private:
  [[nodiscard]] Error refuse(const std::string& at, const std::string& what) const {
    const auto line = lines_.find(at);
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: {}: {}", source_, line == lines_.end() ? 1 : line->second, at, what)};
  }

  Result<void> child(const json& in, const std::string& at, std::unique_ptr<Schema>* out) {
    *out = std::make_unique<Schema>();
    return load(in, at, out->get());
  }

  Result<void> read(const std::string& keyword, const json& value, const std::string& at, Schema* out) {
    static const std::set<std::string> kNoConsequence = {"format", "x-kubernetes-list-type", "example"};
    const std::string here = at + "." + keyword;
    if (keyword == "type") {
      out->type = value.get<std::string>();
    } else if (keyword == "description") {
      out->description = value.get<std::string>();
    } else if (keyword == "x-kubernetes-int-or-string") {
      out->int_or_string = value.get<bool>();
    } else if (keyword == "x-kubernetes-preserve-unknown-fields") {
      out->preserve_unknown_fields = value.get<bool>();
    } else if (keyword == "properties") {
      return properties(value, here, out);
    } else if (keyword == "additionalProperties") {
      return child(value, here, &out->additional_properties);
    } else if (keyword == "items") {
      return child(value, here, &out->items);
    } else if (keyword == "required") {
      out->required = value.get<std::vector<std::string>>();
    } else if (keyword == "enum") {
      out->allowed = value.get<std::vector<std::string>>();
    } else if (keyword == "minimum") {
      out->minimum = value.get<double>();
    } else if (keyword == "maximum") {
      out->maximum = value.get<double>();
    } else if (keyword == "minLength") {
      out->min_length = value.get<std::size_t>();
    } else if (keyword == "maxLength") {
      out->max_length = value.get<std::size_t>();
    } else if (keyword == "minItems") {
      out->min_items = value.get<std::size_t>();
    } else if (keyword == "maxItems") {
      out->max_items = value.get<std::size_t>();
    } else if (keyword == "minProperties") {
      out->min_properties = value.get<std::size_t>();
    } else if (keyword == "maxProperties") {
      out->max_properties = value.get<std::size_t>();
    } else if (keyword == "pattern") {
      out->pattern_text = value.get<std::string>();
      out->pattern.emplace(out->pattern_text);
    } else if (keyword == "x-kubernetes-list-map-keys") {
      out->list_map_keys = value.get<std::vector<std::string>>();
    } else if (keyword == "default") {
      out->default_value = value;
    } else if (keyword == "x-kubernetes-validations") {
      return rules(value, here, out);
    } else if (kNoConsequence.count(keyword) == 0) {
      return refuse(here, "this keyword is not interpreted by controller/api/schema.cc");
    }
    return {};
  }

  Result<void> properties(const json& value, const std::string& at, Schema* out) {
    std::vector<std::pair<int, std::string>> order;
    for (const auto& [name, schema] : value.items()) {
      const auto line = lines_.find(at + "." + name);
      order.emplace_back(line == lines_.end() ? 0 : line->second, name);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [line, name] : order) {
      std::unique_ptr<Schema> schema;
      WINDLASS_RETURN_IF_ERROR(child(value.at(name), at + "." + name, &schema));
      out->properties.emplace_back(name, std::move(schema));
    }
    return {};
  }

  Result<void> rules(const json& value, const std::string& at, Schema* out) {
    static const std::map<std::string, FieldErrorClass> kReasons = {{"FieldValueInvalid", FieldErrorClass::kInvalid},
                                                                    {"FieldValueForbidden", FieldErrorClass::kForbidden},
                                                                    {"FieldValueRequired", FieldErrorClass::kRequired},
                                                                    {"FieldValueDuplicate", FieldErrorClass::kDuplicate}};
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string here = fmt::format("{}[{}]", at, i);
      Rule rule;
      for (const auto& [keyword, content] : value[i].items()) {
        if (keyword == "rule") {
          rule.text = content.get<std::string>();
        } else if (keyword == "message") {
          rule.message = content.get<std::string>();
        } else if (keyword == "fieldPath" && content.get<std::string>().starts_with(".")) {
          rule.field_path = content.get<std::string>().substr(1);
        } else if (keyword == "reason" && kReasons.count(content.get<std::string>()) != 0) {
          rule.error_class = kReasons.at(content.get<std::string>());
        } else {
          return refuse(here + "." + keyword, "this is not interpreted by controller/api/schema.cc");
        }
      }
      if (rule.message.empty()) return refuse(here, "must have a message");
      auto parsed = cel::parse(rule.text);
      if (!parsed.ok()) return refuse(here + ".rule", parsed.error().message);
      rule.expression = std::move(parsed).value();
      out->rules.push_back(std::move(rule));
    }
    return {};
  }

  std::string source_;
  const Lines& lines_;
};

}  // namespace

const Schema* Schema::property(const std::string& name) const {
  for (const auto& [key, schema] : properties) {
    if (key == name) return schema.get();
  }
  return nullptr;
}

Result<Crd> load_crd(const std::string& yaml, const std::string& source_name) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<YamlDocument> documents, parse_yaml(yaml, source_name));
  const auto refuse = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", source_name, what)};
  };
  if (documents.size() != 1) return refuse(fmt::format("must hold one document (got {})", documents.size()));
  const json file = json::parse(documents[0].json);
  Crd crd;
  try {
    const json& spec = file.at("spec");
    crd.kind = spec.at("names").at("kind").get<std::string>();
    crd.plural = spec.at("names").at("plural").get<std::string>();
    crd.namespaced = spec.at("scope").get<std::string>() == "Namespaced";
    if (spec.at("versions").size() != 1)
      return refuse(fmt::format("spec.versions: must have one item (got {})", spec.at("versions").size()));
    const json& schema = spec.at("versions").at(0).at("schema").at("openAPIV3Schema");
    Loader loader(source_name, documents[0].line_of);
    WINDLASS_RETURN_IF_ERROR(loader.load(schema, "spec.versions[0].schema.openAPIV3Schema", &crd.root));
  } catch (const json::exception& error) {
    return refuse(fmt::format("not a CustomResourceDefinition: {}", error.what()));
  }
  return crd;
}

const Result<std::vector<Crd>>& embedded_crds() {
  static const Result<std::vector<Crd>> kCrds = []() -> Result<std::vector<Crd>> {
    std::vector<Crd> crds;
    for (const EmbeddedCrd& file : embedded_crd_files()) {
      WINDLASS_ASSIGN_OR_RETURN(Crd crd, load_crd(file.yaml, "crds/" + std::string(file.name)));
      crds.push_back(std::move(crd));
    }
    std::sort(crds.begin(), crds.end(), [](const Crd& a, const Crd& b) { return a.kind < b.kind; });
    return crds;
  }();
  return kCrds;
}

const Crd* find_crd(std::string_view kind) {
  const auto& crds = embedded_crds();
  if (!crds.ok()) return nullptr;
  for (const Crd& crd : *crds) {
    if (crd.kind == kind) return &crd;
  }
  return nullptr;
}

}  // namespace windlass::api
