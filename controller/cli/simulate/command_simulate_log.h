// RequestLog: records one run of `windlass simulate` for --requests-csv and --report.
//
// Samples of workers are summed per service and role. When there are many (a run that drains for long), every second one is
// dropped, so that memory depends on the number of requests only. Belongs to one run; single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "planner/sim/serving_simulation.h"

namespace windlass::cli {

// All workers of one service and role at one moment.
struct RoleSample {
  double time_s = 0;
  int workers = 0;  // holding GPUs
  int ready = 0;
  int starting = 0;
  int draining = 0;
  int busy = 0;
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  double kv_in_use = 0;  // mean share over ready and draining workers

  [[nodiscard]] int serving() const { return ready + draining; }
};

class RequestLog final : public sim::ServingObserver {
 public:
  RequestLog(bool requests_wanted, bool samples_wanted) : requests_wanted_(requests_wanted), samples_wanted_(samples_wanted) {}

  [[nodiscard]] bool wanted() const { return requests_wanted_ || samples_wanted_; }
  [[nodiscard]] bool samples_wanted() const { return samples_wanted_; }

  void on_request(const sim::ServedRequest& request) override;
  void on_sample(const sim::WorkerSample& sample) override;

  [[nodiscard]] const std::vector<sim::ServedRequest>& requests() const { return requests_; }  // in the order of their end
  [[nodiscard]] std::map<dispatch::Role, std::vector<RoleSample>> samples(int service) const;

 private:
  bool requests_wanted_;
  bool samples_wanted_;
  std::vector<sim::ServedRequest> requests_;
  std::map<std::pair<int, dispatch::Role>, std::vector<RoleSample>> samples_;
  std::int64_t moment_ = -1;  // of the last sample
  double moment_s_ = -1;
  std::int64_t every_ = 1;  // only samples of every every_-th moment are kept
};

// One line per request, by replication and arrival, after a header line. `services`: the names for a column of services;
// without them there is no such column.
[[nodiscard]] std::string requests_csv(std::span<const RequestLog> replications, std::span<const std::string> services = {});

}  // namespace windlass::cli
