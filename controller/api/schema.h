// Schema is the structural schema of a CRD, loaded from its YAML. Regular expressions and CEL rules are compiled once, when it
// is loaded.
//
// Private to controller/api. Loading fails on any keyword that is not interpreted here; otherwise the API server could enforce
// something in crds/ that this code ignores. Immutable after loading, so any thread may use it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/api/cel/parser.h"
#include "controller/api/validation.h"
#include "planner/base/result.h"

namespace windlass::api {

struct Rule {
  std::unique_ptr<cel::Node> expression;
  std::string text;
  std::string message;
  // where the error is reported, relative to the rule's field, such as "scaling.strategy"; may be empty
  std::string field_path;
  FieldErrorClass error_class = FieldErrorClass::kInvalid;
};

struct Schema {
  std::string type;  // "object", "array", "string", "integer", "number", "boolean"; empty: integer or string
  std::string description;
  bool int_or_string = false;
  bool preserve_unknown_fields = false;
  std::vector<std::pair<std::string, std::unique_ptr<Schema>>> properties;  // in file order
  std::unique_ptr<Schema> additional_properties;
  std::unique_ptr<Schema> items;
  std::vector<std::string> required;
  std::vector<std::string> allowed;  // enum
  std::optional<double> minimum;
  std::optional<double> maximum;
  std::optional<std::size_t> min_length;
  std::optional<std::size_t> max_length;
  std::optional<std::size_t> min_items;
  std::optional<std::size_t> max_items;
  std::optional<std::size_t> min_properties;
  std::optional<std::size_t> max_properties;
  std::optional<std::regex> pattern;
  std::string pattern_text;
  std::vector<std::string> list_map_keys;  // for x-kubernetes-list-type: map
  std::optional<nlohmann::json> default_value;
  std::vector<Rule> rules;

  [[nodiscard]] const Schema* property(const std::string& name) const;  // nullptr if there is none
};

struct Crd {
  std::string kind;
  std::string plural;
  bool namespaced = true;
  Schema root;
};

// Loads the text of a CRD file that defines one version.
[[nodiscard]] Result<Crd> load_crd(const std::string& yaml, const std::string& source_name);

// The compiled-in CRDs, ordered by kind. Error: a file is invalid.
[[nodiscard]] const Result<std::vector<Crd>>& embedded_crds();

// nullptr if crds/ has no such kind.
[[nodiscard]] const Crd* find_crd(std::string_view kind);

}  // namespace windlass::api
