// Validates objects against crds/ and applies defaults, as the API server does.
//
// The CRD files are compiled in (controller/api/CMakeLists.txt), so crds/ is the only source and the binary needs no files.
// Field paths and error classes are the API server's. A violated CEL rule reports its `message` verbatim. Thread-safe: the
// schemas never change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"

namespace windlass::api {

// The API server's classes (StatusCause.reason), and two that it reports as a strict decoding error.
enum class FieldErrorClass {
  kRequired,      // "Required value"       FieldValueRequired
  kInvalid,       // "Invalid value"        FieldValueInvalid
  kTypeInvalid,   // "Invalid value"        FieldValueTypeInvalid
  kNotSupported,  // "Unsupported value"    FieldValueNotSupported
  kDuplicate,     // "Duplicate value"      FieldValueDuplicate
  kTooLong,       // "Too long"             FieldValueTooLong
  kTooMany,       // "Too many"             FieldValueTooMany
  kForbidden,     // "Forbidden"            FieldValueForbidden
  kUnknownField,  // "Unknown field"        strict decoding error: unknown field
};

const char* title(FieldErrorClass error_class);  // "Required value"
const char* cause(FieldErrorClass error_class);  // "FieldValueRequired"; "UnknownField" for the last

struct FieldError {
  std::string path;  // "spec.accelerators[1].class"; empty: the object itself
  FieldErrorClass error_class = FieldErrorClass::kInvalid;
  std::string detail = {};  // the rule and the value, or the verbatim message of a violated CEL rule
  std::string shown = {};   // shown with a CEL rule's message: the value, if it is a scalar

  // "spec.scaling.minWorkers: Invalid value: minWorkers must be between 0 and maxWorkers (got 5)"
  [[nodiscard]] std::string text() const;

  bool operator==(const FieldError&) const = default;
};

// The kinds of crds/, alphabetically: "AcceleratorClass", "ModelService", "PerformanceProfile".
[[nodiscard]] std::vector<std::string> known_kinds();
[[nodiscard]] bool is_namespaced(std::string_view kind);  // REQUIRES: a known kind

// The errors that the API server would report for creating this object with strict field validation; empty if it would accept
// it. Defaults are applied first. apiVersion and kind are checked too. REQUIRES: object is a JSON object.
[[nodiscard]] std::vector<FieldError> validate(const nlohmann::json& object);

// The object with the schema's defaults. An object of an unknown kind is returned unchanged.
[[nodiscard]] nlohmann::json with_defaults(nlohmann::json object);

// Checks the CRD files: each parses, and each CEL rule uses only the supported subset. Default: all of crds/.
[[nodiscard]] Result<void> check_crds();

}  // namespace windlass::api
