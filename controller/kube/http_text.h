// Converts JSON to text without exceptions. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace windlass::kube {

// Compact JSON. Invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string to_text(const nlohmann::json& value);

}  // namespace windlass::kube
