// ServingFigures collects the results of one service's run: its requests as they end, then its workers. Belongs to one run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "planner/sim/recorder.h"
#include "planner/sim/serving_simulation.h"
#include "planner/sim/serving_worker.h"
#include "planner/sim/verdict_watch.h"

namespace windlass::sim {

class ServingFigures {
 public:
  explicit ServingFigures(const ServingService& service) : service_(&service) {}

  ServingResult counts;  // counters only; result() fills in the rest

  // Sets the criteria of the verdict; call before the first request.
  void watch(const VerdictOnly& verdict) { watch_.emplace(verdict); }
  // With `watch`: whether the verdict is certain, given this many requests in the system; `all_under_way`: no more requests
  // will arrive or be lost.
  [[nodiscard]] EarlyVerdict early_verdict(std::int64_t in_system, bool all_under_way) const;

  void request_started(double scheduling_delay_s) {
    scheduling_delay_.observe(scheduling_delay_s);
    if (watch_) watch_->observe(Figure::kSchedulingDelay, scheduling_delay_s);
  }
  void first_token(double ttft_s);
  // `gap_s`: mean time between its tokens. Returns whether the request met the objectives.
  bool request_completed(int input_tokens, int output_tokens, double ttft_s, double gap_s, double e2e_s);
  void worker_created();
  void worker_ended() { --workers_now_; }

  [[nodiscard]] std::int64_t attained() const { return attained_; }

  // Adds a worker. Call in the order of ids.
  void add(const ServingWorker& worker, std::int64_t now_ns);
  [[nodiscard]] ServingResult result(std::int64_t now_ns);

 private:
  const ServingService* service_;
  TimeRecorder scheduling_delay_, ttft_, tbt_, e2e_, normalised_, slowdown_ttft_, slowdown_tbt_, slowdown_e2e_;
  std::optional<VerdictWatch> watch_;
  std::int64_t attained_ = 0;
  int workers_now_ = 0;
  double sequences_ = 0, busy_s_ = 0, ready_s_ = 0, held_s_ = 0, page_share_s_ = 0, flops_ = 0, peak_flops_ = 0;
};

}  // namespace windlass::sim
