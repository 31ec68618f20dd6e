// What a gateway tells the controller as it asks for the routing table: its requests by model, by which slots are shared, and
// what it holds beyond its shares, which are nobody else's before it has ended.
#pragma once

#include <map>
#include <string>

#include "gateway/router.h"

namespace windlass::gateway {

// {"MODEL":[in flight, queued],...} for models that have any, in one line of ASCII. At most max_bytes long: those with the
// longest queues go first, since only queues move shares.
[[nodiscard]] std::string load_report(const Router& router, std::size_t max_bytes = 6000);

// Requests in flight by model and chain, where they are more than the table in use allows: its share shrank, or the chain left
// the table, while they ran.
[[nodiscard]] std::map<std::string, std::map<std::string, int>> over_share(const Router& router);

// The same as {"MODEL":{"CHAIN":in flight,...},...}, in one line of ASCII; `"many"` where that were longer than max_bytes.
[[nodiscard]] std::string over_share_report(const Router& router, std::size_t max_bytes = 2000);

}  // namespace windlass::gateway
