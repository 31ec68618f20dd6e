// Replicated placement: every worker holds the whole model. For each accelerator Aladdin's worker configuration, then the
// accelerator whose workers cost least for the demand.
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
  int available_gpus =
      0;  // that this service could get now; an accelerator without room for one worker is taken only if all are so
};

struct Candidate {
  WorkerConfig config;
  std::int64_t workers = 0;   // for the demand
  double cost_per_hour = 0;   // of these workers
  bool has_room = false;      // for one worker
  double capacity_per_s = 0;  // requests per second of these workers
};

struct ReplicatedInput {
  ModelShape shape;
  Objective objective;
  Lengths lengths;
  double requests_per_s = 0;  // 0: what one worker of each costs per request decides
  int max_context_tokens = 0;
  std::optional<int> max_gpus_per_worker;  // of any accelerator, beside its own
  std::vector<AcceleratorOption> accelerators;
  std::span<const WorkerEstimate> estimates = {};  // as in WorkerSearchInput
};

struct ReplicatedResult {
  std::vector<Candidate> candidates;  // feasible ones, best first: room, then cost, then GPUs, then as listed
  std::vector<Rejected> rejected;
  // Over everything that was tried: what the objective would have to be at least. 0 when the model fits nowhere.
  double smallest_tpot_s = 0;
  double smallest_ttft_s = 0;
  std::string smallest_tpot_on;  // "8 x h100"
  std::string smallest_ttft_on;
};

[[nodiscard]] ReplicatedResult place_replicated(const ReplicatedInput& input);

// One given configuration instead of the best: workers with `gpus` GPUs on the first accelerator of the input. None if it does
// not meet the objective. REQUIRES: at least one accelerator.
[[nodiscard]] std::optional<Candidate> replicated_candidate(const ReplicatedInput& input, int gpus);

}  // namespace windlass::planner
