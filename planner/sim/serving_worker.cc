// See serving_worker.h.
#include "planner/sim/serving_worker.h"

#include <cassert>

#include "planner/sim/event_time.h"

namespace windlass::sim {

ServingWorker::ServingWorker(int id, int service, const ServingPool& pool, std::int64_t now_ns)
    : id(id), service(service), pool(&pool), role(pool.role), created_ns(now_ns) {
  const int stages = std::max(1, pool.model->pipeline_stages());
  planner::EngineSettings options = pool.spec.engine;
  if (options.kv_blocks == 0)
    options.kv_blocks = static_cast<std::int64_t>(pool.model->kv_capacity_tokens()) / options.block_tokens;
  options.kv_blocks /= stages;
  options.host_blocks /= stages;
  kv_blocks_ = options.kv_blocks * stages;
  lane_tokens_ = options.kv_blocks * options.block_tokens;
  for (int stage = 0; stage < stages; ++stage) {
    lanes.emplace_back(options);
    if (stages > 1) lanes.back().leaves_ns.resize(static_cast<std::size_t>(stages));
  }
  stage_free_ns_.assign(static_cast<std::size_t>(stages), now_ns);
}

bool ServingWorker::empty() const {
  return prompts == 0 && decodes == 0 &&
         std::all_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.engine.held() == 0; });
}

bool ServingWorker::rests() const {
  return empty() && free_blocks() == kv_blocks_ && heavy_decodes == 0 && promised_tokens == 0 && waiting_tokens_ == 0 &&
         handed.empty() && to_pull.empty();
}

int ServingWorker::lane_for_prompt() const {
  std::size_t best = 0;
  for (std::size_t lane = 1; lane < lanes.size(); ++lane) {
    if (lanes[lane].engine.pending_tokens() < lanes[best].engine.pending_tokens()) best = lane;
  }
  return static_cast<int>(best);
}

int ServingWorker::lane_for_cache(const SequenceSpec& spec) const {
  int best = -1;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (!lanes[lane].engine.has_room(spec)) continue;
    if (best < 0 || lanes[lane].engine.held() < lanes[static_cast<std::size_t>(best)].engine.held())
      best = static_cast<int>(lane);
  }
  return best;
}

// The parts of all stages add up to the whole.
std::int64_t ServingWorker::part_ns(const Lane& lane, std::size_t stage) const {
  const auto stages = static_cast<std::int64_t>(stage_free_ns_.size());
  return lane.whole_ns / stages + (static_cast<std::int64_t>(stage) < lane.whole_ns % stages ? 1 : 0);
}

std::int64_t ServingWorker::pass_stages(Lane& lane, std::int64_t now_ns, double seconds) {
  lane.busy = true;
  lane.began_ns = now_ns;
  lane.whole_ns = after(now_ns, seconds) - now_ns;
  stages_busy_ns_ += lane.whole_ns;
  const std::size_t stages = stage_free_ns_.size();
  if (stages == 1) return stage_free_ns_.front() = now_ns + lane.whole_ns;
  std::int64_t at_ns = now_ns;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    at_ns = std::max(at_ns, stage_free_ns_[stage]) + part_ns(lane, stage);
    stage_free_ns_[stage] = lane.leaves_ns[stage] = at_ns;
  }
  return at_ns;
}

double ServingWorker::busy_s(std::int64_t now_ns) const {
  std::int64_t ahead_ns = 0;
  for (const Lane& lane : lanes) {
    if (!lane.busy) continue;
    if (lanes.size() == 1) ahead_ns += std::max<std::int64_t>(0, stage_free_ns_.front() - now_ns);
    for (std::size_t stage = 0; stage < lane.leaves_ns.size(); ++stage)
      ahead_ns += std::clamp<std::int64_t>(lane.leaves_ns[stage] - now_ns, 0, part_ns(lane, stage));
  }
  return seconds_between(ahead_ns, stages_busy_ns_) / static_cast<double>(stage_free_ns_.size());
}

void ServingWorker::account_pages(std::int64_t now_ns) {
  if (now_ns == pages_since_ns_) return;
  page_ns_ += static_cast<double>(kv_blocks_ - free_blocks()) * static_cast<double>(now_ns - pages_since_ns_);
  pages_since_ns_ = now_ns;
}

void ServingWorker::count_iteration(const planner::Batch& batch) {
  ++counted_.iterations;
  counted_.prefill_tokens += static_cast<std::int64_t>(batch.prefill_tokens);
  counted_.decode_tokens += batch.decode_sequences;
  sequences_ += batch.prefill_sequences + batch.decode_sequences;
  flops_ += pool->flops.of(batch);
}

std::int64_t ServingWorker::free_blocks() const {
  std::int64_t free = 0;
  for (const Lane& lane : lanes) free += lane.engine.free_blocks();
  return free;
}

double ServingWorker::kv_in_use() const {
  if (lanes.empty()) return 0;
  return 1 - static_cast<double>(free_blocks()) / static_cast<double>(kv_blocks_);
}

bool ServingWorker::busy() const {
  return std::any_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.busy; });
}

int ServingWorker::waiting() const {
  int waiting = 0;
  for (const Lane& lane : lanes) waiting += lane.engine.waiting();
  return waiting;
}

int ServingWorker::running() const {
  int running = 0;
  for (const Lane& lane : lanes) running += lane.engine.running();
  return running;
}

void ServingWorker::end(std::int64_t now_ns) {
  assert(phase != WorkerPhase::kEnded);
  account_pages(now_ns);
  ended_ns = now_ns;
  ended_figures_ = figures(now_ns);
  phase = WorkerPhase::kEnded;
  lanes.clear();
  handed.clear();
  to_pull.clear();
  prompts = decodes = heavy_decodes = 0;
  promised_tokens = waiting_tokens_ = 0;
}

WorkerFigures ServingWorker::figures(std::int64_t now_ns) const {
  if (phase == WorkerPhase::kEnded) return ended_figures_;
  WorkerFigures figures = counted_;
  figures.worker = id;
  figures.pool = pool->name;
  figures.role = role;
  figures.created_s = seconds_between(0, created_ns);
  const bool was_ready = ready_ns <= now_ns;
  figures.ready_s = was_ready ? seconds_between(0, ready_ns) : std::numeric_limits<double>::infinity();
  figures.ended_s = seconds_between(0, now_ns);
  figures.failed = failed;
  figures.completed = completed;
  for (const Lane& lane : lanes) {
    figures.preemptions += lane.engine.preemptions();
    figures.prefix_hit_tokens += lane.engine.prefix_hit_tokens();
  }
  if (figures.iterations > 0) figures.mean_batch = static_cast<double>(sequences_) / static_cast<double>(figures.iterations);
  if (!was_ready || ready_ns == now_ns) return figures;
  const double ready_s = seconds_between(ready_ns, now_ns);
  const double page_ns =
      page_ns_ + static_cast<double>(kv_blocks_ - free_blocks()) * static_cast<double>(now_ns - pages_since_ns_);
  figures.busy_share = busy_s(now_ns) / ready_s;
  figures.mean_kv_in_use = page_ns / (static_cast<double>(kv_blocks_) * static_cast<double>(now_ns - ready_ns));
  if (pool->flops.peak_per_s > 0) figures.mfu = flops_ / (pool->flops.peak_per_s * ready_s);
  return figures;
}

}  // namespace windlass::sim
