// validate() and say_missing(): see mix.h and mix_missing.h.
#include "planner/strategies/mix/mix.h"

#include <cmath>

#include <fmt/format.h>

#include "planner/strategies/mix/mix_missing.h"
#include "planner/strategies/mix/mix_program.h"

namespace windlass::search {
namespace {

constexpr int kAnyGpus = std::numeric_limits<int>::max();

Error wrong(const std::string& what) { return Error{ErrorCode::kInvalidArgument, "mix: " + what}; }

Result<void> validate(const MixModel& model, std::size_t accelerators) {
  if (model.kinds.empty()) return wrong(fmt::format("{}: kinds: must have at least one (got none)", model.name));
  for (std::size_t k = 0; k < model.kinds.size(); ++k) {
    const MixKind& kind = model.kinds[k];
    const std::string where = fmt::format("{}: kind {} ({})", model.name, k, kind.name);
    if (kind.accelerator < 0 || static_cast<std::size_t>(kind.accelerator) >= accelerators) {
      return wrong(fmt::format("{}: accelerator: must be from 0 to {} (got {})", where, static_cast<long>(accelerators) - 1,
                               kind.accelerator));
    }
    if (kind.gpus < 1) return wrong(fmt::format("{}: gpus: must be at least 1 (got {})", where, kind.gpus));
    if (!(kind.price_per_hour >= 0) || !std::isfinite(kind.price_per_hour)) {
      return wrong(fmt::format("{}: price: must be at least 0 (got {})", where, kind.price_per_hour));
    }
  }
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    const MixBucket& bucket = model.buckets[b];
    const std::string where = fmt::format("{}: bucket {}", model.name, b);
    if (!(bucket.requests_per_s >= 0) || !std::isfinite(bucket.requests_per_s)) {
      return wrong(fmt::format("{}: requests per second: must be at least 0 (got {})", where, bucket.requests_per_s));
    }
    if (bucket.load_s.size() != model.kinds.size()) {
      return wrong(
          fmt::format("{}: loads: must be one for each of {} kinds (got {})", where, model.kinds.size(), bucket.load_s.size()));
    }
    for (const double load : bucket.load_s) {
      if (!(load > 0)) return wrong(fmt::format("{}: load: must be above 0 (got {})", where, load));
    }
  }
  return {};
}

}  // namespace

Result<void> validate(const MixProblem& problem) {
  if (problem.models.empty()) return wrong("models: must have at least one (got none)");
  for (const MixAccelerator& accelerator : problem.accelerators) {
    if (accelerator.gpus < 0)
      return wrong(fmt::format("{}: gpus: must be at least 0 (got {})", accelerator.name, accelerator.gpus));
  }
  if (problem.max_gpus < 0) return wrong(fmt::format("max_gpus: must be at least 0 (got {})", problem.max_gpus));
  if (!(problem.max_cost_per_hour >= 0))
    return wrong(fmt::format("max_cost_per_hour: must be at least 0 (got {})", problem.max_cost_per_hour));
  for (const MixModel& model : problem.models) WINDLASS_RETURN_IF_ERROR(validate(model, problem.accelerators.size()));
  return {};
}

Result<void> say_missing(const MixProblem& problem, Mix& mix) {
  const MixColumns columns(problem);
  double short_per_s = 0;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    if (columns.hopeless_per_s[m] > 0) {
      mix.missing.push_back(fmt::format("{}: {:.4g} of {:.4g} requests/s have sizes for which no kind meets the objectives",
                                        problem.models[m].name, columns.hopeless_per_s[m], columns.rate[m]));
    }
    const double more = mix.models[m].unserved_per_s - columns.hopeless_per_s[m];
    if (more <= kMixTolerance * columns.all_per_s) continue;
    short_per_s += more;
    mix.missing.push_back(fmt::format("{}: {:.4g} of {:.4g} requests/s are not served for lack of room", problem.models[m].name,
                                      more, columns.rate[m]));
  }
  if (!(short_per_s > 0)) return {};
  MixProblem open = problem;
  for (MixAccelerator& accelerator : open.accelerators) accelerator.gpus = kAnyGpus;
  open.max_gpus = kAnyGpus;
  open.max_cost_per_hour = std::numeric_limits<double>::infinity();
  MixHeuristicOptions quick;
  quick.bound_rounds = 0;
  quick.max_programs = 100;
  WINDLASS_ASSIGN_OR_RETURN(const Mix all, heuristic_mix(open, quick, {}));
  std::vector<double> gpus(problem.accelerators.size(), 0.0);
  double sum = 0;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    for (std::size_t k = 0; k < problem.models[m].kinds.size(); ++k) {
      const MixKind& kind = problem.models[m].kinds[k];
      gpus[static_cast<std::size_t>(kind.accelerator)] += static_cast<double>(all.models[m].workers[k]) * kind.gpus;
      sum += static_cast<double>(all.models[m].workers[k]) * kind.gpus;
    }
  }
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    if (gpus[a] > problem.accelerators[a].gpus) {
      mix.missing.push_back(fmt::format("the cheapest mix for all takes {} GPUs of {}, but only {} may be used", gpus[a],
                                        problem.accelerators[a].name, problem.accelerators[a].gpus));
    }
  }
  if (sum > problem.max_gpus)
    mix.missing.push_back(
        fmt::format("the cheapest mix for all takes {} GPUs, but only {} may be used", sum, problem.max_gpus));
  if (all.cost_per_hour > problem.max_cost_per_hour) {
    mix.missing.push_back(fmt::format("the cheapest mix for all costs {:.6g} per hour, but only {:.6g} may be spent",
                                      all.cost_per_hour, problem.max_cost_per_hour));
  }
  return {};
}

}  // namespace windlass::search
