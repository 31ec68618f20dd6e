// Problem: the input of a placement strategy. It has a model, its requests, objectives, and the workers it may use.
//
// Plain data plus one interface (Requests). A strategy chooses among `kinds`, whose latency models are built before the search,
// so all strategies use the same predictions. Immutable during a search and shared between its threads. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/deployment.h"
#include "planner/deployment/engine_space.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/time_errors.h"
#include "planner/perf/transfer_times.h"
#include "planner/sim/serving_options.h"
#include "planner/workload/request_source.h"

namespace windlass::search {

using planner::Chain;
using planner::Deployment;
using planner::Hop;
using planner::PairShare;
using planner::Pool;
using planner::WorkerSpec;

enum class Goal { kCost, kPower, kThroughput };
const char* to_string(Goal goal);  // "cost", "power", "throughput"

// GPUs of one class: price and power are the spec's, per GPU.
struct AcceleratorChoice {
  planner::AcceleratorSpec spec;
  int gpus = std::numeric_limits<int>::max();  // that a plan may use
};

// A kind of worker that a plan may use.
struct WorkerKind {
  int accelerator = 0;  // index in Problem::accelerators
  int tensor_parallel = 1;
  int pipeline_stages = 1;
  std::shared_ptr<const planner::IterationModel> model;  // of the whole worker
  double kv_capacity_tokens = 0;                         // of the whole worker
  planner::TimeErrors errors = {};                       // of the model
  // Paths for caches transferred to such a worker, replacing the problem's where they were measured.
  std::optional<planner::KvTransferPath> within_node = std::nullopt, between_nodes = std::nullopt;

  [[nodiscard]] int gpus() const { return tensor_parallel * pipeline_stages; }
};

// Effect of a lower GPU power limit on a worker (Splitwise, Sections III-F and IV-D).
struct PowerCap {
  double gpu_share = 0.5;      // the limit, as a share of a GPU's power
  double machine_share = 0.7;  // the resulting share of the machine's power: other parts keep theirs (Table V: 1.23 of 1.75)
  double token_slowdown = 1;   // factor of decode iterations: no slowdown above half of the power (Fig. 9b)
  // Factor of iterations with prompts. "Highly sensitive" (Fig. 9a), without a number; assumes that compute falls with power.
  double prompt_slowdown = 2;
};

// A kind that was excluded, and why: "v100-32gb, TP 1: ...".
struct UnfitKind {
  int accelerator = 0;
  int tensor_parallel = 1;
  int pipeline_stages = 1;
  std::string why;
};

// The requests to serve. Implementations are immutable.
class Requests {
 public:
  virtual ~Requests() = default;
  // `count` requests that arrive at this mean rate, fewer if a trace ends first. One seed gives one sequence; lengths do not
  // depend on the rate. REQUIRES: rate > 0, count >= 1. Borrows from this.
  [[nodiscard]] virtual std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double requests_per_s,
                                                                        std::int64_t count) const = 0;
  [[nodiscard]] virtual double mean_input_tokens() const = 0;
  [[nodiscard]] virtual double mean_output_tokens() const = 0;
};

// (input, output) tokens of `count` requests of the seed, fewer if a trace ends first.
[[nodiscard]] std::vector<std::pair<int, int>> lengths_of(const Requests& requests, std::uint64_t seed, std::int64_t count);

// A figure of a run that an objective may limit. TPOT, and also TBT, is a request's mean gap between tokens (Vidur limits the
// gap of each token: docs/algorithms/latency.md). Slowdowns are relative to the request alone on the problem's reference.
enum class Metric { kTtft, kTpot, kE2e, kSchedulingDelay, kTtftSlowdown, kTbtSlowdown, kE2eSlowdown };
const char* to_string(Metric metric);  // "TTFT", "TPOT", "E2E", "scheduling delay", "TTFT slowdown", ...
[[nodiscard]] bool is_slowdown(Metric metric);

// `percentile` percent of the requests must have at most `most` (seconds, or a ratio for slowdowns).
struct Limit {
  Metric metric = Metric::kTtft;
  double percentile = 95;  // 50, 90, 95 or 99
  double most = 0;
};

struct Objectives {
  // At least `attainment` of the requests must meet both (DistServe's SLO attainment). An objective that is not set is
  // infinite; if neither is set, only `limits` apply.
  std::optional<sim::ServingObjectives> both;
  double attainment = 0.95;
  std::vector<Limit> limits;
};

struct Problem {
  std::string name;  // for messages
  planner::ModelShape shape;
  std::vector<AcceleratorChoice> accelerators;
  std::vector<WorkerKind> kinds;       // by accelerator, then GPUs, then tensor parallelism
  std::vector<UnfitKind> unfit;        // in the same space
  const Requests* requests = nullptr;  // borrowed
  double requests_per_s = 0;           // that a plan must serve
  Objectives objectives;
  Goal goal = Goal::kCost;
  planner::EngineSettings engine;                // unless a strategy chooses them itself; kv_blocks depends on the kind
  planner::EngineSpace engines;                  // what a strategy may choose
  planner::End times = planner::End::kExpected;  // of all workers; the others are for intervals, not for a search
  // Transfer of KV caches between workers on one node and between nodes, if not measured.
  planner::KvTransferPath within_node, between_nodes;
  std::shared_ptr<const planner::IterationModel> slowdown_reference;  // null: no slowdowns
  PowerCap power_cap;                                                 // for workers with WorkerSpec::power_share below 1
  double predictor_slowdown = 1.1;                 // factor of iterations on instances that run a length predictor (TetriInfer,
                                                   // Fig. 17)
  int max_gpus = std::numeric_limits<int>::max();  // for the whole plan
  double max_cost_per_hour = std::numeric_limits<double>::infinity();
  // Nodes and links on which a strategy may place workers; null: only the GPUs of each class are known.
  std::shared_ptr<const hetero::GpuCluster> cluster;
  std::int64_t requests_per_trial = 2000;  // per simulation, unless a strategy has its own number
  std::uint64_t seed = 0;

  [[nodiscard]] const WorkerKind& kind_at(int kind) const { return kinds[static_cast<std::size_t>(kind)]; }
  // Workers of a kind with the problem's engine settings.
  [[nodiscard]] Pool pool(int kind, dispatch::Role role = dispatch::Role::kUnified, int workers = 1) const {
    const WorkerKind& of = kind_at(kind);
    return {{spec(of).name, of.tensor_parallel, of.pipeline_stages, engine}, role, workers};
  }
  [[nodiscard]] const planner::AcceleratorSpec& spec(const WorkerKind& kind) const {
    return accelerators[static_cast<std::size_t>(kind.accelerator)].spec;
  }
  // Path of caches transferred to a decode worker.
  [[nodiscard]] const planner::KvTransferPath& path_to(const WorkerKind& decode, bool same_node) const {
    const std::optional<planner::KvTransferPath>& measured = same_node ? decode.within_node : decode.between_nodes;
    return measured ? *measured : same_node ? within_node : between_nodes;
  }
  [[nodiscard]] double price_per_hour(const WorkerKind& kind) const { return kind.gpus() * spec(kind).price_per_hour; }
  [[nodiscard]] double power_watts(const WorkerKind& kind) const { return kind.gpus() * spec(kind).power_watts; }
};

// Errors name the field and the rule: no kind at all (with why each was unfit), a rate that is not positive, a percentile that
// is not recorded, a slowdown without a reference.
[[nodiscard]] Result<void> validate(const Problem& problem);
// For strategies that place on nodes: also checks the cluster, by validate() of gpu_cluster.h.
[[nodiscard]] Result<void> validate_cluster(const Problem& problem);
// Like validate() without the kinds, for callers that make their own workers.
[[nodiscard]] Result<void> validate_question(const Problem& problem);

}  // namespace windlass::search
