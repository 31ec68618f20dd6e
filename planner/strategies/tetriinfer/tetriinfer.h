// TetriInfer (Hu et al. 2024): prefill and decode instances of their own, and how requests are scheduled on both.
//
// What the paper has: prompts in fixed chunks of the accelerator-saturate threshold (Section 3.3.3), first come, shortest or
// longest first within PrefillSchedBatch (3.3.1), a predictor of length ranges beside the model (3.3.2), decode instances by
// the power of two choices and the least ratio of heavy to light decodes (3.3.4), decode admission greedy or with a working set
// in mind (3.4), instances that flip (3.5). The simulator does these; how many instances of each role there are the paper
// leaves open beyond flips. Here a search chooses both counts, and then the policies: the paper's own first, then, one at a
// time, others where they need less or leave more room. docs/algorithms/tetriinfer.md says where this differs. Pure.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/strategies/core/split_search.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// Policies of Sections 3.3 and 3.4. The default is what the paper's end-to-end runs have (Section 5.1).
struct TetriInferKnobs {
  planner::PromptOrder order = planner::PromptOrder::kShortestFirst;
  planner::DecodeAdmission admission = planner::DecodeAdmission::kReserveDynamic;
  dispatch::DecodeChoice choice = dispatch::DecodeChoice::kTwoChoice;

  bool operator==(const TetriInferKnobs&) const = default;
};

struct TetriInferOptions {
  SplitOptions search;
  std::vector<int> kinds;  // indices in Problem::kinds that instances may be; empty: all
  bool choose_knobs = true;
  TetriInferKnobs knobs;                  // to begin with
  int prefill_sched_batch = 16;           // prompts that are sorted at a time
  double saturated_share = 0.9;           // of the highest throughput: what a chunk reaches
  std::optional<int> chunk_tokens;        // in place of that
  dispatch::LengthPrediction prediction;  // buckets of 200, right in 74.9 %
  std::optional<dispatch::FlipPolicy> flip = dispatch::FlipPolicy{};
  int heavy_decode_tokens = 128;
};

// The accelerator-saturate threshold: the least power of two of tokens whose prefill throughput is `share` of the highest.
[[nodiscard]] int saturating_chunk(const planner::IterationModel& model, double share);

[[nodiscard]] SplitDesign tetriinfer_design(const Problem& problem, int prefill_kind, int decode_kind,
                                            const TetriInferKnobs& knobs, const TetriInferOptions& options = {});

[[nodiscard]] Result<Offer> tetriinfer_plan(const Problem& problem, const Effort& effort, const TetriInferOptions& options);
[[nodiscard]] inline Result<Offer> tetriinfer_plan(const Problem& problem, const Effort& effort) {
  return tetriinfer_plan(problem, effort, {});
}

}  // namespace windlass::search
