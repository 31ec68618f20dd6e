// See aladdin.h.
#include "planner/strategies/aladdin/aladdin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/latency_model.h"
#include "planner/sizing/worker_count.h"
#include "planner/strategies/aladdin/aladdin_demand.h"
#include "planner/strategies/core/split_search.h"

namespace windlass::search {
namespace {

using planner::WorkerTimes;

constexpr std::int64_t kLengthsSeen = 5000;
constexpr double kErrorOfMean = 0.1;  // allowed error of a heartbeat's mean lengths
// Placement uses the same defaults as worker_config.h.
static_assert(dispatch::Placement{}.gamma == planner::kContextGrowth && dispatch::Placement{}.theta == planner::kTpotMargin);

// A kind's iteration times in the form that Eq. 2 and 3 need.
class KindLatency final : public planner::LatencyModel {
 public:
  explicit KindLatency(const WorkerKind& kind) : kind_(kind) {}

  [[nodiscard]] double prefill_s(double total_input_tokens) const override {
    return kind_.model->iteration_s(planner::prefill_batch(1, std::max(1.0, total_input_tokens)));
  }
  [[nodiscard]] double decode_s(double batch, double mean_context_tokens) const override {
    const int sequences = std::max(1, static_cast<int>(std::lround(batch)));
    return kind_.model->iteration_s(planner::decode_batch(sequences, mean_context_tokens));
  }
  [[nodiscard]] double kv_capacity_tokens() const override { return kind_.kv_capacity_tokens; }

 private:
  const WorkerKind& kind_;
};

std::string worker_text(const Problem& problem, int kind) {
  const WorkerKind& of = problem.kind_at(kind);
  return fmt::format("{} x {}", of.gpus(), problem.spec(of).name);
}

std::string why_rejected(const planner::Objective& objective, const KindLatency& model, const planner::Lengths& lengths) {
  const WorkerTimes alone = planner::worker_times(model, 1, lengths);
  if (alone.ttft_s > objective.ttft_s) {
    return fmt::format("a prompt of {:.0f} tokens alone takes {:.3g} s, above the limit of {:.3g} s", lengths.input_tokens,
                       alone.ttft_s, objective.ttft_s);
  }
  if (alone.tpot_s > planner::kTpotMargin * objective.tpot_s) {
    return fmt::format("one request alone takes {:.4g} ms per token, above {:.0f} % of {:.4g} ms", alone.tpot_s * 1e3,
                       planner::kTpotMargin * 100, objective.tpot_s * 1e3);
  }
  return fmt::format("one request of {:.0f} + {:.0f} tokens does not fit into its KV cache of {:.0f}", lengths.input_tokens,
                     lengths.output_tokens, model.kv_capacity_tokens());
}

planner::Lengths mean_lengths(const Problem& problem) {
  return {problem.requests->mean_input_tokens(), problem.requests->mean_output_tokens()};
}

int workers_guess(double load) { return static_cast<int>(std::clamp(std::ceil(load), 1.0, 100'000.0)); }

SplitDesign unified_design(const Problem& problem, const KindThroughput& of, const AladdinOptions& options) {
  SplitDesign design;
  design.name = fmt::format("{} per worker", worker_text(problem, of.kind));
  design.unified = true;
  design.deploy = [pool = problem.pool(of.kind), options](const PhaseCounts& counts) {
    Deployment deployment;
    deployment.pools = {pool};
    deployment.pools[0].workers = counts.prefill;
    deployment.dispatch.policy = dispatch::PolicyKind::kAladdin;
    deployment.dispatch.placement = options.placement;
    return deployment;
  };
  const double one = of.choice.batch / of.choice.times.service_s;
  design.guess = {workers_guess(problem.requests_per_s / (planner::kMaxUtilisation * one)), 0};
  return design;
}

// For each phase, the degree with the highest throughput per GPU within its own objective: prompts per second for prefill;
// tokens per second without interleaved prompts for decode (Eq. 6).
struct PhaseKinds {
  int prefill = -1, decode = -1;
  double prefill_s = 0;           // for a mean prompt
  planner::BatchChoice decoding;  // at the limit of TPOT or of the cache
};

PhaseKinds phase_kinds(const Problem& problem, const planner::Objective& objective, int accelerator) {
  PhaseKinds best;
  double max_prompts = 0, max_tokens = 0;
  const planner::Lengths lengths = mean_lengths(problem);
  const planner::Objective decode_only{std::numeric_limits<double>::infinity(), objective.tpot_s, objective.percentile};
  for (int kind = 0; kind < static_cast<int>(problem.kinds.size()); ++kind) {
    const WorkerKind& of = problem.kind_at(kind);
    if (of.accelerator != accelerator || of.pipeline_stages > 1) continue;
    const KindLatency model(of);
    const double prefill_s = model.prefill_s(lengths.input_tokens);
    if (prefill_s <= objective.ttft_s && 1 / (of.gpus() * prefill_s) > max_prompts) {
      max_prompts = 1 / (of.gpus() * prefill_s);
      best.prefill = kind;
      best.prefill_s = prefill_s;
    }
    // A decode worker spends no time on prompts.
    class Decode final : public planner::LatencyModel {
     public:
      explicit Decode(const KindLatency& kind) : kind_(kind) {}
      [[nodiscard]] double prefill_s(double) const override { return 0; }
      [[nodiscard]] double decode_s(double batch, double context) const override { return kind_.decode_s(batch, context); }
      [[nodiscard]] double kv_capacity_tokens() const override { return kind_.kv_capacity_tokens(); }

     private:
      const KindLatency& kind_;
    };
    const planner::BatchChoice choice = planner::largest_batch(Decode(model), decode_only, lengths);
    if (choice.batch < 1) continue;
    const double tokens = planner::tokens_per_s_per_gpu(choice, decode_only, of.gpus());
    if (tokens > max_tokens) {
      max_tokens = tokens;
      best.decode = kind;
      best.decoding = choice;
    }
  }
  return best;
}

SplitDesign split_design(const Problem& problem, const PhaseKinds& kinds, const AladdinOptions& options) {
  SplitDesign design;
  design.name =
      fmt::format("prefill on {}, decode on {}", worker_text(problem, kinds.prefill), worker_text(problem, kinds.decode));
  design.deploy = [prefill = problem.pool(kinds.prefill, dispatch::Role::kPrefill),
                   decode = problem.pool(kinds.decode, dispatch::Role::kDecode), options](const PhaseCounts& counts) {
    Deployment deployment;
    deployment.pools = {prefill, decode};
    deployment.pools[0].workers = counts.prefill;
    deployment.pools[1].workers = counts.decode;
    deployment.dispatch.policy = dispatch::PolicyKind::kAladdin;
    deployment.dispatch.decode_choice = dispatch::DecodeChoice::kAtArrival;
    deployment.dispatch.placement = options.placement;
    return deployment;
  };
  const double rate = problem.requests_per_s, busy = planner::kMaxUtilisation;
  const double decode_s = mean_lengths(problem).output_tokens * kinds.decoding.times.decode_s;
  design.guess = {workers_guess(rate * kinds.prefill_s / busy), workers_guess(rate * decode_s / (busy * kinds.decoding.batch))};
  return design;
}

Result<void> check(const Problem& problem, const AladdinOptions& options) {
  const auto wrong = [&](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: aladdin: {}: must be {} (got {})", problem.name, field, allowed, found)};
  };
  const double gamma = options.placement.gamma, theta = options.placement.theta;
  if (!(gamma >= 0 && gamma <= 1)) return wrong("gamma", gamma, "from 0 to 1");
  if (!(theta > 0 && theta <= 1)) return wrong("theta", theta, "above 0 and at most 1");
  if (!(options.heartbeat_s > 0)) return wrong("heartbeat", options.heartbeat_s, "above 0");
  if (options.search.seeds < 1) return wrong("seeds", options.search.seeds, "at least 1");
  return {};
}

// The best kind by Eq. 6 of each accelerator; with `rest`, all others that it does not reject.
std::vector<SplitDesign> unified_designs(const Problem& problem, const std::vector<KindThroughput>& kinds,
                                         const AladdinOptions& options, bool rest) {
  std::vector<SplitDesign> designs;
  int last = -1;
  for (const KindThroughput& kind : kinds) {
    if (kind.tokens_per_s_per_gpu <= 0) continue;
    const int accelerator = problem.kind_at(kind.kind).accelerator;
    const bool best = std::exchange(last, accelerator) != accelerator;
    if (best != rest) designs.push_back(unified_design(problem, kind, options));
  }
  return designs;
}

void explain(const Problem& problem, const std::vector<KindThroughput>& kinds, const AladdinOptions& options, Offer& plan) {
  for (const KindThroughput& kind : kinds) {
    const bool chosen = problem.pool(kind.kind).spec == plan.deployment.pools.front().spec;
    if (!chosen || kind.tokens_per_s_per_gpu <= 0 || plan.deployment.pools.size() > 1) continue;
    plan.reasons.push_back(fmt::format(
        "{} has the highest throughput per GPU (Eq. 6): {:.0f} tokens/s per GPU at a batch of {}, limited by {}",
        worker_text(problem, kind.kind), kind.tokens_per_s_per_gpu, kind.choice.batch, planner::to_string(kind.choice.limit)));
  }
  const auto lengths = lengths_of(*problem.requests, problem.seed, kLengthsSeen);
  if (lengths.size() < 2) return;
  const double valid = static_cast<double>(least_requests(spread_of(lengths), kErrorOfMean)) / options.heartbeat_s;
  plan.reasons.push_back(
      fmt::format("the number of workers is linear in the rate (Eq. 7) above {:.3g} requests/s, where a heartbeat's mean "
                  "lengths are within {:.0f} % of those of all requests; the plan's rate is {:.3g}",
                  valid, 100 * kErrorOfMean, problem.requests_per_s));
}

}  // namespace

std::vector<KindThroughput> aladdin_kinds(const Problem& problem, const planner::Objective& objective) {
  std::vector<KindThroughput> kinds;
  const planner::Lengths lengths = mean_lengths(problem);
  for (int kind = 0; kind < static_cast<int>(problem.kinds.size()); ++kind) {
    const WorkerKind& of = problem.kind_at(kind);
    if (of.pipeline_stages > 1) continue;
    const KindLatency model(of);
    KindThroughput found;
    found.kind = kind;
    found.choice = planner::largest_batch(model, objective, lengths);
    found.choice.batch = std::min(found.choice.batch, problem.engine.max_sequences);
    if (found.choice.batch >= 1) {
      found.choice.times = planner::worker_times(model, found.choice.batch, lengths);
      found.tokens_per_s_per_gpu = planner::tokens_per_s_per_gpu(found.choice, objective, of.gpus());
    } else {
      found.rejected_because = why_rejected(objective, model, lengths);
    }
    kinds.push_back(std::move(found));
  }
  std::stable_sort(kinds.begin(), kinds.end(), [&](const KindThroughput& a, const KindThroughput& b) {
    const auto order = [&](const KindThroughput& k) {
      return std::tuple(k.tokens_per_s_per_gpu <= 0, problem.kind_at(k.kind).accelerator, -k.tokens_per_s_per_gpu);
    };
    return order(a) < order(b);
  });
  return kinds;
}

Result<planner::Objective> aladdin_objective(const Problem& problem) {
  planner::Objective objective{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
                               100 * problem.objectives.attainment};
  if (const auto& both = problem.objectives.both) {
    objective.ttft_s = both->ttft_s;
    objective.tpot_s = both->tpot_s;
  }
  for (const Limit& limit : problem.objectives.limits) {
    if (limit.metric == Metric::kTtft) objective.ttft_s = std::min(objective.ttft_s, limit.most);
    if (limit.metric == Metric::kTpot) objective.tpot_s = std::min(objective.tpot_s, limit.most);
  }
  for (const auto& [name, value] : {std::pair{"TTFT", objective.ttft_s}, {"TPOT", objective.tpot_s}}) {
    if (std::isfinite(value)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: aladdin: objectives: must include TTFT and TPOT (got none for {})", problem.name, name)};
  }
  return objective;
}

Result<Offer> aladdin_plan(const Problem& problem, const Effort& effort, const AladdinOptions& given) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  WINDLASS_RETURN_IF_ERROR(check(problem, given));
  WINDLASS_ASSIGN_OR_RETURN(const auto objective, aladdin_objective(problem));
  // Placement needs both objectives, however they were given.
  AladdinOptions options = given;
  options.placement.ttft_s = objective.ttft_s;
  options.placement.tpot_s = objective.tpot_s;
  const auto kinds = aladdin_kinds(problem, objective);
  if (options.setting == PlanSetting::kSplitPhase) {
    std::vector<SplitDesign> designs;
    for (int accelerator = 0; accelerator < static_cast<int>(problem.accelerators.size()); ++accelerator) {
      const PhaseKinds phases = phase_kinds(problem, objective, accelerator);
      if (phases.prefill >= 0 && phases.decode >= 0) designs.push_back(split_design(problem, phases, options));
    }
    if (designs.empty()) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: aladdin: no accelerator meets the objectives in both phases", problem.name)};
    }
    WINDLASS_ASSIGN_OR_RETURN(auto plan, plan_of_designs(problem, effort, options.search, "aladdin", std::move(designs)));
    explain(problem, kinds, options, plan);
    return plan;
  }
  auto designs = unified_designs(problem, kinds, options, false);
  if (designs.empty()) {
    const bool any = !kinds.empty();
    return Error{ErrorCode::kNotFound, fmt::format("{}: aladdin: {}", problem.name,
                                                   any ? fmt::format("{}: {}", worker_text(problem, kinds.front().kind),
                                                                     kinds.front().rejected_because)
                                                       : std::string("every kind has pipeline stages"))};
  }
  auto plan = plan_of_designs(problem, effort, options.search, "aladdin", std::move(designs));
  if (!plan.ok() || (!plan->holds && !plan->stopped)) {
    auto rest = unified_designs(problem, kinds, options, true);
    const bool worth_a_look = plan.ok() || plan.error().code == ErrorCode::kNotFound;
    if (worth_a_look && !rest.empty()) {
      auto other = plan_of_designs(problem, effort, options.search, "aladdin", std::move(rest));
      if (other.ok() && (!plan.ok() || other->holds)) plan = std::move(other);
    }
  }
  if (!plan.ok()) return plan.error();
  explain(problem, kinds, options, *plan);
  return plan;
}

}  // namespace windlass::search
