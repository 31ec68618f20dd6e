// WorkerSignals reads the workers' own metrics pages, for all engines.
//
// trtllm-serve serves its Prometheus text at /prometheus/metrics, every other engine at /metrics. The engine of a worker's
// service decides which path is tried first. If that page is not an engine's, the other path is tried next time. So a worker
// that was started before its service changed engines can still be read.
//
// Every reading has its time. If a value is missing or not a number, the last reading stays and ages; a value never shown is
// absent. A broken series does not affect others. Times are monotonic seconds. Single-threaded.
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

  // Requests inside the worker: running ones, plus waiting ones if reported. The time is that of the older reading. nullopt if
  // the running ones are not reported.
  [[nodiscard]] std::optional<planner::Reading> requests() const;
};

// The newest readable page of a worker.
struct WorkerPage {
  metrics::EngineMetrics metrics;
  double at_s = 0;
};

class WorkerSignals {
 public:
  // The address for the worker's next request. `engine`: the ModelService's spec.engine.type; "" if unknown.
  [[nodiscard]] std::string url(const std::string& uid, const std::string& address, const std::string& engine);

  struct Taken {
    bool readable = false;            // the page is an engine's
    std::vector<std::string> broken;  // names of omitted series
  };
  // Processes the response. `body`: of a response with status 200; otherwise an Error.
  Taken take(const std::string& uid, const Result<std::string>& body, double now_s);

  // Forgets all other workers.
  void keep(const std::set<std::string>& uids);

  // nullptr: never read.
  [[nodiscard]] const WorkerLoad* load(const std::string& uid) const;
  [[nodiscard]] const WorkerPage* page(const std::string& uid) const;

 private:
  struct State {
    std::size_t path = 0;  // index in kPaths
    WorkerLoad load;
    std::optional<WorkerPage> page;
  };

  std::map<std::string, State> workers_;  // by uid
};

}  // namespace windlass::controller
