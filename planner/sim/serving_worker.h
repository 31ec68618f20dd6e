// ServingWorker: one worker of a serving simulation: its engines, its pipeline's stages, its phase of life, and what it did.
// The simulation moves it; it knows no other worker and no clock.
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
  // One of the engines of a pipeline: its iterations are microbatches.
  struct Lane {
    explicit Lane(const planner::EngineSettings& options) : engine(options) {}

    SimulatedEngine engine;
    bool busy = false;
    int decodes = 0;  // requests that the iteration under way makes a token for
    int stalled = 0;  // and those that are between two of their tokens while it runs, these included
    std::int64_t began_ns = 0;
    std::vector<std::int64_t> leaves_ns;  // when its microbatch leaves each stage; empty where there is one stage
    std::int64_t whole_ns = 0;            // in all stages together
  };

  ServingWorker(int id, int service, const ServingPool& pool, std::int64_t now_ns);

  const int id;
  const int service;
  const ServingPool* const pool;
  dispatch::Role role;
  WorkerPhase phase = WorkerPhase::kStarting;
  bool flipping = false;  // takes nothing new until it is empty and has the other role
  bool flip_awaited = false;
  bool failed = false;
  std::int64_t created_ns;
  std::int64_t role_since_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t ready_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t ended_ns = std::numeric_limits<std::int64_t>::max();

  std::vector<Lane> lanes;
  int prompts = 0;        // requests that are to be prefilled here
  int decodes = 0;        // requests that decode here, or will; where there are two roles, those of a single token do not
  int heavy_decodes = 0;  // of these, predicted to be heavy
  std::int64_t promised_tokens = 0;  // of KV cache: prompts until they are prefilled and moved, whole lengths of its decodes
  std::deque<int> handed;   // requests that were prefilled here and whose caches wait to be pulled by their decode workers
  std::deque<int> to_pull;  // requests whose caches wait for room here, in the order in which they were ready

  [[nodiscard]] bool takes_requests() const { return phase == WorkerPhase::kReady && !flipping; }
  // In the mixed pool while it has work of the other role.
  [[nodiscard]] bool mixed() const {
    return role == dispatch::Role::kPrefill ? decodes > 0 : role == dispatch::Role::kDecode && prompts > 0;
  }
  // Tokens that are pending here, those of requests on their way included. REQUIRES: count_waiting() after anything changed in
  // the engines.
  [[nodiscard]] std::int64_t pending() const { return decodes + waiting_tokens_; }
  [[nodiscard]] std::int64_t waiting_tokens() const { return waiting_tokens_; }  // to be prefilled; REQUIRES: the same
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
  [[nodiscard]] bool empty() const;                                  // no request is here, or on its way here
  [[nodiscard]] bool rests() const;                                  // and it says so in all that it counts
  [[nodiscard]] int lane_for_prompt() const;                         // with the fewest pending tokens
  [[nodiscard]] int lane_for_cache(const SequenceSpec& spec) const;  // with room for it and the fewest sequences; -1: none

  // Says that the lane begins an iteration of `seconds` over all stages. Returns when it ends: its microbatch passes the stages
  // one after the other, and at each waits until the one before has left.
  [[nodiscard]] std::int64_t pass_stages(Lane& lane, std::int64_t now_ns, double seconds);
  [[nodiscard]] std::int64_t first_stage_free_ns() const { return stage_free_ns_.front(); }
  bool stage_awaited = false;  // an event is set for the time when the first stage is free
  int next_lane = 0;           // lanes take turns

  // Before anything changes in the engines: the pages in use until now go into the mean.
  void account_pages(std::int64_t now_ns);
  void count_iteration(const planner::Batch& batch);
  [[nodiscard]] std::int64_t free_blocks() const;
  [[nodiscard]] std::int64_t kv_blocks() const { return kv_blocks_; }
  [[nodiscard]] double kv_in_use() const;  // share of its pages
  [[nodiscard]] bool busy() const;
  [[nodiscard]] int waiting() const;
  [[nodiscard]] int running() const;
  [[nodiscard]] double busy_s(std::int64_t now_ns) const;  // until now, of a stage in the mean
  std::int64_t completed = 0;
  ObservedCounters counted;
  double busy_s_at_check = 0;  // for the flip policy
  double mixed_s = 0;          // of iterations that began in the mixed pool
  double mixed_s_at_check = 0;

  // Ends: the engines are gone, what they counted stays.
  void end(std::int64_t now_ns);
  [[nodiscard]] WorkerFigures figures(std::int64_t now_ns) const;

 private:
  [[nodiscard]] std::int64_t part_ns(const Lane& lane, std::size_t stage) const;  // of its iteration, in this stage

  std::int64_t waiting_tokens_ = 0;
  std::int64_t lane_tokens_ = 0;  // that one lane's cache holds
  std::int64_t kv_blocks_ = 0;
  std::vector<std::int64_t> stage_free_ns_;
  std::int64_t stages_busy_ns_ = 0;  // of all stages together, with what is ahead of the iterations under way
  std::int64_t pages_since_ns_ = 0;
  double page_ns_ = 0;  // integral of the pages in use over time
  double flops_ = 0;
  std::int64_t sequences_ = 0;   // of all iterations
  WorkerFigures counted_;        // iterations and tokens
  WorkerFigures ended_figures_;  // once it has ended
};

}  // namespace windlass::sim
