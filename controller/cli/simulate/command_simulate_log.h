// RequestLog: what `windlass simulate` keeps of one run for --requests-csv and
// --report.
//
// Samples of workers are summed over each service and role as they come, and thinned to half when they are many (a run that
// drains for long), so that memory follows the number of requests alone. Belongs to one run, one thread.
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
  int workers = 0;  // that hold GPUs
  int ready = 0;    // of these
  int starting = 0;
  int draining = 0;
  int busy = 0;
  std::int64_t waiting = 0;
  std::int64_t running = 0;
  double kv_in_use = 0;  // mean share of those that are ready or drain

  [[nodiscard]] int serving() const { return ready + draining; }
};

class RequestLog final : public sim::ServingObserver {
 public:
  RequestLog(bool requests_wanted, bool samples_wanted) : requests_wanted_(requests_wanted), samples_wanted_(samples_wanted) {}

  [[nodiscard]] bool wanted() const { return requests_wanted_ || samples_wanted_; }
  [[nodiscard]] bool samples_wanted() const { return samples_wanted_; }

  void on_request(const sim::ServedRequest& request) override;
  void on_sample(const sim::WorkerSample& sample) override;

  [[nodiscard]] const std::vector<sim::ServedRequest>& requests() const { return requests_; }  // as they ended
  [[nodiscard]] std::map<dispatch::Role, std::vector<RoleSample>> samples(int service) const;

 private:
  bool requests_wanted_;
  bool samples_wanted_;
  std::vector<sim::ServedRequest> requests_;
  std::map<std::pair<int, dispatch::Role>, std::vector<RoleSample>> samples_;
  std::int64_t moment_ = -1;  // of the sample that came last
  double moment_s_ = -1;
  std::int64_t every_ = 1;  // moment that is kept
};

// Replication by replication, in the order of arrival. The first line names the columns. `services`: their names, for a column
// of them; none: there is one.
[[nodiscard]] std::string requests_csv(std::span<const RequestLog> replications, std::span<const std::string> services = {});

}  // namespace windlass::cli
