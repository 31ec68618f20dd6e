// Deployment: pools of like workers, where they stand, and how requests find them: what strategies propose and the simulator
// tries. Plain data. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/deployment/engine_settings.h"
#include "planner/deployment/pool_name.h"
#include "planner/dispatch/dispatch_settings.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/role.h"

namespace windlass::planner {

// What a worker is. A worker of another spec is another pod; its role is not part of it, for that changes while it runs.
struct WorkerSpec {
  std::string accelerator;  // a class
  int tensor_parallel = 1;
  int pipeline_stages = 1;
  EngineSettings engine = {};     // kv_blocks 0: as many as fit beside the weights
  double power_share = 1;         // of its GPUs' power, where that is capped (Splitwise's HHcap)
  bool length_predictor = false;  // runs TetriInfer's predictor beside the model

  [[nodiscard]] int gpus() const { return tensor_parallel * pipeline_stages; }

  bool operator==(const WorkerSpec&) const = default;
};

// What one worker delivers, for the lengths that are believed now; worked out again in every plan.
struct Yield {
  int max_concurrency = 0;  // requests in its batch, a flag of it. Of the spec alone, so that load never restarts a worker
  int slots = 0;            // chain capacity in the routing table: 1..max_concurrency, follows the observed lengths
  double service_rate_per_s = 0;     // requests per second of one slot, at a full batch (mu)
  std::int64_t kv_cache_tokens = 0;  // KV cache of one worker
  // Eq. 1 to 3 of one worker, for gateways that place requests by their lengths; in steps of two digits. 0 everywhere: not
  // known.
  dispatch::PackingModel packing{.kv_request_tokens = 0, .most_requests = 0};

  bool operator==(const Yield&) const = default;
};

// Workers of one spec and role.
struct Pool {
  WorkerSpec spec;
  dispatch::Role role = dispatch::Role::kUnified;
  int workers = 0;
  std::string name = {};  // a DNS label, fixed by the spec: "h100-2". Pools of one service may differ in their role alone
  Yield each = {};        // where a policy has planned it

  [[nodiscard]] PoolId id() const { return {name, role}; }

  bool operator==(const Pool&) const = default;
};

// Consecutive layers of a copy of the model on one worker.
struct Hop {
  int pool = 0;  // of Deployment::pools
  int slot = 0;  // of its workers
  int layers = 0;
  std::vector<int> gpus;  // of the problem's cluster
};

// Workers that hold a copy of the model between them, where a strategy places them on nodes.
struct Chain {
  dispatch::Role role = dispatch::Role::kUnified;
  std::vector<Hop> hops;      // in the order of the layers
  double requests_per_s = 0;  // that it serves
  double latency_s = 0;       // of one request's phase, alone (prefill) or in the largest batch (decode)
  int batch = 1;              // requests at once

  [[nodiscard]] std::vector<int> gpus() const;  // of all its hops, ascending
  [[nodiscard]] int tensor_parallel() const;    // of every hop, or the largest where they differ
};

// What a prefill and a decode chain share: requests that the one prefills and the other decodes.
struct PairShare {
  int from = 0, to = 0;  // of Deployment::chains
  double requests_per_s = 0;
  double capacity_requests_per_s = 0;
  double share = 0;  // of all requests
};

struct Deployment {
  std::vector<Pool> pools;       // unified ones alone, or prefill and decode
  std::vector<Chain> chains;     // none: every worker holds the whole model and stands anywhere in its class
  std::vector<PairShare> pairs;  // between chains; none: any decode worker for any prefill worker
  dispatch::DispatchSettings dispatch{.policy = dispatch::PolicyKind::kJsq};
  bool pairs_share_a_node = false;  // prefill and decode workers: caches move within a node
};

// Adds a chain whose hops run on workers of these specs. Each worker is the next slot of the pool of its spec and the chain's
// role.
void add_chain(Deployment& deployment, Chain chain, const std::vector<WorkerSpec>& specs);

[[nodiscard]] int gpus_of(const Deployment& deployment);

// "h100-2", with two pipeline stages "h100-4-pp2", with other settings of the engine "h100-2-1f3a": a DNS label of at most 30
// characters. Workers of unlike specs never share a name.
[[nodiscard]] std::string pool_name(const WorkerSpec& spec);

// For people: "h100-80gb-2", "h100-80gb-4 (PP 2)".
[[nodiscard]] std::string worker_text(const WorkerSpec& spec);
// "4 x h100-80gb-2", "prefill 2 x h100-80gb-1 + decode 3 x a100-80gb-4 (PP 2)", "... (at 70 % of its power)"; of chains
// "decode 1 x (1 h100-80gb, 3 a100-80gb) (PP 2)".
[[nodiscard]] std::string describe(const Deployment& deployment);

}  // namespace windlass::planner
