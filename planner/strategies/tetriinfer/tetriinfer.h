// TetriInfer (Hu et al. 2024) uses separate prefill and decode instances. This file finds how many of each, and how requests
// are scheduled on both.
//
// The paper has: prompts in fixed chunks at the accelerator-saturate threshold (Section 3.3.3), first come, shortest or longest
// first within PrefillSchedBatch (3.3.1); a predictor of length ranges (3.3.2); decode instances chosen by the power of two
// choices and the lowest ratio of heavy to light decodes (3.3.4); decode admission greedy or by working set (3.4); and
// instances that flip roles (3.5). The simulator implements these. The paper leaves the number of instances of each role open,
// except for flips. Here a search chooses both numbers and then the policies: first the paper's own, then others, one at a
// time, if they need less or leave more room. docs/algorithms/tetriinfer.md lists differences. Pure.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/strategies/core/split_search.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// Policies of Sections 3.3 and 3.4. Defaults are those of the paper's end-to-end runs (Section 5.1).
struct TetriInferKnobs {
  planner::PromptOrder order = planner::PromptOrder::kShortestFirst;
  planner::DecodeAdmission admission = planner::DecodeAdmission::kReserveDynamic;
  dispatch::DecodeChoice choice = dispatch::DecodeChoice::kTwoChoice;

  bool operator==(const TetriInferKnobs&) const = default;
};

struct TetriInferOptions {
  SplitOptions search;
  std::vector<int> kinds;  // allowed indices in Problem::kinds; empty: all
  bool choose_knobs = true;
  TetriInferKnobs knobs;                  // starting point
  int prefill_sched_batch = 16;           // prompts sorted together
  double saturated_share = 0.9;           // share of the highest throughput that a chunk must reach
  std::optional<int> chunk_tokens;        // overrides saturated_share
  dispatch::LengthPrediction prediction;  // buckets of 200 tokens, accuracy 74.9 %
  std::optional<dispatch::FlipPolicy> flip = dispatch::FlipPolicy{};
  int heavy_decode_tokens = 128;
};

// The accelerator-saturate threshold: the smallest power of two of tokens whose prefill throughput is at least `share` of the
// highest.
[[nodiscard]] int saturating_chunk(const planner::IterationModel& model, double share);

[[nodiscard]] SplitDesign tetriinfer_design(const Problem& problem, int prefill_kind, int decode_kind,
                                            const TetriInferKnobs& knobs, const TetriInferOptions& options = {});

[[nodiscard]] Result<Offer> tetriinfer_plan(const Problem& problem, const Effort& effort, const TetriInferOptions& options);
[[nodiscard]] inline Result<Offer> tetriinfer_plan(const Problem& problem, const Effort& effort) {
  return tetriinfer_plan(problem, effort, {});
}

}  // namespace windlass::search
