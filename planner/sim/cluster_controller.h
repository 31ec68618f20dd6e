// ClusterController: who decides, in the run, how many workers there are. The simulator asks it on its interval what should
// change, and lets new workers start and old ones drain with their delays, as the real controller's pods do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/perf/iteration_windows.h"
#include "planner/sim/serving_options.h"

namespace windlass::sim {

enum class WorkerPhase { kStarting, kReady, kDraining, kEnded };

const char* to_string(WorkerPhase phase);  // "starting", "ready", "draining", "ended"

// What a worker has counted since it was ready, as the metrics pages of engines show it; each of them shows a part.
struct ObservedCounters {
  planner::CountedTime iterations;
  planner::CountedTime token_gaps;      // as each token is made
  planner::CountedTime first_tokens;    // from a request's arrival here
  planner::CountedTime queueing;        // of that, before its first iteration
  planner::CountedTime request_means;   // a request's mean gap, when it ends
  planner::CountedTime decode_seconds;  // and all its gaps together, over their number
  double prompt_tokens = 0;
  double generated_tokens = 0;
};

struct ObservedWorker {
  int worker = 0;
  const ServingPool* pool = nullptr;
  WorkerPhase phase = WorkerPhase::kReady;  // never ended
  double created_s = 0;
  double ready_s = 0;               // once ready
  int running = 0;                  // requests in its batches
  int waiting = 0;                  // requests that wait inside it
  double kv_use = 0;                // share of its KV cache in use
  std::int64_t waiting_tokens = 0;  // prompt tokens that it has not yet processed
  ObservedCounters counted;
};

// Totals count from the start of the run.
struct ObservedService {
  std::int64_t arrived = 0;
  std::int64_t completed = 0;
  std::int64_t input_tokens = 0;  // of the completed
  std::int64_t output_tokens = 0;
  std::int64_t attained = 0;  // completed inside the objectives
  std::int64_t failed = 0;
  int queued = 0;              // in the central queue
  double last_arrival_s = -1;  // -1: none yet
  std::vector<ObservedWorker> workers;
};

struct ClusterObservation {
  double now_s = 0;
  std::vector<ObservedService> services;
};

struct ClusterOrders {
  struct Start {
    int service = 0;
    const ServingPool* pool = nullptr;  // lives as long as the run; its `workers` says nothing here
    int workers = 0;
  };
  struct Slots {  // requests that a worker is sent at once from now on (a chain's capacity)
    int service = 0;
    std::string pool;  // its name
    int slots = 0;
  };
  std::vector<Start> start;
  std::vector<int> drain;  // workers; one that starts still is ended at once
  std::vector<Slots> slots;
};

// Those that give least first: not ready, then the fewest requests, then the latest.
void sort_for_draining(std::vector<const ObservedWorker*>& workers);

class ClusterController {
 public:
  virtual ~ClusterController() = default;

  [[nodiscard]] virtual double interval_s() const = 0;  // > 0
  [[nodiscard]] virtual ClusterOrders decide(const ClusterObservation& observation) = 0;
};

}  // namespace windlass::sim
