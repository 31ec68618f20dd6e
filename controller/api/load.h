// From the text of a YAML file to objects: parse, default, validate, convert; all errors at once.
//
// What `windlass plan -f`, `windlass up -f` and `windlass validate` use, and the store that is a folder. Nothing is returned
// from a file that has any error in it, so that nothing is half applied.
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
  int line = 1;        // on which the object begins
  std::variant<ModelService, AcceleratorClass, PerformanceProfile> value;

  // "ModelService default/tiny", "AcceleratorClass local-cpu"
  [[nodiscard]] std::string title() const;
};

// All objects of the text, in its order. An object of a namespaced kind without a namespace gets `default_namespace`. The
// error's message has a line for every mistake: "tiny.yaml:12: ModelService default/tiny: spec.slo.percentile: Invalid value:
// found 0, allowed ...".
[[nodiscard]] Result<std::vector<Object>> load_objects(std::string_view text, const std::string& source_name,
                                                       const std::string& default_namespace = "default");

// The objects of several texts together; two of one kind, namespace and name are an error. pair: (source name, text).
[[nodiscard]] Result<std::vector<Object>> load_objects(const std::vector<std::pair<std::string, std::string>>& sources,
                                                       const std::string& default_namespace = "default");

}  // namespace windlass::api
