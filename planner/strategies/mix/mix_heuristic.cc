// heuristic_mix(): see mix.h. Rounding, exchanges of a few workers filtered by cuts, and the bound.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/strategies/mix/mix.h"
#include "planner/strategies/mix/mix_missing.h"
#include "planner/strategies/mix/mix_program.h"

namespace windlass::search {
namespace {

constexpr double kCostStep = 1e-9;          // smaller cost differences are ignored
constexpr std::size_t kMaxPairs = 200'000;  // exchanges evaluated at a time

// Value of a mix, compared lexicographically; less is better.
struct Worth {
  std::array<double, kPriorityClasses> unserved{};
  double cost = 0;
};

using Counts = std::vector<int>;

// Workers added or removed together, by column; the same column twice means two workers.
struct Group {
  std::array<int, 3> column{};
  int size = 0;
  double price = 0;
};

class MixSearch {
 public:
  MixSearch(const MixProblem& problem, const MixHeuristicOptions& options, const MixEffort& effort)
      : problem_(problem), options_(options), effort_(effort), columns_(problem), cuts_(problem.models.size()) {}

  Result<Mix> run() {
    WINDLASS_RETURN_IF_ERROR(relax());
    for (const Counts& start : starts_) {
      WINDLASS_ASSIGN_OR_RETURN(const Worth worth, worth_of(start));
      WINDLASS_RETURN_IF_ERROR(improve(start, worth));
    }
    if (served_) WINDLASS_RETURN_IF_ERROR(lift());
    if (!served_) WINDLASS_RETURN_IF_ERROR(lift());  // no fewer unserved found, so lower the cost
    WINDLASS_ASSIGN_OR_RETURN(Mix mix, mix_of(columns_, best_));
    const bool all = all_served(best_worth_);
    if (all) mix.bound_per_hour = std::min(bound_, mix.cost_per_hour);
    mix.unserved_bound_per_s = std::min(unserved_bound_, mix.unserved_per_s);
    mix.optimal = all && mix.cost_per_hour <= bound_ + kCostStep * (1 + bound_);
    mix.stopped = stopped_;
    mix.programs = programs_ + static_cast<std::int64_t>(problem_.models.size());
    mix.nodes = nodes_;
    return mix;
  }

 private:
  [[nodiscard]] bool go_on() {
    if (stop_requested(effort_.stop) || nodes_ >= effort_.max_nodes) stopped_ = true;
    return !stopped_;
  }

  Result<mip::Solution> solve(const mip::MixedIntegerProgram& program, long nodes = 1'000'000,
                              std::span<const double> known = {}) {
    ++programs_;
    auto solution = mip::solve(program, nodes, known);
    if (solution.ok()) nodes_ += solution->nodes;
    return solution;
  }

  [[nodiscard]] double tolerance() const { return kMixTolerance * columns_.all_per_s; }
  [[nodiscard]] std::vector<double> hopeless() const {
    std::vector<double> of(static_cast<std::size_t>(columns_.classes), 0.0);
    for (std::size_t m = 0; m < columns_.ranks.size(); ++m)
      of[static_cast<std::size_t>(columns_.ranks[m])] += columns_.hopeless_per_s[m];
    return of;
  }

  // Solves the linear relaxation: a bound and a starting point.
  Result<void> relax() {
    for (const double per_s : columns_.hopeless_per_s) unserved_bound_ += per_s;
    const auto whole = [&](const mip::Solution& solution, bool up) {
      Counts counts;
      for (std::size_t c = 0; c < columns_.columns.size(); ++c) {
        const double count = solution.values[c];
        counts.push_back(static_cast<int>(up ? std::ceil(count - 1e-7) : std::floor(count + 1e-7)));
      }
      return counts;
    };
    WINDLASS_ASSIGN_OR_RETURN(mip::Solution relaxed,
                              solve(mix_program(columns_, false, MixGoal::kCost, -1, hopeless()).program));
    served_ = relaxed.status == mip::Status::kOptimal;
    if (served_) {
      bound_ = relaxed.objective;
    } else {
      WINDLASS_ASSIGN_OR_RETURN(relaxed, solve(mix_program(columns_, false, MixGoal::kUnserved, -1, {}).program));
      if (relaxed.values.empty()) return Error{ErrorCode::kInternal, "mix: the solver gave no answer for the relaxation"};
      unserved_bound_ = relaxed.objective;
    }
    for (const bool up : {true, false}) {
      Counts counts = whole(relaxed, up);
      if (columns_.inside_budgets(counts)) {
        starts_.push_back(std::move(counts));
        break;
      }
    }
    if (problem_.models.size() == 1) one_kind();
    return {};
  }

  // The cheapest single kind that carries everything, as another starting point.
  void one_kind() {
    const MixModel& model = problem_.models.front();
    std::optional<Counts> cheapest;
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      double work = 0;
      for (const MixBucket& bucket : model.buckets)
        work += bucket.requests_per_s > 0 ? bucket.requests_per_s * bucket.load_s[k] : 0;
      if (!(work <= 1e6)) continue;
      Counts counts(columns_.columns.size(), 0);
      counts[k] = static_cast<int>(std::ceil(work));
      if (!columns_.inside_budgets(counts)) continue;
      if (!cheapest || columns_.cost(counts) < columns_.cost(*cheapest)) cheapest = std::move(counts);
    }
    if (cheapest) starts_.push_back(std::move(*cheapest));
  }

  Result<double> unserved(std::size_t m, const Counts& counts) {
    const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(columns_.first[m]);
    Counts own(begin, counts.begin() + static_cast<std::ptrdiff_t>(columns_.first[m + 1]));
    const auto known = known_.find({m, own});
    if (known != known_.end()) return known->second;
    ++programs_;
    WINDLASS_ASSIGN_OR_RETURN(MixUnserved found, unserved_by(problem_.models[m], own.data()));
    if (found.per_s > columns_.hopeless_per_s[m] + tolerance()) cuts_[m].push_back(std::move(found.cut));
    known_.emplace(std::pair(m, std::move(own)), found.per_s);
    return found.per_s;
  }

  Result<Worth> worth_of(const Counts& counts) {
    Worth worth;
    worth.cost = columns_.cost(counts);
    for (std::size_t m = 0; m < problem_.models.size(); ++m) {
      WINDLASS_ASSIGN_OR_RETURN(const double per_s, unserved(m, counts));
      worth.unserved[static_cast<std::size_t>(columns_.ranks[m])] += per_s;
    }
    return worth;
  }

  [[nodiscard]] bool better(const Worth& a, const Worth& b) const {
    for (std::size_t c = 0; c < static_cast<std::size_t>(columns_.classes); ++c) {
      if (a.unserved[c] < b.unserved[c] - tolerance()) return true;
      if (a.unserved[c] > b.unserved[c] + tolerance()) return false;
    }
    return a.cost < b.cost - kCostStep * (1 + b.cost);
  }
  [[nodiscard]] bool all_served(const Worth& worth) const {
    double sum = 0, hopeless = 0;
    for (const double per_s : worth.unserved) sum += per_s;
    for (const double per_s : columns_.hopeless_per_s) hopeless += per_s;
    return sum <= hopeless + tolerance() * static_cast<double>(columns_.classes);
  }

  // Groups of up to `most` workers; for removal only from columns that have them.
  [[nodiscard]] std::vector<Group> groups(int most, const Counts* from) const {
    std::vector<Group> made(1);
    std::size_t begin = 0;
    for (int size = 1; size <= most; ++size) {
      const std::size_t end = made.size();
      for (std::size_t g = begin; g < end; ++g) {
        const Group base = made[g];
        const int last = base.size == 0 ? 0 : base.column[static_cast<std::size_t>(base.size) - 1];
        for (int c = last; c < static_cast<int>(columns_.columns.size()); ++c) {
          Group grown = base;
          grown.column[static_cast<std::size_t>(grown.size++)] = c;
          const auto same = std::count(grown.column.begin(), grown.column.begin() + grown.size, c);
          if (from != nullptr && same > (*from)[static_cast<std::size_t>(c)]) continue;
          grown.price += columns_.columns[static_cast<std::size_t>(c)].price;
          made.push_back(grown);
        }
      }
      begin = end;
    }
    return made;
  }

  // Lower bound, by the cuts, of counts that differ from `now` by these groups.
  [[nodiscard]] Worth at_least(const Counts& now, const Group& gone, const Group& come) {
    Worth worth;
    worth.cost = columns_.cost(now) - gone.price + come.price;
    for (std::size_t m = 0; m < problem_.models.size(); ++m) {
      double most = columns_.hopeless_per_s[m];
      for (std::size_t i = 0; i < cuts_[m].size(); ++i) {
        double value = cut_values_[m][i];
        const auto add = [&](const Group& group, double sign) {
          for (int g = 0; g < group.size; ++g) {
            const auto c = static_cast<std::size_t>(group.column[static_cast<std::size_t>(g)]);
            if (c >= columns_.first[m] && c < columns_.first[m + 1]) value += sign * cuts_[m][i].price[c - columns_.first[m]];
          }
        };
        add(gone, 1);
        add(come, -1);
        most = std::max(most, value);
      }
      worth.unserved[static_cast<std::size_t>(columns_.ranks[m])] += most;
    }
    return worth;
  }
  void weigh_cuts(const Counts& now) {
    cut_values_.resize(cuts_.size());
    for (std::size_t m = 0; m < cuts_.size(); ++m) {
      for (std::size_t i = 0; i < cuts_[m].size(); ++i) {
        double value = cuts_[m][i].constant;
        for (std::size_t k = 0; k < cuts_[m][i].price.size(); ++k) value -= cuts_[m][i].price[k] * now[columns_.first[m] + k];
        if (i < cut_values_[m].size()) {
          cut_values_[m][i] = value;
        } else {
          cut_values_[m].push_back(value);
        }
      }
    }
  }

  static Counts exchanged(Counts counts, const Group& gone, const Group& come) {
    for (int g = 0; g < gone.size; ++g) --counts[static_cast<std::size_t>(gone.column[static_cast<std::size_t>(g)])];
    for (int g = 0; g < come.size; ++g) ++counts[static_cast<std::size_t>(come.column[static_cast<std::size_t>(g)])];
    return counts;
  }

  // Makes exchanges while one improves the mix.
  Result<void> improve(Counts now, Worth worth) {
    for (;;) {
      if (best_.empty() || better(worth, best_worth_)) {
        best_ = now;
        best_worth_ = worth;
      }
      WINDLASS_ASSIGN_OR_RETURN(const bool went_on, step(now, worth));
      if (!went_on) return {};
    }
  }

  Result<bool> step(Counts& now, Worth& worth) {
    struct Exchange {
      Group gone, come;
      Worth at_least;
    };
    std::vector<Group> gone, come;
    for (const auto& [max_gone, max_come] : {std::pair(3, 3), {2, 3}, {2, 2}, {1, 2}, {1, 1}}) {
      gone = groups(max_gone, &now);
      come = groups(max_come, nullptr);
      if (gone.size() * come.size() <= kMaxPairs) break;
    }
    weigh_cuts(now);
    const bool only_cheaper = all_served(worth);
    std::stable_sort(come.begin(), come.end(), [](const Group& a, const Group& b) { return a.price < b.price; });
    std::vector<Exchange> exchanges;
    for (const Group& out : gone) {
      for (const Group& in : come) {
        if (only_cheaper && in.price >= out.price - kCostStep) break;
        const auto both = [&](int column) {
          return std::find(out.column.begin(), out.column.begin() + out.size, column) != out.column.begin() + out.size;
        };
        if (std::any_of(in.column.begin(), in.column.begin() + in.size, both)) continue;
        const Worth bound = at_least(now, out, in);
        if (!better(bound, worth) || !columns_.inside_budgets(exchanged(now, out, in))) continue;
        exchanges.push_back({out, in, bound});
      }
    }
    std::stable_sort(exchanges.begin(), exchanges.end(),
                     [&](const Exchange& a, const Exchange& b) { return better(a.at_least, b.at_least); });
    for (const Exchange& exchange : exchanges) {
      if (programs_ >= options_.max_programs || !go_on()) return false;
      weigh_cuts(now);
      if (!better(at_least(now, exchange.gone, exchange.come), worth)) continue;
      Counts next = exchanged(now, exchange.gone, exchange.come);
      WINDLASS_ASSIGN_OR_RETURN(const Worth found, worth_of(next));
      if (!better(found, worth)) continue;
      now = std::move(next);
      worth = found;
      return true;
    }
    return false;
  }

  // Finds the cheapest whole workers that no cut excludes from serving everything, or otherwise as much as the best mix so far.
  // This gives a bound, and counts that are the answer or yield another cut.
  Result<void> lift() {
    const bool all = served_;
    for (int round = 0; round < options_.bound_rounds && go_on(); ++round) {
      const bool have = !all || all_served(best_worth_);
      if (all && have && best_worth_.cost <= bound_ + kCostStep * (1 + bound_)) return {};
      mip::MixedIntegerProgram program;
      for (std::size_t c = 0; c < columns_.columns.size(); ++c) {
        const MixColumns::Column& column = columns_.columns[c];
        double work = 0;
        for (const MixBucket& bucket : problem_.models[static_cast<std::size_t>(column.model)].buckets) {
          const double load = bucket.load_s[static_cast<std::size_t>(column.kind)];
          if (std::isfinite(load)) work += bucket.requests_per_s * load;
        }
        program.add_variable({0, std::max<double>(std::ceil(work), have ? best_[c] : 0), column.price, true});
      }
      add_budgets(columns_, program);
      std::vector<double> known(best_.begin(), best_.end());
      // Unserved requests of each model, beyond those that no kind serves.
      std::vector<std::vector<mip::Term>> of_class(static_cast<std::size_t>(columns_.classes));
      for (std::size_t m = 0; m < cuts_.size(); ++m) {
        WINDLASS_ASSIGN_OR_RETURN(const double per_s, unserved(m, best_));
        known.push_back(std::max(0.0, per_s - columns_.hopeless_per_s[m]));
        const int beyond = program.add_variable({0, std::max(columns_.all_per_s, known.back()), 0, false});
        of_class[static_cast<std::size_t>(columns_.ranks[m])].push_back({beyond, -1});
        for (const MixCut& cut : cuts_[m]) {
          std::vector<mip::Term> terms = {{beyond, 1}};
          for (std::size_t k = 0; k < cut.price.size(); ++k) {
            if (cut.price[k] > 0) terms.push_back({static_cast<int>(columns_.first[m] + k), cut.price[k]});
          }
          program.add_at_least(std::move(terms), cut.constant - columns_.hopeless_per_s[m]);
        }
      }
      const std::vector<double> no_kind = hopeless();
      for (std::size_t c = 0; c < of_class.size(); ++c) {
        const double most = all ? 0 : std::max(0.0, best_worth_.unserved[c] - no_kind[c]);
        program.add_at_least(std::move(of_class[c]), -most - tolerance());
      }
      WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution,
                                solve(program, options_.nodes_of_a_round, have ? std::span(known) : std::span<const double>()));
      if (solution.status == mip::Status::kInfeasible) {  // whole workers within the budgets cannot carry it
        served_ = false;
        return {};
      }
      if (all) bound_ = std::max(bound_, solution.best_bound);
      if (solution.values.empty()) return {};
      Counts counts;
      for (std::size_t c = 0; c < columns_.columns.size(); ++c)
        counts.push_back(static_cast<int>(std::lround(solution.values[c])));
      if (counts == best_) return {};
      const std::size_t before = cuts();
      WINDLASS_ASSIGN_OR_RETURN(const Worth found, worth_of(counts));
      if (columns_.inside_budgets(counts) && better(found, best_worth_)) {
        best_ = counts;
        best_worth_ = found;
      }
      if (cuts() == before) return {};  // it carries everything
    }
    return {};
  }
  [[nodiscard]] std::size_t cuts() const {
    std::size_t sum = 0;
    for (const auto& of : cuts_) sum += of.size();
    return sum;
  }

  const MixProblem& problem_;
  const MixHeuristicOptions& options_;
  const MixEffort& effort_;
  MixColumns columns_;
  std::vector<std::vector<MixCut>> cuts_;        // by model
  std::vector<std::vector<double>> cut_values_;  // at the counts being improved
  std::map<std::pair<std::size_t, Counts>, double> known_;
  std::vector<Counts> starts_;
  Counts best_;
  Worth best_worth_;
  bool served_ = false;  // the relaxation serves everything that any kind can serve
  double bound_ = 0, unserved_bound_ = 0;
  std::int64_t programs_ = 0, nodes_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<Mix> heuristic_mix(const MixProblem& problem, const MixHeuristicOptions& options, const MixEffort& effort) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  WINDLASS_ASSIGN_OR_RETURN(Mix mix, MixSearch(problem, options, effort).run());
  WINDLASS_RETURN_IF_ERROR(say_missing(problem, mix));
  return mix;
}

}  // namespace windlass::search
