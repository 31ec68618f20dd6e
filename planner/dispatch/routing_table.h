// RoutingTable: what the controller sends to the gateways. Complete, small, versioned; plain data.
//
// The controller builds it after every plan. A gateway follows the newest table it has seen, and keeps the last good one while
// no controller answers. The version is (lease transitions, counter), so a new leader's table is never older than the last.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/policy_settings.h"
#include "planner/dispatch/role.h"

namespace windlass::dispatch {

struct TableVersion {
  std::int64_t term = 0;     // transitions of the leader's Lease
  std::int64_t counter = 0;  // grows with every change within a term

  auto operator<=>(const TableVersion&) const = default;
};

// The fraction of all requests that one prefill chain starts and one decode chain answers, from the maximum flow between their
// workers (planner/dispatch/pair_flow.h). Only proportions count.
struct DecodeWeight {
  int chain = 0;  // index of a decode chain in ModelRoute::chains
  double weight = 0;

  bool operator==(const DecodeWeight&) const = default;
};

// One path of a request: the workers that it passes in order. A worker with the whole model is a chain of one hop.
struct Chain {
  std::string id;                 // unique within the table: the first worker's name
  std::vector<std::string> hops;  // "host:port" of each worker, in the order of the path; never empty
  Role role = Role::kUnified;
  double service_rate_per_s = 0;  // requests per second of one slot of this chain (mu_k); higher is faster
  int capacity = 0;               // concurrent requests within the TPOT objective (c_k); this gateway's share of them
  bool draining = false;          // takes no new requests; those in flight continue
  int latency = -1;               // index of its workers' latency in ModelRoute::latencies; -1: unknown
  double share = 1;               // fraction of the chain's slots that this gateway has; other gateways use the rest
  // For a prefill chain: how to spread the second steps of its requests while slots are free. Their sum is the chain's share of
  // requests among equals. A decode chain that is missing has a weight of 0. Empty: no preference.
  std::vector<DecodeWeight> decode_weights = {};
  std::string token = {};  // the workers require this bearer token; empty: none required. Never log it

  bool operator==(const Chain&) const = default;
};

struct ModelRoute {
  std::string served_name;  // the "model" of an OpenAI request
  std::string name_space;   // of the ModelService
  std::string service;      // name of the ModelService
  double ttft_slo_s = 0;    // objectives for judging a request at the gateway
  double tpot_slo_s = 0;
  int max_queued = 0;  // requests that may wait at one gateway; further ones get 429
  int max_context_tokens = 0;
  double expected_start_s = 0;                        // while no worker is ready: expected time of the first one; 0: unknown
  PolicySettings dispatch{.policy = kDefaultPolicy};  // of the policy that chooses where a request begins
  std::vector<Chain> chains;                          // in a stable order (by id)
  // The latency of each kind of worker once, for policies that place requests by length.
  std::vector<PackingModel> latencies;

  bool operator==(const ModelRoute&) const = default;
};

struct RoutingTable {
  TableVersion version;
  std::vector<ModelRoute> models;  // sorted by served_name

  bool operator==(const RoutingTable&) const = default;
};

// JSON with the fields above as camelCase keys. Errors of from_json name the field, what was found and what is allowed. Known
// fields are checked strictly and unknown ones are ignored, so a controller may be newer than its gateways. A field added after
// the first version may be missing, so it may also be older.
[[nodiscard]] std::string to_json(const RoutingTable& table);
[[nodiscard]] Result<RoutingTable> routing_table_from_json(std::string_view text);

// "3.17" <-> {term 3, counter 17}.
[[nodiscard]] std::string to_string(TableVersion version);
[[nodiscard]] Result<TableVersion> table_version_from_string(std::string_view text);

}  // namespace windlass::dispatch
