// The worker id that clients see in X-Windlass-Worker and in errors.
#pragma once

#include <string>
#include <string_view>

namespace windlass::gateway {

// The first 16 digits of the SHA-256 of a chain's name, which contains namespace and pod. All gateways give the same id, and
// somebody who knows the names can find the worker.
[[nodiscard]] std::string worker_id(std::string_view chain);

}  // namespace windlass::gateway
