// A CRD's structural schema, read once and compiled: patterns and CEL rules included.
//
// Private to controller/api. A keyword that is not interpreted here is an error when the file is read, so that crds/ can't say
// something that only the API server would obey. Never changed after loading: safe on any thread.
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
  std::string field_path;  // "scaling.strategy": where the error is reported, under the rule's own field; may be empty
  FieldErrorClass error_class = FieldErrorClass::kInvalid;
};

struct Schema {
  std::string type;  // "object", "array", "string", "integer", "number", "boolean"; empty: integer or string
  std::string description;
  bool int_or_string = false;
  bool preserve_unknown_fields = false;
  std::vector<std::pair<std::string, std::unique_ptr<Schema>>> properties;  // in the file's order
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
  std::vector<std::string> list_map_keys;  // of x-kubernetes-list-type: map
  std::optional<nlohmann::json> default_value;
  std::vector<Rule> rules;

  [[nodiscard]] const Schema* property(const std::string& name) const;  // nullptr when there is none
};

struct Crd {
  std::string kind;
  std::string plural;
  bool namespaced = true;
  Schema root;
};

// From the text of a CRD file of one version.
[[nodiscard]] Result<Crd> load_crd(const std::string& yaml, const std::string& source_name);

// crds/, as compiled in, in the order of their kinds; an error if any file of it is not sound.
[[nodiscard]] const Result<std::vector<Crd>>& embedded_crds();

// nullptr when crds/ has no such kind.
[[nodiscard]] const Crd* find_crd(std::string_view kind);

}  // namespace windlass::api
