// Converts the custom resources to and from JSON, in the form that the API server sends and accepts.
//
// from_json expects an object that the API server or controller/api/load.h has validated and defaulted. A value of the wrong
// type is still refused; the error has the field's path, the rule and the value. Unknown fields are ignored, so that a newer
// schema does not stop an older controller. to_json omits absent fields.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"
#include "controller/api/performance_profile.h"
#include "planner/base/result.h"

namespace windlass::api {

[[nodiscard]] Result<ModelService> model_service_from_json(const nlohmann::json& object);
[[nodiscard]] Result<AcceleratorClass> accelerator_class_from_json(const nlohmann::json& object);
[[nodiscard]] Result<PerformanceProfile> performance_profile_from_json(const nlohmann::json& object);
[[nodiscard]] Result<ObjectMeta> object_meta_from_json(const nlohmann::json& metadata);

// The whole object, with apiVersion and kind. `status` is included only when it is not empty.
[[nodiscard]] nlohmann::json to_json(const ModelService& object);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClass& object);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfile& object);

[[nodiscard]] nlohmann::json to_json(const ObjectMeta& metadata);
[[nodiscard]] nlohmann::json to_json(const ModelServiceSpec& spec);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClassSpec& spec);

// The value of "status" alone, as a patch of the status subresource carries it.
[[nodiscard]] nlohmann::json to_json(const ModelServiceStatus& status);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClassStatus& status);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfileStatus& status);
[[nodiscard]] nlohmann::json to_json(const Condition& condition);

}  // namespace windlass::api
