// exact_mix(): see mix.h. Solves the whole program repeatedly, with more nodes each time, until it is proven, stopped or out of
// nodes.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "planner/strategies/mix/mix.h"
#include "planner/strategies/mix/mix_missing.h"
#include "planner/strategies/mix/mix_program.h"

namespace windlass::search {
namespace {

constexpr long kFirstNodes = 1'000;  // first round; each round has four times the nodes of the previous one
constexpr long kMoreNodes = 4;

class Exact {
 public:
  Exact(const MixProblem& problem, const MixEffort& effort) : problem_(problem), effort_(effort), columns_(problem) {}

  Result<Mix> run(const Mix& start) {
    std::vector<int> counts;
    for (const MixShares& model : start.models) counts.insert(counts.end(), model.workers.begin(), model.workers.end());
    std::vector<double> unserved(static_cast<std::size_t>(columns_.classes), 0.0);
    for (std::size_t m = 0; m < columns_.ranks.size(); ++m)
      unserved[static_cast<std::size_t>(columns_.ranks[m])] += columns_.hopeless_per_s[m];
    double hopeless = 0;
    for (const double per_s : unserved) hopeless += per_s;
    const bool served = start.unserved_per_s <= hopeless + tolerance();
    double bound = start.bound_per_hour, unserved_bound = std::max(hopeless, start.unserved_bound_per_s);
    WINDLASS_ASSIGN_OR_RETURN(mip::Solution found, solve(mix_program(columns_, true, MixGoal::kCost, -1, unserved).program,
                                                         served ? values_of(start) : std::vector<double>()));
    bool short_of = false;
    if (found.status == mip::Status::kInfeasible) {
      short_of = true;
      // Minimises the unserved requests of each priority class in turn, then the cost.
      std::vector<double> most, values;
      unserved_bound = 0;
      for (int c = 0; c < columns_.classes; ++c) {
        WINDLASS_ASSIGN_OR_RETURN(found, solve(mix_program(columns_, true, MixGoal::kUnserved, c, most).program, values));
        if (found.values.empty()) break;
        values = found.values;
        unserved_bound += std::max(0.0, found.best_bound);
        most.push_back(found.objective + tolerance());
      }
      if (most.size() == static_cast<std::size_t>(columns_.classes)) {
        WINDLASS_ASSIGN_OR_RETURN(found, solve(mix_program(columns_, true, MixGoal::kCost, -1, most).program, values));
        if (found.values.empty()) found.values = values;
      }
    }
    if (!found.values.empty()) {
      std::vector<int> solved;
      for (std::size_t c = 0; c < columns_.columns.size(); ++c)
        solved.push_back(static_cast<int>(std::lround(found.values[c])));
      if (columns_.inside_budgets(solved)) counts = std::move(solved);
    }
    WINDLASS_ASSIGN_OR_RETURN(Mix mix, mix_of(columns_, counts));
    mix.optimal = proven_ && found.status == mip::Status::kOptimal;
    if (!short_of) bound = std::max(bound, found.best_bound);
    const bool all = mix.unserved_per_s <= hopeless + tolerance();
    mix.bound_per_hour = all ? std::min(bound, mix.cost_per_hour) : 0;
    mix.unserved_bound_per_s = std::min(unserved_bound, mix.unserved_per_s);
    mix.stopped = stopped_;
    mix.programs = start.programs + programs_;
    mix.nodes = start.nodes + nodes_;
    return mix;
  }

 private:
  [[nodiscard]] double tolerance() const { return kMixTolerance * columns_.all_per_s; }

  Result<mip::Solution> solve(const mip::MixedIntegerProgram& program, const std::vector<double>& known) {
    mip::Solution best;
    best.status = mip::Status::kNodeLimit;
    best.values = known;
    long nodes = kFirstNodes;
    for (;;) {
      if (stop_requested(effort_.stop) || nodes_ >= effort_.max_nodes) {
        stopped_ = true;
        break;
      }
      nodes = static_cast<long>(std::min<std::int64_t>(nodes, effort_.max_nodes - nodes_));
      ++programs_;
      WINDLASS_ASSIGN_OR_RETURN(mip::Solution solution, mip::solve(program, nodes, best.values));
      nodes_ += std::max<std::int64_t>(1, solution.nodes);
      const double bound = std::max(best.best_bound, solution.best_bound);
      if (solution.values.empty() && solution.status == mip::Status::kNodeLimit) solution.values = best.values;
      best = std::move(solution);
      best.best_bound = bound;
      if (best.status != mip::Status::kNodeLimit) break;
      nodes *= kMoreNodes;
    }
    if (best.status == mip::Status::kNodeLimit) {
      proven_ = false;
      best.objective = 0;
      for (std::size_t v = 0; v < best.values.size(); ++v) best.objective += program.variables()[v].objective * best.values[v];
    }
    return best;
  }

  // A mix as values of the program's variables: counts; then, by model and bucket, the shares of the possible kinds, and the
  // unserved share.
  [[nodiscard]] std::vector<double> values_of(const Mix& mix) const {
    std::vector<double> values;
    for (const MixShares& model : mix.models) values.insert(values.end(), model.workers.begin(), model.workers.end());
    for (std::size_t m = 0; m < problem_.models.size(); ++m) {
      const MixModel& model = problem_.models[m];
      for (std::size_t b = 0; b < model.buckets.size(); ++b) {
        double sum = 0;
        for (std::size_t k = 0; k < model.kinds.size(); ++k) {
          if (!(model.buckets[b].requests_per_s > 0) || !std::isfinite(model.buckets[b].load_s[k])) continue;
          values.push_back(mix.models[m].shares[b][k]);
          sum += values.back();
        }
        values.push_back(std::max(0.0, 1 - sum));
      }
    }
    return values;
  }

  const MixProblem& problem_;
  const MixEffort& effort_;
  MixColumns columns_;
  std::int64_t programs_ = 0, nodes_ = 0;
  bool stopped_ = false, proven_ = true;
};

}  // namespace

Result<Mix> exact_mix(const MixProblem& problem, const MixEffort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  WINDLASS_ASSIGN_OR_RETURN(const Mix start, heuristic_mix(problem, {}, effort));
  WINDLASS_ASSIGN_OR_RETURN(Mix mix, Exact(problem, effort).run(start));
  WINDLASS_RETURN_IF_ERROR(say_missing(problem, mix));
  return mix;
}

}  // namespace windlass::search
