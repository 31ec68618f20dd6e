// The custom resources to and from JSON, as the API server sends and takes it.
//
// from_json reads an object that has been validated and defaulted, by the API server or by controller/api/load.h; what does not
// fit its type is still refused with the field's path, what was found and what is allowed. Unknown fields are passed over: a
// newer schema must not stop an older controller. to_json leaves out what is absent.
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

// Whole objects, with apiVersion and kind. `status` is included only when it says anything.
[[nodiscard]] nlohmann::json to_json(const ModelService& object);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClass& object);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfile& object);

[[nodiscard]] nlohmann::json to_json(const ObjectMeta& metadata);
[[nodiscard]] nlohmann::json to_json(const ModelServiceSpec& spec);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClassSpec& spec);

// The value of "status" alone: what a patch of the status subresource carries.
[[nodiscard]] nlohmann::json to_json(const ModelServiceStatus& status);
[[nodiscard]] nlohmann::json to_json(const AcceleratorClassStatus& status);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfileStatus& status);
[[nodiscard]] nlohmann::json to_json(const Condition& condition);

}  // namespace windlass::api
