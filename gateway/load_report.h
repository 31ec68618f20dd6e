// Writes the load report that a gateway sends with each poll of the routing table. It has two parts: requests per model, by
// which the controller divides slots among gateways, and requests beyond this gateway's share of a chain. No other gateway
// may use the slots of the second part until those requests end.
#pragma once

#include <map>
#include <string>

#include "gateway/router.h"

namespace windlass::gateway {

// {"MODEL":[in flight, queued],...} for models that have requests, in one line of ASCII. At most max_bytes long: models with
// the longest queues go first, because only queues move shares.
[[nodiscard]] std::string load_report(const Router& router, std::size_t max_bytes = 6000);

// Requests in flight by model and chain, where they exceed what the table allows: the share shrank, or the chain left the
// table, while they ran.
[[nodiscard]] std::map<std::string, std::map<std::string, int>> over_share(const Router& router);

// The same as {"MODEL":{"CHAIN":in flight,...},...}, in one line of ASCII; `"many"` when it would be longer than max_bytes.
[[nodiscard]] std::string over_share_report(const Router& router, std::size_t max_bytes = 2000);

}  // namespace windlass::gateway
