// What clients see of the worker that served them: X-Windlass-Worker, and errors.
#pragma once

#include <string>
#include <string_view>

namespace windlass::gateway {

// The first 16 digits of the SHA-256 of a chain's name, which holds namespace and pod: the same at all gateways, and who knows
// the names can tell which one it is.
[[nodiscard]] std::string worker_id(std::string_view chain);

}  // namespace windlass::gateway
