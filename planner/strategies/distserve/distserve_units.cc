// See distserve_units.h.
#include "planner/strategies/distserve/distserve_units.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kFewMiss = 0.9;      // from this attainment on, the mean must meet the objective too
constexpr int kLongestPrompt = 8192;  // upper limit of the search for L_m
constexpr std::int64_t kManyPages = std::int64_t{1} << 32;

class PromptsAlone final : public Requests {
 public:
  explicit PromptsAlone(const Requests& of) : of_(&of) {}

  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double requests_per_s,
                                                                std::int64_t count) const override {
    class Source final : public workload::RequestSource {
     public:
      explicit Source(std::unique_ptr<workload::RequestSource> of) : of_(std::move(of)) {}
      [[nodiscard]] std::optional<workload::Request> next() override {
        auto request = of_->next();
        if (request) request->output_tokens = 1;
        return request;
      }

     private:
      std::unique_ptr<workload::RequestSource> of_;
    };
    return std::make_unique<Source>(of_->source(seed, requests_per_s, count));
  }
  [[nodiscard]] double mean_input_tokens() const override { return of_->mean_input_tokens(); }
  [[nodiscard]] double mean_output_tokens() const override { return 1; }

 private:
  const Requests* of_;
};

// The fewest segments into which both can be divided so that one of each fits on a node.
std::optional<int> segments_of(const WorkerKind& prefill, const WorkerKind& decode, int node_gpus, int nodes) {
  for (int segments = 1; segments <= std::min({nodes, prefill.pipeline_stages, decode.pipeline_stages}); ++segments) {
    if (prefill.pipeline_stages % segments != 0 || decode.pipeline_stages % segments != 0) continue;
    if ((prefill.gpus() + decode.gpus()) / segments <= node_gpus) return segments;
  }
  return std::nullopt;
}

}  // namespace

PhaseBounds phase_bounds(const Objectives& objectives) {
  PhaseBounds bounds{kUnbounded, kUnbounded, objectives.both ? objectives.attainment : 0};
  if (objectives.both) {
    bounds.ttft_s = objectives.both->ttft_s;
    bounds.tpot_s = objectives.both->tpot_s;
  }
  for (const Limit& limit : objectives.limits) {
    bounds.share = std::max(bounds.share, limit.percentile / 100);
    if (limit.metric == Metric::kTtft) bounds.ttft_s = std::min(bounds.ttft_s, limit.most);
    if (limit.metric == Metric::kTpot) bounds.tpot_s = std::min(bounds.tpot_s, limit.most);
  }
  return bounds;
}

DistServeUnits::DistServeUnits(const Problem& problem, const DistServeOptions& options, std::int64_t requests)
    : problem_(problem),
      prompts_(std::make_unique<PromptsAlone>(*problem.requests)),
      prefill_problem_(problem),
      decode_problem_(problem),
      lengths_(phase_lengths(lengths_of(*problem.requests, problem.seed, requests))) {
  prefill_problem_.requests = prompts_.get();
  instant_ = add_instant_kind(decode_problem_);
  instant_.engine.batching = planner::Batching::kVllm;
  instant_.engine.prompt_order = planner::PromptOrder::kArrival;
  instant_.engine.kv_blocks = kManyPages;
  instant_.engine.max_batch_tokens = std::numeric_limits<int>::max();
  instant_.engine.max_sequences = std::numeric_limits<int>::max();
  const AcceleratorChoice& first = problem.accelerators.front();
  one_node_ = problem.accelerators.size() == 1 && std::min(first.gpus, problem.max_gpus) <= first.spec.gpus_per_node;
  const PhaseBounds bounds = phase_bounds(problem.objectives);
  for (const WorkerKind& kind : problem.kinds) {
    batch_tokens_.push_back(options.prefill_batch_tokens > 0
                                ? options.prefill_batch_tokens
                                : critical_prompt_tokens(*kind.model, options.saturation, kLongestPrompt));
    prefill_screens_.push_back(screen_prefill(*kind.model, lengths_, batch_tokens_.back(), bounds.ttft_s, bounds.share));
    const auto decode = [&](double tpot_s) {
      return screen_decode(*kind.model, kind.kv_capacity_tokens, lengths_, problem.engine.max_sequences, tpot_s);
    };
    decode_screens_.push_back(decode(bounds.tpot_s));
    // If many requests may miss the objective, their mean may too.
    if (bounds.share < kFewMiss) decode_screens_.back().ceiling_per_s = decode(kUnbounded).ceiling_per_s;
  }
  for (int p = 0; p < static_cast<int>(problem.kinds.size()); ++p) {
    for (int d = 0; d < static_cast<int>(problem.kinds.size()); ++d) {
      const WorkerKind &prefill = problem.kinds[static_cast<std::size_t>(p)],
                       &decode = problem.kinds[static_cast<std::size_t>(d)];
      if (prefill.accelerator != decode.accelerator) continue;
      const AcceleratorChoice& choice = problem.accelerators[static_cast<std::size_t>(prefill.accelerator)];
      const int node = std::max(1, choice.spec.gpus_per_node);
      const int nodes = std::max(1, std::min(choice.gpus, problem.max_gpus) / node);
      if (const auto segments = segments_of(prefill, decode, std::min(node, choice.gpus), nodes))
        pairs_.push_back({p, d, *segments});
    }
  }
}

Pool DistServeUnits::decode_pool(int kind, int workers) const {
  Pool pool = problem_.pool(kind, dispatch::Role::kDecode, workers);
  pool.spec.engine.batching = planner::Batching::kVllm;
  pool.spec.engine.prompt_order = planner::PromptOrder::kArrival;
  pool.spec.engine = problem_.engines.nearest(pool.spec.engine);
  return pool;
}

Pool DistServeUnits::prefill_pool(int kind, dispatch::Role role, int workers) const {
  Pool pool = decode_pool(kind, workers);
  pool.role = role;
  pool.spec.engine.max_batch_tokens = batch_tokens(kind);
  pool.spec.engine = problem_.engines.nearest(pool.spec.engine);
  return pool;
}

double DistServeUnits::worth(int kind) const {
  const Deployment one = unified(problem_, kind, problem_.engine, 1);
  const double worth = worth_of(problem_, one);
  return worth > 0 ? worth : gpus_of(one);
}

std::vector<Unit> DistServeUnits::prefill() const {
  std::vector<Unit> units;
  for (int kind = 0; kind < static_cast<int>(problem_.kinds.size()); ++kind) {
    Deployment one;
    one.pools = {prefill_pool(kind, dispatch::Role::kUnified, 1)};
    const PhaseScreen& screen = prefill_screen(kind);
    units.push_back({&prefill_problem_, std::move(one), worth(kind), screen.estimate_per_s, screen.ceiling_per_s});
  }
  return units;
}

std::vector<Unit> DistServeUnits::decode() const {
  std::vector<Unit> units;
  for (int kind = 0; kind < static_cast<int>(problem_.kinds.size()); ++kind) {
    Deployment one = deployment(kind, kind, 1, 1, false);
    one.pools[0].spec = instant_;
    const PhaseScreen& screen = decode_screen(kind);
    units.push_back({&decode_problem_, std::move(one), worth(kind), screen.estimate_per_s, screen.ceiling_per_s});
  }
  return units;
}

std::vector<Unit> DistServeUnits::pair_units() const {
  std::vector<Unit> units;
  for (const Pair& pair : pairs_) {
    const PhaseScreen &prefill = prefill_screen(pair.prefill), &decode = decode_screen(pair.decode);
    units.push_back({&problem_, deployment(pair.prefill, pair.decode, 1, 1, true), worth(pair.prefill) + worth(pair.decode),
                     std::min(prefill.estimate_per_s, decode.estimate_per_s),
                     std::min(prefill.ceiling_per_s, decode.ceiling_per_s)});
  }
  return units;
}

Deployment DistServeUnits::deployment(int prefill_kind, int decode_kind, int prefill_workers, int decode_workers,
                                      bool pairs) const {
  Deployment deployment;
  deployment.pools = {prefill_pool(prefill_kind, dispatch::Role::kPrefill, prefill_workers),
                      decode_pool(decode_kind, decode_workers)};
  deployment.pairs_share_a_node = pairs || one_node_;
  if (pairs) deployment.dispatch.decode_choice = dispatch::DecodeChoice::kPartner;
  return deployment;
}

}  // namespace windlass::search
