// See serving_figures.h.
#include "planner/sim/serving_figures.h"

#include <algorithm>
#include <cmath>

#include "planner/sim/event_time.h"

namespace windlass::sim {

void ServingFigures::worker_created() {
  ++workers_now_;
  counts.max_workers = std::max(counts.max_workers, workers_now_);
}

EarlyVerdict ServingFigures::early_verdict(std::int64_t in_system, bool all_under_way) const {
  if (counts.refused + counts.failed > 0 || watch_->broken()) return EarlyVerdict::kBroken;
  const bool holds = all_under_way && counts.completed > 0 && watch_->holds(counts.requests, in_system);
  return holds ? EarlyVerdict::kHolds : EarlyVerdict::kNone;
}

void ServingFigures::first_token(double ttft_s) {
  if (!watch_) return;
  watch_->observe(Figure::kTtft, ttft_s);
  if (service_->objectives && ttft_s > service_->objectives->ttft_s) watch_->missed();
}

bool ServingFigures::request_completed(int input_tokens, int output_tokens, double ttft_s, double gap_s, double e2e_s) {
  ++counts.completed;
  ttft_.observe(ttft_s);
  e2e_.observe(e2e_s);
  normalised_.observe(e2e_s / output_tokens);
  if (output_tokens > 1) tbt_.observe(gap_s);
  if (service_->slowdown_reference != nullptr) {
    const planner::IterationModel& alone = *service_->slowdown_reference;
    const double prefill_s = alone.iteration_s(planner::prefill_batch(1, input_tokens));
    slowdown_ttft_.observe(ttft_s / prefill_s);
    if (watch_) watch_->observe(Figure::kTtftSlowdown, ttft_s / prefill_s);
    double decode_s = 0;
    if (output_tokens > 1) {
      // The context grows evenly, so the middle one represents all.
      decode_s = alone.iteration_s(planner::decode_batch(1, input_tokens + output_tokens / 2.0));
      slowdown_tbt_.observe(gap_s / decode_s);
      if (watch_) watch_->observe(Figure::kTbtSlowdown, gap_s / decode_s);
    }
    const double slowdown = e2e_s / (prefill_s + (output_tokens - 1) * decode_s);
    slowdown_e2e_.observe(slowdown);
    if (watch_) watch_->observe(Figure::kE2eSlowdown, slowdown);
  }
  const auto& objectives = service_->objectives;
  const bool attained = objectives && ttft_s <= objectives->ttft_s && gap_s <= objectives->tpot_s;
  if (attained) ++attained_;
  if (!watch_) return attained;
  watch_->observe(Figure::kE2e, e2e_s);
  if (output_tokens > 1) watch_->observe(Figure::kTpot, gap_s);
  if (attained) watch_->attained();
  if (objectives && !attained && ttft_s <= objectives->ttft_s)
    watch_->missed();  // other misses were counted at the first
                       // token
  return attained;
}

void ServingFigures::add(const ServingWorker& worker, std::int64_t now_ns) {
  WorkerFigures figures = worker.figures(now_ns);
  const double held_s = figures.ended_s - figures.created_s;
  const double ready_s = std::isfinite(figures.ready_s) ? figures.ended_s - figures.ready_s : 0;
  counts.iterations += figures.iterations;
  counts.preemptions += figures.preemptions;
  counts.prefix_hit_tokens += figures.prefix_hit_tokens;
  sequences_ += figures.mean_batch * static_cast<double>(figures.iterations);
  busy_s_ += figures.busy_share * ready_s;
  page_share_s_ += figures.mean_kv_in_use * ready_s;
  ready_s_ += ready_s;
  held_s_ += held_s;
  flops_ += figures.mfu * worker.pool->flops.peak_per_s * ready_s;
  peak_flops_ += worker.pool->flops.peak_per_s * ready_s;
  const double hours = worker.pool->spec.gpus() * held_s / 3600;
  counts.gpu_hours += hours;
  counts.cost += hours * worker.pool->price_per_gpu_hour;
  counts.energy_kwh += hours * worker.pool->power_per_gpu_watts / 1000;
  counts.workers.push_back(std::move(figures));
}

ServingResult ServingFigures::result(std::int64_t now_ns) {
  ServingResult result = std::move(counts);
  result.scheduling_delay = scheduling_delay_.summary();
  result.ttft = ttft_.summary();
  result.tbt = result.tpot = tbt_.summary();
  result.e2e = e2e_.summary();
  result.normalised = normalised_.summary();
  if (service_->objectives && result.requests > 0)
    result.attainment = static_cast<double>(attained_) / static_cast<double>(result.requests);
  if (service_->slowdown_reference != nullptr)
    result.slowdown = ServingResult::Slowdown{slowdown_ttft_.summary(), slowdown_tbt_.summary(), slowdown_e2e_.summary()};
  result.simulated_s = seconds_between(0, now_ns);
  if (result.iterations > 0) result.mean_batch = sequences_ / static_cast<double>(result.iterations);
  if (ready_s_ > 0) {
    result.busy_share = busy_s_ / ready_s_;
    result.mean_kv_in_use = page_share_s_ / ready_s_;
  }
  if (peak_flops_ > 0) result.mfu = flops_ / peak_flops_;
  if (result.simulated_s > 0) result.mean_workers = held_s_ / result.simulated_s;
  return result;
}

}  // namespace windlass::sim
