// See tetriinfer.h.
#include "planner/strategies/tetriinfer/tetriinfer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

constexpr int kLeastChunk = 64, kMaxChunk = 8192;
// share of the closed-form load below which no number of workers can serve; the form is off by about a fifth at most
constexpr double kSureLoad = 0.8;
constexpr double kMoreRoom = 0.99;  // share of an objective; another policy must leave at least this much more room

const char* text_of(dispatch::DecodeChoice choice) {
  switch (choice) {
    case dispatch::DecodeChoice::kTwoChoice: return "two-choice";
    case dispatch::DecodeChoice::kLeastMemory: return "least-memory";
    case dispatch::DecodeChoice::kAtArrival: return "at-arrival";
    case dispatch::DecodeChoice::kPartner: return "partner";
    case dispatch::DecodeChoice::kPairs: return "pairs";
  }
  return "";
}

// The predictor runs only if a policy uses it.
bool predicts(const TetriInferKnobs& knobs) {
  return knobs.admission != planner::DecodeAdmission::kGreedy || knobs.choice == dispatch::DecodeChoice::kTwoChoice;
}

// Policies that any engine can run with.
TetriInferKnobs plain_knobs() {
  return {planner::PromptOrder::kArrival, planner::DecodeAdmission::kGreedy, dispatch::DecodeChoice::kAtArrival};
}

// Whether the problem's engine can run with these policies.
bool allowed(const Problem& problem, const TetriInferKnobs& knobs) {
  const TetriInferKnobs plain = plain_knobs();
  if (!problem.engines.scheduling && (knobs.order != plain.order || knobs.admission != plain.admission)) return false;
  return problem.engines.length_predictor || !predicts(knobs);
}

TetriInferKnobs start_of(const Problem& problem, const TetriInferOptions& options) {
  return allowed(problem, options.knobs) ? options.knobs : plain_knobs();
}

// All variants with one policy changed that the engine can run with.
std::vector<TetriInferKnobs> neighbours(const Problem& problem, const TetriInferKnobs& knobs) {
  std::vector<TetriInferKnobs> all;
  const auto add = [&](auto TetriInferKnobs::*knob, const auto& values) {
    for (const auto value : values) {
      if (value == knobs.*knob) continue;
      all.push_back(knobs);
      all.back().*knob = value;
      if (!allowed(problem, all.back())) all.pop_back();
    }
  };
  add(&TetriInferKnobs::order, planner::kAllPromptOrders);
  add(&TetriInferKnobs::admission, planner::kAllDecodeAdmissions);
  add(&TetriInferKnobs::choice, std::array{dispatch::DecodeChoice::kTwoChoice, dispatch::DecodeChoice::kAtArrival});
  return all;
}

Result<void> validate_options(const Problem& problem, const TetriInferOptions& options) {
  const auto wrong = [&](const char* field, const auto& found, const std::string& allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}: must be {} (got {})", problem.name, field, allowed, found)};
  };
  for (const int kind : options.kinds) {
    if (kind >= 0 && kind < static_cast<int>(problem.kinds.size())) continue;
    return wrong("kinds", kind, fmt::format("from 0 to {}", problem.kinds.size() - 1));
  }
  if (options.search.seeds < 1) return wrong("seeds", options.search.seeds, "at least 1");
  if (options.prefill_sched_batch < 1) return wrong("prefillSchedBatch", options.prefill_sched_batch, "at least 1");
  if (options.chunk_tokens && *options.chunk_tokens < 1) return wrong("chunkTokens", *options.chunk_tokens, "at least 1");
  if (!(problem.predictor_slowdown >= 1)) return wrong("predictorSlowdown", problem.predictor_slowdown, "at least 1");
  if (!(options.saturated_share > 0 && options.saturated_share <= 1))
    return wrong("saturatedShare", options.saturated_share, "above 0 and at most 1");
  return {};
}

// Tries other policies on the best design's kinds: those that need less, then those that leave more room, until none does.
Result<void> choose_knobs(const Problem& problem, const TetriInferOptions& options, SplitSearch& search, int prefill,
                          int decode) {
  TetriInferKnobs knobs = start_of(problem, options);
  const double rate = problem.requests_per_s;
  for (bool changed = true; changed;) {
    changed = false;
    for (const TetriInferKnobs& other : neighbours(problem, knobs)) {
      const double before = search.best()->worth;
      WINDLASS_RETURN_IF_ERROR(search.look(tetriinfer_design(problem, prefill, decode, other, options)));
      if (search.best()->worth >= before) continue;
      knobs = other;
      changed = true;
      break;
    }
    if (changed || problem.goal == Goal::kThroughput) continue;
    const PhaseCounts counts = search.best()->counts;
    WINDLASS_ASSIGN_OR_RETURN(double least, search.worst_of(search.best()->design.deploy(counts), rate));
    const TetriInferKnobs from = knobs;
    for (const TetriInferKnobs& other : neighbours(problem, from)) {
      const SplitDesign design = tetriinfer_design(problem, prefill, decode, other, options);
      WINDLASS_ASSIGN_OR_RETURN(const double worst, search.worst_of(design.deploy(counts), rate));
      if (worst > 1 || worst >= least * kMoreRoom) continue;
      least = worst;
      knobs = other;
      search.adopt(design);
      changed = true;
    }
  }
  return {};
}

}  // namespace

int saturating_chunk(const planner::IterationModel& model, double share) {
  const auto throughput = [&](int tokens) { return tokens / model.iteration_s(planner::prefill_batch(1, tokens)); };
  double highest = 0;
  for (int tokens = kLeastChunk; tokens <= kMaxChunk; tokens *= 2) highest = std::max(highest, throughput(tokens));
  int chunk = kLeastChunk;
  while (chunk < kMaxChunk && throughput(chunk) < share * highest) chunk *= 2;
  return chunk;
}

SplitDesign tetriinfer_design(const Problem& problem, int prefill_kind, int decode_kind, const TetriInferKnobs& knobs,
                              const TetriInferOptions& options) {
  const planner::IterationModel& prefill_model = *problem.kind_at(prefill_kind).model;
  const int chunk = options.chunk_tokens.value_or(saturating_chunk(prefill_model, options.saturated_share));
  Pool prefill = problem.pool(prefill_kind, dispatch::Role::kPrefill);
  prefill.spec.engine.batching = planner::Batching::kSarathi;
  prefill.spec.engine.max_batch_tokens = chunk;
  prefill.spec.engine.pads_chunks = true;
  prefill.spec.engine.prompt_order = knobs.order;
  prefill.spec.engine.prompt_order_window = options.prefill_sched_batch;
  prefill.spec.engine = problem.engines.nearest(prefill.spec.engine);
  prefill.spec.length_predictor = predicts(knobs);
  Pool decode = problem.pool(decode_kind, dispatch::Role::kDecode);
  decode.spec.engine.batching = planner::Batching::kVllm;
  decode.spec.engine.admission = knobs.admission;
  decode.spec.engine = problem.engines.nearest(decode.spec.engine);

  SplitDesign design;
  design.name =
      fmt::format("{} for prefill in chunks of {}, {} in windows of {}; {} for decode, {}, {}", worker_text(prefill.spec),
                  prefill.spec.engine.max_batch_tokens, planner::to_string(knobs.order), options.prefill_sched_batch,
                  worker_text(decode.spec), planner::to_string(knobs.admission), text_of(knobs.choice));
  Deployment base;
  base.pools = {prefill, decode};
  base.dispatch.policy.reset();  // the prefill instance with the least load
  base.dispatch.decode_choice = knobs.choice;
  if (predicts(knobs)) base.dispatch.prediction = options.prediction;
  base.dispatch.flip = options.flip;
  base.dispatch.heavy_decode_tokens = options.heavy_decode_tokens;
  design.deploy = [base](const PhaseCounts& counts) {
    Deployment deployment = base;
    deployment.pools[0].workers = counts.prefill;
    deployment.pools[1].workers = counts.decode;
    return deployment;
  };
  const PhaseLoads loads = phase_loads(problem, *model_of(problem, prefill.spec), problem.kind_at(decode_kind));
  design.guess = {workers_for(loads.prefill), workers_for(loads.decode)};
  return design;
}

Result<Offer> tetriinfer_plan(const Problem& problem, const Effort& effort, const TetriInferOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  WINDLASS_RETURN_IF_ERROR(validate_options(problem, options));
  std::vector<int> kinds = options.kinds;
  if (kinds.empty()) {
    kinds.resize(problem.kinds.size());
    std::iota(kinds.begin(), kinds.end(), 0);
  }
  struct Pair {
    int prefill = 0, decode = 0;
    SplitDesign design;
    double guess = 0, least = 0;  // worths
  };
  std::vector<Pair> pairs;
  for (const int prefill : kinds) {
    for (const int decode : kinds) {
      Pair pair{prefill, decode, tetriinfer_design(problem, prefill, decode, start_of(problem, options), options)};
      pair.guess = worth_of(problem, pair.design.deploy(pair.design.guess));
      const PhaseLoads loads = phase_loads(problem, *problem.kind_at(prefill).model, problem.kind_at(decode));
      const auto least = [](double load) { return std::max(1, static_cast<int>(kSureLoad * load)); };
      pair.least = worth_of(problem, pair.design.deploy({least(loads.prefill), least(loads.decode)}));
      pairs.push_back(std::move(pair));
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.guess < b.guess; });
  SplitSearch search(problem, effort, options.search);
  const Pair* best = nullptr;
  const auto run = [&]() -> Result<void> {
    for (const Pair& pair : pairs) {
      if (best != nullptr && problem.goal != Goal::kThroughput && pair.least >= search.best()->worth) continue;
      const double before = search.best() ? search.best()->worth : std::numeric_limits<double>::infinity();
      const auto looked = search.look(pair.design);
      if (search.best() && search.best()->worth < before) best = &pair;
      if (!looked.ok()) return looked;
    }
    if (best == nullptr || !options.choose_knobs) return {};
    return choose_knobs(problem, options, search, best->prefill, best->decode);
  };
  const auto ran = run();
  if (!ran.ok() && ran.error().code != ErrorCode::kCancelled) return ran.error();
  return search.plan("tetriinfer", !ran.ok());
}

}  // namespace windlass::search
