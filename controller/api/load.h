// Loads objects from YAML text: parses, defaults, validates and converts them, and reports all errors together.
//
// Used by `windlass plan -f`, `windlass up -f`, `windlass validate` and DirectoryStore. A file with any error yields no
// objects, so that no file is half applied.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"
#include "controller/api/performance_profile.h"
#include "planner/base/result.h"

namespace windlass::api {

struct Object {
  std::string source;  // the file's name, as given
  int line = 1;        // where the object begins
  std::variant<ModelService, AcceleratorClass, PerformanceProfile> value;

  // "ModelService default/tiny", "AcceleratorClass local-cpu"
  [[nodiscard]] std::string title() const;
};

// All objects of the text, in order. A namespaced object without a namespace gets `default_namespace`. The error's message has
// one line per mistake: "tiny.yaml:12: ModelService default/tiny: spec.slo.percentile: Invalid value: must be ... (got 0)".
[[nodiscard]] Result<std::vector<Object>> load_objects(std::string_view text, const std::string& source_name,
                                                       const std::string& default_namespace = "default");

// The objects of several texts. Two with the same kind, namespace and name are an error. pair: (source name, text).
[[nodiscard]] Result<std::vector<Object>> load_objects(const std::vector<std::pair<std::string, std::string>>& sources,
                                                       const std::string& default_namespace = "default");

}  // namespace windlass::api
