// Runs a real trace on a simulated cluster: fifty ModelServices on three classes, two real controllers, two real gateways, an
// Azure trace through them, and components that are killed during the run.
//
// Every second it checks from outside for violations: services below their minimum or above their maximum, two leaders,
// requests broken by a worker's end. They are listed in the report. Used by kwok_test and kwok_bench.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "tests/cluster/kwok/kwok_cluster.h"
#include "tests/cluster/kwok/trace_load.h"

namespace windlass::testing {

struct Kill {
  std::string what;  // "kube-apiserver", "etcd" or "leader"
  double at_s = 0;   // since the run's start
};

struct TraceRunOptions {
  std::string trace_path;
  double acceleration = 6;
  double trace_from_s = 0;  // of the trace's time
  double trace_s = 3600;
  int services = 50;
  std::uint64_t seed = 1;
  std::vector<Kill> kills;
  std::function<void(const std::string&)> say;  // progress, for a person
};

struct Sighting {  // once a second
  double at_s = 0;
  int desired = 0, ready = 0, pods = 0, gpus = 0;
  int in_flight = 0, sent = 0;
};

struct Recovery {
  std::string what;
  double down_s = 0;       // from the kill until the component serves again
  double recovered_s = 0;  // from the kill until a controller leads and has decided again
};

struct TraceRunReport {
  TraceLoadReport load;
  std::vector<Sighting> sightings;
  std::vector<Recovery> recoveries;
  std::vector<std::string> violations;  // each once; empty: none
  int changes = 0;                      // of the wanted number of workers, summed over the services
  int pods_created = 0;
  int pods_deleted = 0;
  double plans = 0;  // decisions made by all controllers
  double wall_s = 0;
  double gpu_hours = 0;  // in the trace's time

  [[nodiscard]] std::string table() const;  // Markdown
  [[nodiscard]] std::string workers_csv() const;
};

// The trace's rows of [from, from + length), each with a service drawn by the seed: a few services get most of the requests.
[[nodiscard]] Result<std::vector<PlannedRequest>> plan_requests(const TraceRunOptions& options);

[[nodiscard]] std::string service_name(int index);

// The whole run, from starting the control plane to the report. Fails if something did not start.
[[nodiscard]] Result<TraceRunReport> run_trace(const TraceRunOptions& options);

}  // namespace windlass::testing
