// What a gateway tells the controller as it asks for the routing table: its requests by model, by which slots are shared.
#pragma once

#include <string>

#include "gateway/router.h"

namespace windlass::gateway {

// {"MODEL":[in flight, queued],...} for models that have any, in one line of ASCII. At most max_bytes long: those with the
// longest queues go first, since only queues move shares.
[[nodiscard]] std::string load_report(const Router& router, std::size_t max_bytes = 6000);

}  // namespace windlass::gateway
