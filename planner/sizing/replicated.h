// Chooses the accelerator and the workers of a service whose workers each hold the whole model. For each accelerator it uses
// Aladdin's worker configuration. Then it takes the accelerator whose workers cost least for the demand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct AcceleratorOption {
  AcceleratorSpec spec;
  int max_gpus_per_worker = 1;
  int available_gpus = 0;  // GPUs available now; an accelerator without room for one worker is used only if none has room
};

struct Candidate {
  WorkerConfig config;
  std::int64_t workers = 0;   // needed for the demand
  double cost_per_hour = 0;   // of these workers
  bool has_room = false;      // for one worker
  double capacity_per_s = 0;  // requests per second of these workers
};

struct ReplicatedInput {
  ModelShape shape;
  Objective objective;
  Lengths lengths;
  double requests_per_s = 0;  // 0: compare the cost per request of one worker each
  int max_context_tokens = 0;
  std::optional<int> max_gpus_per_worker;  // applies to all accelerators, in addition to their own limits
  std::vector<AcceleratorOption> accelerators;
  EngineType engine = EngineType::kWindlass;
  std::span<const WorkerEstimate> estimates = {};  // as in WorkerSearchInput
  bool chained = false;                            // as in WorkerSearchInput; max_gpus_per_worker then limits one server
};

struct ReplicatedResult {
  std::vector<Candidate> candidates;  // feasible ones, best first: room, then cost, then GPUs, then list order
  std::vector<Rejected> rejected;
  // The smallest TPOT objective that any candidate could meet. 0 if the model fits nowhere.
  double smallest_tpot_s = 0;
  double smallest_ttft_s = 0;
  std::string smallest_tpot_on;  // "8 x h100"
  std::string smallest_ttft_on;
};

[[nodiscard]] ReplicatedResult place_replicated(const ReplicatedInput& input);

// Evaluates one given configuration: workers with this split on the first accelerator of the input. None if it misses the
// objective. REQUIRES: at least one accelerator.
[[nodiscard]] std::optional<Candidate> replicated_candidate(const ReplicatedInput& input, const GpuSplit& split);

}  // namespace windlass::planner
