// ServingWorker: one worker of a serving simulation, with its engines, pipeline stages, lifecycle phase and counters. The
// simulation drives it; it knows no other worker and no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "planner/sim/cluster_controller.h"
#include "planner/sim/serving_simulation.h"
#include "planner/sim/simulated_engine.h"

namespace windlass::sim {

class ServingWorker {
 public:
  // One engine of a pipeline; its iterations are the pipeline's microbatches.
  struct Lane {
    explicit Lane(const planner::EngineSettings& options) : engine(options) {}

    SimulatedEngine engine;
    bool busy = false;
    int decodes = 0;  // requests for which the current iteration makes a token
    int stalled = 0;  // requests between two of their tokens during the iteration, including those
    std::int64_t began_ns = 0;
    std::vector<std::int64_t> leaves_ns;  // when its microbatch leaves each stage; empty with one stage
    std::int64_t whole_ns = 0;            // total time in all stages
  };

  ServingWorker(int id, int service, const ServingPool& pool, std::int64_t now_ns);

  const int id;
  const int service;
  const ServingPool* const pool;
  dispatch::Role role;
  WorkerPhase phase = WorkerPhase::kStarting;
  bool flipping = false;  // takes nothing new until it is empty and has changed its role
  bool flip_awaited = false;
  bool failed = false;
  std::int64_t created_ns;
  std::int64_t role_since_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t ready_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t ended_ns = std::numeric_limits<std::int64_t>::max();

  std::vector<Lane> lanes;
  int prompts = 0;        // requests to be prefilled here
  int decodes = 0;        // requests that decode or will decode here; with two roles, without those of a single token
  int heavy_decodes = 0;  // part of them predicted to be heavy
  std::int64_t promised_tokens = 0;  // KV cache tokens: prompts until they are prefilled and moved, whole lengths of its
                                     // decodes
  std::deque<int> handed;            // requests prefilled here whose caches wait for their decode workers
  std::deque<int> to_pull;           // requests whose caches wait for room here, in the order in which they were ready

  [[nodiscard]] bool takes_requests() const { return phase == WorkerPhase::kReady && !flipping; }
  // Whether it is in the mixed pool, which holds while it has work of the other role.
  [[nodiscard]] bool mixed() const {
    return role == dispatch::Role::kPrefill ? decodes > 0 : role == dispatch::Role::kDecode && prompts > 0;
  }
  // Pending tokens, including requests on their way here. REQUIRES: count_waiting() after any change in the engines.
  [[nodiscard]] std::int64_t pending() const { return decodes + waiting_tokens_; }
  [[nodiscard]] std::int64_t waiting_tokens() const { return waiting_tokens_; }  // tokens to prefill; same requirement
  void count_waiting() {
    waiting_tokens_ = 0;
    for (const Lane& lane : lanes) waiting_tokens_ += lane.engine.pending_tokens() - lane.engine.decoding();
  }
  [[nodiscard]] bool has_unpromised(std::int64_t tokens) const {
    return promised_tokens + tokens <= kv_blocks_ * pool->spec.engine.block_tokens;
  }
  [[nodiscard]] bool can_hold(int input_tokens, int output_tokens) const {
    return std::int64_t{input_tokens} + output_tokens <= lane_tokens_;
  }
  [[nodiscard]] bool empty() const;                                  // no request is here or on its way here
  [[nodiscard]] bool rests() const;                                  // all its counters are zero
  [[nodiscard]] int lane_for_prompt() const;                         // the lane with the fewest pending tokens
  [[nodiscard]] int lane_for_cache(const SequenceSpec& spec) const;  // the lane with room for it and the fewest sequences; -1:
                                                                     // none

  // Records that the lane begins an iteration of `seconds` over all stages; returns when it ends. Its microbatch passes the
  // stages in order and at each waits until the previous microbatch has left.
  [[nodiscard]] std::int64_t pass_stages(Lane& lane, std::int64_t now_ns, double seconds);
  [[nodiscard]] std::int64_t first_stage_free_ns() const { return stage_free_ns_.front(); }
  bool stage_awaited = false;  // an event exists for the time when the first stage is free
  int next_lane = 0;           // lanes take turns

  // Adds the current page use to the mean. Call before any change in the engines.
  void account_pages(std::int64_t now_ns);
  void count_iteration(const planner::Batch& batch);
  [[nodiscard]] std::int64_t free_blocks() const;
  [[nodiscard]] std::int64_t kv_blocks() const { return kv_blocks_; }
  [[nodiscard]] double kv_in_use() const;  // share of its pages in use
  [[nodiscard]] bool busy() const;
  [[nodiscard]] int waiting() const;
  [[nodiscard]] int running() const;
  [[nodiscard]] double busy_s(std::int64_t now_ns) const;  // until now; mean over stages
  std::int64_t completed = 0;
  ObservedCounters counted;
  double busy_s_at_check = 0;  // at the flip policy's last check
  double mixed_s = 0;          // duration of iterations that began in the mixed pool
  double mixed_s_at_check = 0;

  // Ends the worker: the engines are removed, the counters stay.
  void end(std::int64_t now_ns);
  [[nodiscard]] WorkerFigures figures(std::int64_t now_ns) const;

 private:
  [[nodiscard]] std::int64_t part_ns(const Lane& lane, std::size_t stage) const;  // the stage's part of its iteration

  std::int64_t waiting_tokens_ = 0;
  std::int64_t lane_tokens_ = 0;  // KV cache tokens per lane
  std::int64_t kv_blocks_ = 0;
  std::vector<std::int64_t> stage_free_ns_;
  std::int64_t stages_busy_ns_ = 0;  // sum over stages, including the remaining part of running iterations
  std::int64_t pages_since_ns_ = 0;
  double page_ns_ = 0;  // integral of the pages in use over time
  double flops_ = 0;
  std::int64_t sequences_ = 0;   // sum over iterations
  WorkerFigures counted_;        // iterations and tokens
  WorkerFigures ended_figures_;  // once it has ended
};

}  // namespace windlass::sim
