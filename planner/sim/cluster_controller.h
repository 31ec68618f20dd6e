// ClusterController decides the number of workers during a run. The simulator calls it at its interval; new workers start and
// old ones drain with their delays, as the real controller's pods do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/perf/iteration_windows.h"
#include "planner/sim/serving_options.h"

namespace windlass::sim {

enum class WorkerPhase { kStarting, kReady, kDraining, kEnded };

const char* to_string(WorkerPhase phase);  // "starting", "ready", "draining", "ended"

// A worker's counters since it became ready, as engines report them on their metrics pages; each kind of engine reports some of
// them.
struct ObservedCounters {
  planner::CountedTime iterations;
  planner::CountedTime token_gaps;      // counted at each token
  planner::CountedTime first_tokens;    // from a request's arrival at the worker
  planner::CountedTime queueing;        // part of it before the first iteration
  planner::CountedTime request_means;   // a request's mean gap, counted when it ends
  planner::CountedTime decode_seconds;  // all gaps of the request together, divided by their number
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
  int waiting = 0;                  // requests waiting inside it
  double kv_use = 0;                // share of its KV cache in use
  std::int64_t waiting_tokens = 0;  // prompt tokens not processed yet
  ObservedCounters counted;
};

// Totals since the start of the run.
struct ObservedService {
  std::int64_t arrived = 0;
  std::int64_t completed = 0;
  std::int64_t input_tokens = 0;  // over completed requests
  std::int64_t output_tokens = 0;
  std::int64_t attained = 0;  // completed within the objectives
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
    const ServingPool* pool = nullptr;  // lives as long as the run; its `workers` is unused here
    int workers = 0;
  };
  struct Slots {  // new limit of concurrent requests per worker (a chain's capacity)
    int service = 0;
    std::string pool;  // the pool's name
    int slots = 0;
  };
  std::vector<Start> start;
  std::vector<int> drain;  // workers; one that is still starting ends immediately
  std::vector<Slots> slots;
};

// Sorts workers in drain order: not ready first, then fewest requests, then latest.
void sort_for_draining(std::vector<const ObservedWorker*>& workers);

class ClusterController {
 public:
  virtual ~ClusterController() = default;

  [[nodiscard]] virtual double interval_s() const = 0;  // > 0
  [[nodiscard]] virtual ClusterOrders decide(const ClusterObservation& observation) = 0;
};

}  // namespace windlass::sim
