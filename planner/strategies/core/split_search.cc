// See split_search.h.
#include "planner/strategies/core/split_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/plan_parts.h"

namespace windlass::search {
namespace {

constexpr int kFirstSeeds = 2;             // tried first, so that two cores have work if most deployments fail
constexpr std::size_t kColumnsAtOnce = 4;  // with limited room; independent of the executor's threads
constexpr double kWorthOfGpu = 1e-6;       // tie-breaker: fewer GPUs, also if prices are 0
constexpr double kMaxPerS = 1e6;           // upper bound of the search
constexpr std::int64_t kRequestsAlone = 200;
constexpr double kAloneGapS = 10'000;  // seconds between requests that run alone
constexpr double kGuessLoad = 0.8;     // assumed share of workers' time in use, for a first guess
constexpr double kGuessMemory = 0.7;
constexpr std::int64_t kGuessRequests = 200;
constexpr std::size_t kNearestTried = 6;  // columns per design if nothing is feasible

double worth_in(const Problem& problem, const Deployment& deployment) {
  return worth_of(problem, deployment) + kWorthOfGpu * gpus_of(deployment);
}

// Share of the guess that these counts reach, for the scarcer side.
double share_of(const SplitDesign& design, const PhaseCounts& counts) {
  const double prefill = 1.0 * counts.prefill / design.guess.prefill;
  return design.unified ? prefill : std::min(prefill, 1.0 * counts.decode / design.guess.decode);
}

// The most prefill workers that fit, for each number of decode workers.
std::vector<PhaseCounts> room_of(const SplitDesign& design, const std::function<bool(const PhaseCounts&)>& fits) {
  constexpr int kMost = 1 << 20;
  std::vector<PhaseCounts> columns;
  for (int decode = design.unified ? 0 : 1;; ++decode) {
    const int prefill = largest_good(kMost, [&](int count) { return fits({count, decode}); });
    if (prefill == 0) return columns;
    columns.push_back({prefill, decode});
    if (design.unified) return columns;
  }
}

}  // namespace

PhaseLoads phase_loads(const Problem& problem, const planner::IterationModel& prefill, const WorkerKind& decode) {
  const auto lengths = lengths_of(*problem.requests, problem.seed, kGuessRequests);
  const auto count = static_cast<double>(lengths.size());
  double prompt_s = 0, context = 0, output = 0;
  for (const auto& [input, made] : lengths) {
    prompt_s += prefill.iteration_s(planner::prefill_batch(1, input)) / count;
    context += (input + made / 2.0) / count;
    output += (made - 1.0) / count;
  }
  const double fit = kGuessMemory * decode.kv_capacity_tokens / std::max(1.0, context);
  const int batch = static_cast<int>(std::clamp(fit, 1.0, static_cast<double>(problem.engine.max_sequences)));
  const double token_s = output * decode.model->iteration_s(planner::decode_batch(batch, context)) / batch;
  return {problem.requests_per_s * prompt_s, problem.requests_per_s * token_s};
}

int workers_for(double load) {
  constexpr double kMost = 100'000;
  return static_cast<int>(std::clamp(std::ceil(load / kGuessLoad), 1.0, kMost));
}

SplitSearch::SplitSearch(const Problem& problem, const Effort& effort, const SplitOptions& options)
    : problem_(problem),
      effort_(effort),
      options_(options),
      executor_(effort.executor != nullptr ? *effort.executor : serial_) {
  // A limit applies only to the deployment parts that count towards it.
  const auto every = [&](const auto& test) {
    return std::all_of(problem.accelerators.begin(), problem.accelerators.end(), test);
  };
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  bounded_ = problem.max_gpus != kNoLimit || every([](const AcceleratorChoice& choice) { return choice.gpus != kNoLimit; }) ||
             (std::isfinite(problem.max_cost_per_hour) &&
              every([](const AcceleratorChoice& choice) { return choice.spec.price_per_hour > 0; })) ||
             (std::isfinite(options.max_power_watts) &&
              every([](const AcceleratorChoice& choice) { return choice.spec.power_watts > 0; }));
}

std::int64_t SplitSearch::requests_at(double requests_per_s) const {
  const double of_time = std::round(std::min(1e9, requests_per_s * options_.trial_s));
  const auto most = std::max(options_.max_requests, problem_.requests_per_trial);
  return std::clamp(static_cast<std::int64_t>(of_time), problem_.requests_per_trial, most);
}

Result<void> SplitSearch::go_on() const {
  if (stop_requested(effort_.stop)) return Error{ErrorCode::kCancelled, "stopped before the search was complete"};
  if (iterations_ >= effort_.max_iterations) return Error{ErrorCode::kCancelled, "the step budget is used up"};
  return {};
}

bool SplitSearch::fits(const Deployment& deployment) const {
  return check_room(problem_, deployment).ok() && power_watts(problem_, deployment) <= options_.max_power_watts;
}

// Runs the first seeds for all, then the other seeds for those that passed.
Result<std::vector<char>> SplitSearch::hold(std::span<const Probe> probes) {
  std::vector<char> holds(probes.size(), 1);
  for (int from = 0; from < options_.seeds; from = from == 0 ? kFirstSeeds : options_.seeds) {
    WINDLASS_RETURN_IF_ERROR(go_on());
    const int to = from == 0 ? std::min(kFirstSeeds, options_.seeds) : options_.seeds;
    std::vector<std::pair<std::size_t, int>> tasks;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      for (int seed = from; holds[i] != 0 && seed < to; ++seed) tasks.emplace_back(i, seed);
    }
    if (tasks.empty()) break;
    const auto run = [&](std::size_t task) {
      const Probe& probe = probes[tasks[task].first];
      const auto seed = problem_.seed + static_cast<std::uint64_t>(tasks[task].second);
      return try_out(problem_, probe.deployment,
                     {probe.requests_per_s, requests_at(probe.requests_per_s), seed, /*verdict_only=*/true});
    };
    WINDLASS_ASSIGN_OR_RETURN(const auto results,
                              parallel_map<Result<sim::ServingResult>>(executor_, tasks.size(), run, effort_.stop));
    for (std::size_t task = 0; task < tasks.size(); ++task) {
      if (!results[task].ok()) return results[task].error();
      ++trials_;
      iterations_ += results[task]->iterations;
      if (!judge(problem_, *results[task]).holds) holds[tasks[task].first] = 0;
    }
  }
  return holds;
}

Result<std::vector<sim::ServingResult>> SplitSearch::whole(const Deployment& deployment, double requests_per_s) {
  const auto run = [&](std::size_t seed) {
    return try_out(problem_, deployment, {requests_per_s, requests_at(requests_per_s), problem_.seed + seed});
  };
  const auto seeds = static_cast<std::size_t>(options_.seeds);
  WINDLASS_ASSIGN_OR_RETURN(auto results, parallel_map<Result<sim::ServingResult>>(executor_, seeds, run));
  std::vector<sim::ServingResult> runs;
  for (auto& result : results) {
    if (!result.ok()) return result.error();
    ++trials_;
    iterations_ += result->iterations;
    runs.push_back(std::move(result).value());
  }
  return runs;
}

Result<double> SplitSearch::worst_of(const Deployment& deployment, double requests_per_s) {
  WINDLASS_RETURN_IF_ERROR(go_on());
  WINDLASS_ASSIGN_OR_RETURN(const auto runs, whole(deployment, requests_per_s));
  double worst = 0;
  for (const sim::ServingResult& run : runs) worst = std::max(worst, judge(problem_, run).worst);
  return worst;
}

// With more workers a request runs more nearly alone: an objective missed alone is missed with any number of them.
Result<bool> SplitSearch::holds_alone(const SplitDesign& design) {
  const Deployment one = design.deploy({1, design.unified ? 0 : 1});
  WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, one, {1 / kAloneGapS, kRequestsAlone, problem_.seed}));
  ++trials_;
  iterations_ += result.iterations;
  const Verdict verdict = judge(problem_, result);
  if (!verdict.holds)
    notes_.push_back(fmt::format("{}: even a request alone misses the objectives: {}", design.name, verdict.broken));
  return verdict.holds;
}

Result<void> SplitSearch::look(const SplitDesign& design) {
  if (!fits(design.deploy({1, design.unified ? 0 : 1}))) {
    notes_.push_back(fmt::format("{}: no room for one worker of each kind", design.name));
    return {};
  }
  WINDLASS_RETURN_IF_ERROR(go_on());
  looked_.push_back(design);
  if (effort_.progress) effort_.progress(design.name, 0);
  WINDLASS_ASSIGN_OR_RETURN(const bool alone, holds_alone(design));
  if (!alone) return {};
  return max_throughput() ? look_for_most(design) : look_for_least(design);
}

Result<void> SplitSearch::look_for_least(const SplitDesign& design) {
  const double rate = problem_.requests_per_s;
  CountQuestions questions;
  const int decode = design.unified ? 0 : 1;
  const double one = worth_in(problem_, design.deploy({1, decode}));
  questions.prefill_worth = worth_in(problem_, design.deploy({2, decode})) - one;
  questions.decode_worth = design.unified ? 0 : worth_in(problem_, design.deploy({1, 2})) - one;
  questions.unified = design.unified;
  questions.fits = [&](const PhaseCounts& counts) { return fits(design.deploy(counts)); };
  questions.max_workers = static_cast<int>(std::min<std::int64_t>(requests_at(rate), 100'000));
  // Among the failing ones, take the one nearest to the guess, which is close to the frontier in both directions.
  const auto share = [&](const PhaseCounts& counts) { return share_of(design, counts); };
  PhaseCounts failed = {0, 0};
  questions.hold = [&](std::span<const PhaseCounts> counts) -> Result<std::vector<char>> {
    std::vector<Probe> probes;
    for (const PhaseCounts& each : counts) probes.push_back({design.deploy(each), rate});
    WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> holds, hold(probes));
    for (std::size_t i = 0; i < holds.size(); ++i) {
      if (holds[i] == 0 && share(counts[i]) >= share(failed)) failed = counts[i];
    }
    return holds;
  };
  CountWalk walk(questions);
  const auto walked = walk.run(design.guess, best_ ? best_->worth : std::numeric_limits<double>::infinity());
  if (walk.best()) {
    if (best_) asked_.push_back({best_->design, best_->counts, true, rate});
    best_ = Found{design, *walk.best(), rate, worth_in(problem_, design.deploy(*walk.best()))};
  }
  if (failed.prefill > 0) asked_.push_back({design, failed, false, rate});
  return walked;
}

Result<double> SplitSearch::rate_of(const Deployment& deployment, double holds_at) {
  double passed = holds_at, failed = std::numeric_limits<double>::infinity();
  double step = 1 + 2 * options_.tolerance;
  while (failed > passed * (1 + options_.tolerance) && passed < kMaxPerS) {
    const double rate = std::isinf(failed) ? std::min(kMaxPerS, passed * step) : std::sqrt(passed * failed);
    const Probe probe{deployment, rate};
    WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> holds, hold({&probe, 1}));
    (holds[0] != 0 ? passed : failed) = rate;
    step *= step;
  }
  return passed;
}

// Tries every column at the edge of the room: one trial above the best rate shows whether it is better.
Result<void> SplitSearch::look_for_most(const SplitDesign& design) {
  std::vector<PhaseCounts> columns = room_of(design, [&](const PhaseCounts& counts) { return fits(design.deploy(counts)); });
  const auto of_guess = [&](const PhaseCounts& counts) { return share_of(design, counts); };
  std::stable_sort(columns.begin(), columns.end(),
                   [&](const PhaseCounts& a, const PhaseCounts& b) { return of_guess(a) > of_guess(b); });
  const auto take = [&](const PhaseCounts& counts, double holds_at) -> Result<void> {
    const Deployment deployment = design.deploy(counts);
    const auto set = [&](double rate) {
      if (best_ && best_->design.name != design.name)
        asked_.push_back({best_->design, best_->counts, true, best_->requests_per_s});
      best_ = Found{design, counts, rate, -rate};
    };
    set(holds_at);
    WINDLASS_ASSIGN_OR_RETURN(const double rate, rate_of(deployment, holds_at));
    set(rate);
    return {};
  };
  if (!best_) {
    // A feasible rate of the most promising column.
    double rate = problem_.requests_per_s * of_guess(columns.front());
    for (;; rate /= 2) {
      if (rate * kAloneGapS < 1) return {};
      const Probe probe{design.deploy(columns.front()), rate};
      WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> holds, hold({&probe, 1}));
      if (holds[0] != 0) break;
    }
    WINDLASS_RETURN_IF_ERROR(take(columns.front(), rate));
    columns.erase(columns.begin());
  }
  for (std::size_t from = 0; from < columns.size();) {
    const std::size_t to = std::min(from + kColumnsAtOnce, columns.size());
    const double rate = best_->requests_per_s * (1 + options_.tolerance);
    std::vector<Probe> probes;
    for (std::size_t i = from; i < to; ++i) probes.push_back({design.deploy(columns[i]), rate});
    WINDLASS_ASSIGN_OR_RETURN(const std::vector<char> holds, hold(probes));
    const auto better = std::find(holds.begin(), holds.end(), 1);
    if (better == holds.end()) {
      from = to;
      continue;
    }
    // Those before it are not better; those after it are tried again at its rate.
    from += static_cast<std::size_t>(better - holds.begin());
    WINDLASS_RETURN_IF_ERROR(take(columns[from], rate));
    ++from;
  }
  if (best_->design.name != design.name) {
    asked_.push_back({design, columns.front(), false, best_->requests_per_s * (1 + options_.tolerance)});
  }
  return {};
}

Result<SplitSearch::Candidate> SplitSearch::nearest() {
  if (looked_.empty()) {
    std::string why;
    for (const std::string& note : notes_) why += (why.empty() ? "" : "; ") + note;
    return Error{ErrorCode::kNotFound, fmt::format("{}: nothing can be deployed: {}", problem_.name, why)};
  }
  Candidate nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const SplitDesign& design : looked_) {
    std::vector<PhaseCounts> columns = {design.guess};
    const auto room = [&](const PhaseCounts& counts) { return fits(design.deploy(counts)); };
    if (bounded_) {
      const std::vector<PhaseCounts> all = room_of(design, room);
      columns.clear();
      for (std::size_t i = 0; i < std::min(kNearestTried, all.size()); ++i) {
        columns.push_back(all[i * all.size() / std::min(kNearestTried, all.size())]);
      }
    } else if (!room(design.guess)) {
      columns = {{1, design.unified ? 0 : 1}};
    }
    for (const PhaseCounts& counts : columns) {
      const auto run = try_out(problem_, design.deploy(counts),
                               {problem_.requests_per_s, requests_at(problem_.requests_per_s), problem_.seed});
      if (!run.ok()) return run.error();
      ++trials_;
      iterations_ += run->iterations;
      const double worst = judge(problem_, *run).worst;
      if (!nearest.design.deploy || worst < least) nearest = {design, counts, false, problem_.requests_per_s};
      least = std::min(least, worst);
    }
  }
  return nearest;
}

Result<Offer> SplitSearch::plan(const std::string& strategy, bool stopped) {
  if (stopped && !best_) {
    return Error{ErrorCode::kCancelled, fmt::format("{}: stopped before any plan was found", problem_.name)};
  }
  const double rate = problem_.requests_per_s;
  Candidate chosen;
  if (best_) {
    chosen = {best_->design, best_->counts, best_->requests_per_s >= rate, rate};
  } else {
    WINDLASS_ASSIGN_OR_RETURN(chosen, nearest());
  }
  Offer plan = plan_of(problem_, strategy, chosen.design.deploy(chosen.counts));
  plan.stopped = stopped;
  WINDLASS_ASSIGN_OR_RETURN(const auto runs, whole(plan.deployment, rate));
  plan.predicted = predict(problem_, runs);
  plan.holds = chosen.held;
  WINDLASS_RETURN_IF_ERROR(say_why(plan, chosen.design.name, runs));
  for (const std::string& note : notes_) plan.reasons.push_back(note + ".");
  for (const Candidate& asked : asked_) {
    if (plan.considered.size() >= kMaxConsidered || plan.stopped) break;
    WINDLASS_ASSIGN_OR_RETURN(Rejection other, consider(asked, plan));
    plan.considered.push_back(std::move(other));
  }
  plan.trials = trials_;
  plan.iterations = iterations_;
  return plan;
}

// Fills in the plan's reasons and capacity. May be stopped.
Result<void> SplitSearch::say_why(Offer& plan, const std::string& name, const std::vector<sim::ServingResult>& runs) {
  const double rate = problem_.requests_per_s;
  const std::string pools = describe(plan.deployment);
  if (!best_) {
    plan.reasons.push_back(
        fmt::format("No deployment that has room meets the objectives; {} ({}) comes closest.", pools, name));
    for (const sim::ServingResult& run : runs) {
      const Verdict verdict = judge(problem_, run);
      if (verdict.holds) continue;
      plan.reasons.push_back(fmt::format("It misses the objectives: {}.", verdict.broken));
      break;
    }
  } else if (max_throughput()) {
    plan.predicted.capacity_requests_per_s = best_->requests_per_s;
    plan.reasons.push_back(fmt::format(
        "{} ({}): meets the objectives at {:.4g} requests/s in all of {} trials, the most that the available room allows{}.",
        pools, name, best_->requests_per_s, options_.seeds,
        plan.holds ? "" : fmt::format("; the required rate is {:.4g}", rate)));
  } else {
    plan.predicted.capacity_requests_per_s = rate;
    if (!plan.stopped) {
      const auto capacity = rate_of(plan.deployment, rate);
      if (!capacity.ok() && capacity.error().code != ErrorCode::kCancelled) return capacity.error();
      if (capacity.ok()) plan.predicted.capacity_requests_per_s = *capacity;
      plan.stopped = !capacity.ok();
    }
    plan.reasons.push_back(
        fmt::format("{} ({}): the best {} of all deployments tried that meet the objectives in all of {} trials.", pools, name,
                    to_string(problem_.goal), options_.seeds));
  }
  return {};
}

// Compares another design's last trial with the plan.
Result<Rejection> SplitSearch::consider(const Candidate& asked, const Offer& plan) {
  Rejection other;
  other.deployment = asked.design.deploy(asked.counts);
  other.cost_per_hour = cost_per_hour(problem_, other.deployment);
  const auto run =
      try_out(problem_, other.deployment, {asked.requests_per_s, requests_at(asked.requests_per_s), problem_.seed});
  if (!run.ok()) return run.error();
  ++trials_;
  iterations_ += run->iterations;
  other.predicted = predict(problem_, {&*run, 1});
  const Verdict verdict = judge(problem_, *run);
  if (asked.held && max_throughput()) {
    other.predicted.capacity_requests_per_s = asked.requests_per_s;
    other.rejected_because =
        fmt::format("{}: {:.4g} requests/s, the plan {:.4g}", asked.design.name, asked.requests_per_s, best_->requests_per_s);
  } else if (asked.held) {
    other.rejected_because = fmt::format("{}: {} {:.6g}, the plan {:.6g}", asked.design.name, to_string(problem_.goal),
                                         worth_of(problem_, other.deployment), worth_of(problem_, plan.deployment));
  } else {
    other.rejected_because =
        fmt::format("{}: {}", asked.design.name, verdict.holds ? "misses the objectives in some trials" : verdict.broken);
  }
  return other;
}

Result<Offer> plan_of_designs(const Problem& problem, const Effort& effort, const SplitOptions& options,
                              const std::string& strategy, std::vector<SplitDesign> designs) {
  // Cheapest by estimate first, so that the others have less room below it.
  std::stable_sort(designs.begin(), designs.end(), [&](const SplitDesign& a, const SplitDesign& b) {
    return worth_of(problem, a.deploy(a.guess)) < worth_of(problem, b.deploy(b.guess));
  });
  SplitSearch search(problem, effort, options);
  for (const SplitDesign& design : designs) {
    const auto looked = search.look(design);
    if (looked.ok()) continue;
    if (looked.error().code != ErrorCode::kCancelled) return looked.error();
    return search.plan(strategy, true);
  }
  return search.plan(strategy, false);
}

}  // namespace windlass::search
