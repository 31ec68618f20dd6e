// JSON written so that it never throws. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace windlass::kube {

// Compact JSON; bytes that are not UTF-8 become U+FFFD instead of an exception.
[[nodiscard]] std::string to_text(const nlohmann::json& value);

}  // namespace windlass::kube
