// Decodes base64 (RFC 4648), as kubeconfig files use it. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass::kube {

// nullopt: not base64. Line breaks are ignored; padding is required.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);
[[nodiscard]] std::string base64_encode(std::string_view bytes);

}  // namespace windlass::kube
