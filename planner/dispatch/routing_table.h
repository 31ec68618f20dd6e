// The routing table: what the controller tells the gateways. Whole and small, versioned, plain data.
//
// The controller builds it after every plan; a gateway obeys the newest it has seen and keeps the last good one while no
// controller answers. The version is (lease transitions, counter), so a new leader is never older than the last.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/role.h"

namespace windlass::dispatch {

struct TableVersion {
  std::int64_t term = 0;     // transitions of the leader's Lease
  std::int64_t counter = 0;  // grows with every change within a term

  auto operator<=>(const TableVersion&) const = default;
};

// The part of all requests that one prefill chain begins and one decode chain answers, as a maximum flow between their workers
// has it (planner/dispatch/pair_flow.h). Only proportions count.
struct DecodeWeight {
  int chain = 0;  // in ModelRoute::chains; a decode chain
  double weight = 0;

  bool operator==(const DecodeWeight&) const = default;
};

// One way a request can take: the workers it passes in order. A whole-model worker is a chain of one hop.
struct Chain {
  std::string id;                 // unique within the table: the first worker's name
  std::vector<std::string> hops;  // "host:port" of each worker, in the order in which a request passes them; never empty
  Role role = Role::kUnified;
  double service_rate_per_s = 0;  // requests per second of one slot of this chain (mu_k); higher is faster
  int capacity = 0;               // requests it may hold at once inside the TPOT objective (c_k); a gateway's own share of it
  bool draining = false;          // takes no new request; what is in flight goes on
  int latency = -1;               // its workers' in ModelRoute::latencies; -1: not known
  double share = 1;               // of the chain's slots that this gateway has; others load it with the rest
  // Of a prefill chain: how its requests' second steps are spread while slots are free, and by their sum how many requests it
  // begins among equals. A decode chain that is not here has a weight of 0. Empty: no preference.
  std::vector<DecodeWeight> decode_weights = {};
  std::string token =
      {};  // its workers take requests with this bearer token alone; empty: they ask for none. Never to be logged

  bool operator==(const Chain&) const = default;
};

struct ModelRoute {
  std::string served_name;  // "model" of an OpenAI request
  std::string name_space;   // of the ModelService
  std::string service;      // its name
  double ttft_slo_s = 0;    // objectives by which the gateway judges a request
  double tpot_slo_s = 0;
  int max_queued = 0;  // requests that may wait at one gateway; one more gets 429
  int max_context_tokens = 0;
  double expected_start_s = 0;  // while no worker is ready: when the first one is expected to be; 0: not known
  std::vector<Chain> chains;    // in a stable order (by id)
  // Of the chains' workers, each kind once: for policies that place requests by their lengths.
  std::vector<PackingModel> latencies;

  bool operator==(const ModelRoute&) const = default;
};

struct RoutingTable {
  TableVersion version;
  std::vector<ModelRoute> models;  // in the order of served_name

  bool operator==(const RoutingTable&) const = default;
};

// JSON, keys as the fields above in camelCase. from_json names the field, what was found and what is allowed. It is strict on
// the fields that it knows and passes over others, so that a controller may be newer than its gateways; a field that was added
// after the first version may be missing, so that it may also be older.
[[nodiscard]] std::string to_json(const RoutingTable& table);
[[nodiscard]] Result<RoutingTable> routing_table_from_json(std::string_view text);

// "3.17" <-> {term 3, counter 17}.
[[nodiscard]] std::string to_string(TableVersion version);
[[nodiscard]] Result<TableVersion> table_version_from_string(std::string_view text);

}  // namespace windlass::dispatch
