// Deployment: pools of identical workers, where they are placed, and how requests reach them. Strategies propose deployments
// and the simulator tries them. Plain data. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/catalog/gpu_split.h"
#include "planner/deployment/engine_settings.h"
#include "planner/deployment/pool_name.h"
#include "planner/dispatch/dispatch_settings.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/role.h"

namespace windlass::planner {

// The configuration of a worker. A worker with another spec is another pod. The role is not part of it, because it may change
// while the worker runs.
struct WorkerSpec {
  std::string accelerator;  // name of its class
  int tensor_parallel = 1;
  int pipeline_stages = 1;        // more than one: the worker is a chain of servers (GpuSplit)
  EngineSettings engine = {};     // kv_blocks 0: as many as fit next to the weights
  double power_share = 1;         // power limit of its GPUs, as a fraction (Splitwise's HHcap)
  bool length_predictor = false;  // runs TetriInfer's predictor next to the model

  [[nodiscard]] int gpus() const { return tensor_parallel * pipeline_stages; }
  [[nodiscard]] GpuSplit split() const { return {tensor_parallel, pipeline_stages}; }

  bool operator==(const WorkerSpec&) const = default;
};

// What one worker delivers for the lengths currently expected; computed again in every plan.
struct Yield {
  int max_concurrency =
      0;  // requests in its batch; a flag of the worker. Depends on the spec alone, so that load never restarts a worker
  int slots = 0;  // capacity of its chain in the routing table: 1..max_concurrency; depends on the observed lengths
  double service_rate_per_s = 0;     // requests per second of one slot, at a full batch (mu)
  double requests_per_s = 0;         // of the worker within the objective, with room for waiting; 0: unknown
  std::int64_t kv_cache_tokens = 0;  // KV cache of one worker
  // Eq. 1 to 3 of one worker, in steps of two digits, for gateways that place requests by length. All 0: unknown.
  dispatch::PackingModel packing{.kv_request_tokens = 0, .max_requests = 0};

  bool operator==(const Yield&) const = default;
};

// Workers with the same spec and role.
struct Pool {
  WorkerSpec spec;
  dispatch::Role role = dispatch::Role::kUnified;
  int workers = 0;
  std::string name =
      {};  // a DNS label that depends on the spec: "h100-2". Pools of one service may share a name if their roles differ
  Yield each = {};  // set if a policy has planned it

  [[nodiscard]] PoolId id() const { return {name, role}; }

  bool operator==(const Pool&) const = default;
};

// Consecutive layers of a copy of the model, on one worker.
struct Hop {
  int pool = 0;  // index into Deployment::pools
  int slot = 0;  // index of the worker in its pool
  int layers = 0;
  std::vector<int> gpus;  // indices into the problem's cluster

  bool operator==(const Hop&) const = default;
};

// Workers that together hold a copy of the model, if a strategy places them on nodes.
struct Chain {
  dispatch::Role role = dispatch::Role::kUnified;
  std::vector<Hop> hops;      // in layer order
  double requests_per_s = 0;  // rate that it serves
  double latency_s = 0;       // of the phase of one request, alone (prefill) or in the largest batch (decode)
  int batch = 1;              // concurrent requests

  [[nodiscard]] std::vector<int> gpus() const;  // GPUs of all hops, ascending
  [[nodiscard]] int tensor_parallel() const;    // of every hop; the largest if they differ

  bool operator==(const Chain&) const = default;
};

// The fraction of requests that one chain prefills and another decodes.
struct PairShare {
  int from = 0, to = 0;  // indices into Deployment::chains
  double requests_per_s = 0;
  double capacity_requests_per_s = 0;
  double share = 0;  // fraction of all requests

  bool operator==(const PairShare&) const = default;
};

struct Deployment {
  std::vector<Pool> pools;       // only unified pools, or prefill and decode pools
  std::vector<Chain> chains;     // empty: every worker holds the whole model and runs anywhere in its class
  std::vector<PairShare> pairs;  // between chains; empty: any decode worker serves any prefill worker
  dispatch::DispatchSettings dispatch{{.policy = dispatch::PolicyKind::kJsq}};
  bool pairs_share_a_node = false;  // of prefill and decode workers: caches move within a node

  bool operator==(const Deployment&) const = default;
};

// The layers of one stage of a worker, from `first` to `end` - 1. Stages have as many layers as each other, or one more.
struct BlockRange {
  int first = 0, end = 0;

  bool operator==(const BlockRange&) const = default;
};
// REQUIRES: 0 <= stage < stages <= layers.
[[nodiscard]] BlockRange blocks_of_stage(int layers, int stage, int stages);

// Adds a chain whose hops run on workers of these specs. Each worker is the next slot in the pool of its spec and the chain's
// role.
void add_chain(Deployment& deployment, Chain chain, const std::vector<WorkerSpec>& specs);

[[nodiscard]] int gpus_of(const Deployment& deployment);

// "h100-2"; with two pipeline stages "h100-4-pp2"; with other engine settings "h100-2-1f3a". A DNS label of at most 30
// characters. Workers with different specs never share a name.
[[nodiscard]] std::string pool_name(const WorkerSpec& spec);

// For people: "h100-80gb-2", "h100-80gb-4 (PP 2)".
[[nodiscard]] std::string worker_text(const WorkerSpec& spec);
// "4 x h100-80gb-2", "prefill 2 x h100-80gb-1 + decode 3 x a100-80gb-4 (PP 2)", "... (at 70 % of its power)"; for chains
// "decode 1 x (1 h100-80gb, 3 a100-80gb) (PP 2)".
[[nodiscard]] std::string describe(const Deployment& deployment);

}  // namespace windlass::planner
