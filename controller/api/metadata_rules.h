// The rules of metadata, which stand in no CRD: names, namespaces, labels, annotations. Private to controller/api.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "controller/api/validation.h"

namespace windlass::api {

// What the API server says of the metadata of a new object. REQUIRES: metadata is an object or null.
[[nodiscard]] std::vector<FieldError> check_metadata(const nlohmann::json& metadata, bool namespaced);

}  // namespace windlass::api
