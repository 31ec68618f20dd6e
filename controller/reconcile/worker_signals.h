// WorkerSignals: what workers say of themselves on their own metrics pages, whichever engine they run.
//
// An engine's page stands where the engine puts it: trtllm-serve's Prometheus text at /prometheus/metrics, every other's at
// /metrics. A worker's first address follows its service's engine; a page that is none of an engine's is asked for at the other
// address next time, so that a worker which outlives a change of its service's engine is still understood.
//
// Every reading carries the time it was taken. What a page does not show, or shows as no number, keeps its last reading, which
// grows old; what was never shown is absent. A broken series takes nothing else with it. Times are monotonic seconds.
// Single-threaded.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "metrics/engine_metrics.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

struct WorkerLoad {
  std::optional<planner::Reading> running;
  std::optional<planner::Reading> waiting;
  std::optional<planner::Reading> kv_use;  // 0..1

  // Requests inside the worker, as old as the older part; nullopt where it does not tell what runs. What waits counts where it
  // is told.
  [[nodiscard]] std::optional<planner::Reading> requests() const;
};

// The newest page of a worker that could be read.
struct WorkerPage {
  metrics::EngineMetrics metrics;
  double at_s = 0;
};

class WorkerSignals {
 public:
  // Where to ask the worker next. `engine`: ModelService's spec.engine.type; "" where it is not known.
  [[nodiscard]] std::string url(const std::string& uid, const std::string& address, const std::string& engine);

  struct Taken {
    bool readable = false;            // an engine's page
    std::vector<std::string> broken;  // names of series that were left out
  };
  // The answer to that. `body`: of a response with status 200; an Error otherwise.
  Taken take(const std::string& uid, const Result<std::string>& body, double now_s);

  // Forgets every other worker.
  void keep(const std::set<std::string>& uids);

  // nullptr: it was never read.
  [[nodiscard]] const WorkerLoad* load(const std::string& uid) const;
  [[nodiscard]] const WorkerPage* page(const std::string& uid) const;

 private:
  struct State {
    std::size_t path = 0;  // of kPaths
    WorkerLoad load;
    std::optional<WorkerPage> page;
  };

  std::map<std::string, State> workers_;  // by uid
};

}  // namespace windlass::controller
