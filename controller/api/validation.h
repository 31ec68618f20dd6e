// Validation and defaulting of objects against crds/, as the API server does both.
//
// The CRD files are compiled in (controller/api/CMakeLists.txt), so that crds/ stays the only source and the binary needs no
// file. Field paths and classes are the API server's; a broken CEL rule reports its `message` word for word. Thread-safe: the
// schemas are read once and never changed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"

namespace windlass::api {

// The API server's classes (StatusCause.reason), and the two that it reports as a strict decoding error.
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
  std::string detail = {};  // what was found and what is allowed; or a broken CEL rule's message, word for word
  std::string shown = {};   // beside a rule's message: what was found, where that is a single value

  // "spec.scaling.minWorkers: Invalid value: minWorkers must be between 0 and maxWorkers (found 5)"
  [[nodiscard]] std::string text() const;

  bool operator==(const FieldError&) const = default;
};

// The kinds of crds/, in alphabetical order: "AcceleratorClass", "ModelService", "PerformanceProfile".
[[nodiscard]] std::vector<std::string> known_kinds();
[[nodiscard]] bool is_namespaced(std::string_view kind);  // REQUIRES: a known kind

// What the API server would say of creating this object with strict field validation; empty when it would take it. Defaults
// are applied first. REQUIRES: object is a JSON object; its apiVersion and kind are checked too.
[[nodiscard]] std::vector<FieldError> validate(const nlohmann::json& object);

// The object with the schema's defaults filled in. A kind that is not known comes back as it is.
[[nodiscard]] nlohmann::json with_defaults(nlohmann::json object);

// A CRD file's own soundness: it parses, and every CEL rule in it is within what we interpret. All of crds/ by default.
[[nodiscard]] Result<void> check_crds();

}  // namespace windlass::api
