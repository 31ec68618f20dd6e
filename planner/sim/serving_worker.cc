// See serving_worker.h.
#include "planner/sim/serving_worker.h"

#include <cassert>

#include "planner/sim/event_time.h"

namespace windlass::sim {

ServingWorker::ServingWorker(int id, int service, const ServingPool& pool, std::int64_t now_ns)
    : id(id), service(service), pool(&pool), role(pool.role), created_ns(now_ns) {
  const int stages = std::max(1, pool.model->pipeline_stages());
  EngineOptions options = pool.engine;
  if (options.kv_blocks == 0)
    options.kv_blocks = static_cast<std::int64_t>(pool.model->kv_capacity_tokens()) / options.block_tokens;
  options.kv_blocks /= stages;
  options.host_blocks /= stages;
  kv_blocks_ = options.kv_blocks * stages;
  for (int stage = 0; stage < stages; ++stage) lanes.emplace_back(options);
  stage_free_ns_.assign(static_cast<std::size_t>(stages), now_ns);
}

bool ServingWorker::empty() const {
  return prompts == 0 && decodes == 0 &&
         std::all_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.engine.held() == 0; });
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

std::int64_t ServingWorker::pass_stages(std::int64_t now_ns, double seconds) {
  const std::int64_t whole_ns = after(now_ns, seconds) - now_ns;
  const auto stages = static_cast<std::int64_t>(stage_free_ns_.size());
  std::int64_t at_ns = now_ns, passed_ns = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t through_ns = whole_ns * (stage + 1) / stages;  // parts that add up to the whole
    std::int64_t& free_ns = stage_free_ns_[static_cast<std::size_t>(stage)];
    at_ns = std::max(at_ns, free_ns) + (through_ns - passed_ns);
    free_ns = at_ns;
    passed_ns = through_ns;
  }
  busy_ns_ += whole_ns / stages;
  return at_ns;
}

void ServingWorker::account_pages(std::int64_t now_ns) {
  if (now_ns == pages_since_ns_) return;
  page_share_s_ += kv_in_use() * seconds_between(pages_since_ns_, now_ns);
  pages_since_ns_ = now_ns;
}

void ServingWorker::count_iteration(const planner::Batch& batch) {
  ++counted_.iterations;
  counted_.prefill_tokens += static_cast<std::int64_t>(batch.prefill_tokens);
  counted_.decode_tokens += batch.decode_sequences;
  counted_.mean_batch += batch.prefill_sequences + batch.decode_sequences;  // the sum, until the end
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
  busy_ns_ -= std::max<std::int64_t>(0, std::min(stage_free_ns_.front() - now_ns, busy_ns_));  // what a failure cuts off
  counted_ = figures(now_ns);
  counted_.mean_batch *= static_cast<double>(counted_.iterations);
  phase = WorkerPhase::kEnded;
  ended_ns = now_ns;
  lanes.clear();
  handed.clear();
  to_pull.clear();
  prompts = decodes = heavy_decodes = 0;
  promised_tokens = 0;
}

WorkerFigures ServingWorker::figures(std::int64_t now_ns) const {
  WorkerFigures figures = counted_;
  const std::int64_t until_ns = std::min(now_ns, ended_ns);
  figures.worker = id;
  figures.pool = pool->name;
  figures.role = role;
  figures.created_s = seconds_between(0, created_ns);
  const bool was_ready = ready_ns <= until_ns;
  figures.ready_s = was_ready ? seconds_between(0, ready_ns) : std::numeric_limits<double>::infinity();
  figures.ended_s = seconds_between(0, until_ns);
  figures.failed = failed;
  figures.completed = completed;
  for (const Lane& lane : lanes) {
    figures.preemptions += lane.engine.preemptions();
    figures.prefix_hit_tokens += lane.engine.prefix_hit_tokens();
  }
  if (figures.iterations > 0) figures.mean_batch /= static_cast<double>(figures.iterations);
  const double ready_s = was_ready ? seconds_between(ready_ns, until_ns) : 0;
  if (ready_s > 0) {
    figures.busy_share = seconds_between(0, busy_ns_) / ready_s;
    figures.mean_kv_in_use =
        (page_share_s_ + kv_in_use() * seconds_between(std::min(pages_since_ns_, until_ns), until_ns)) / ready_s;
    if (pool->flops.peak_per_s > 0) figures.mfu = flops_ / (pool->flops.peak_per_s * ready_s);
  }
  return figures;
}

}  // namespace windlass::sim
