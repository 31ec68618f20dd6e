// Checks metadata, which no CRD describes: names, namespaces, labels and annotations. Private to controller/api.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "controller/api/validation.h"

namespace windlass::api {

// The errors that the API server would report for the metadata of a new object. REQUIRES: metadata is an object or null.
[[nodiscard]] std::vector<FieldError> check_metadata(const nlohmann::json& metadata, bool namespaced);

}  // namespace windlass::api
