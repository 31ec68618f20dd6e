// Keeps a JSON object as one string of bytes (CBOR). nlohmann::json takes about 150 bytes for each field, so thousands of pods
// and ModelServices kept as such would be most of the controller's memory.
#pragma once

#include <nlohmann/json.hpp>

namespace windlass::kube {

// Leaves metadata.name, namespace, uid and resourceVersion readable, and packs the whole object. Does nothing to an object
// without metadata.
void pack(nlohmann::json& object);

// The object before pack(). An object that is not packed is returned as it is.
[[nodiscard]] nlohmann::json unpacked(const nlohmann::json& object);

}  // namespace windlass::kube
