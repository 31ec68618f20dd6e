// Derives the number of workers from demand.
#include "planner/policy/target.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/arrivals.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/worker_count.h"

namespace windlass::planner {
namespace {

// Upper bound of any plan; keeps the arithmetic inside int.
constexpr int kMaxWorkers = 100'000;
constexpr double kMinuteS = 60;
// Tolerance that keeps only the objective and drops the extra room.
constexpr double kObjectiveAlone = 0.5;
// Upper bound of the mean share of busy slots, at any tolerance.
constexpr double kMaxTolerated = 0.97;

int to_int(double workers) { return static_cast<int>(std::clamp(workers, 0.0, static_cast<double>(kMaxWorkers))); }

// The largest and smallest recommendation in force at any time in the last `window_s` seconds.
std::pair<int, int> range_over(const PolicyMemory& memory, double now_s, double window_s) {
  int smallest = kMaxWorkers;
  int largest = 0;
  const auto& entries = memory.recommendations;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Entry i holds until entry i + 1.
    if (i + 1 < entries.size() && entries[i + 1].at_s <= now_s - window_s) continue;
    smallest = std::min(smallest, entries[i].workers);
    largest = std::max(largest, entries[i].workers);
  }
  return {smallest, largest};
}

// Applies the service's own limits to `wanted`.
void apply_limits(const Service& service, const Configuration& configuration, const Retiring& retiring, Target& target) {
  target.allowed = std::max(target.wanted, target.floor);
  auto limit = [&](double most, const char* code, const std::string& message) {
    if (most >= target.allowed) return;
    target.allowed = to_int(std::floor(most + 1e-9));
    target.limited_by = code;
    target.limit_message = message;
  };
  const Scaling& scaling = service.scaling;
  const int needed = target.allowed;
  if (scaling.max_workers) {
    limit(*scaling.max_workers, "MaxWorkers",
          fmt::format("{} workers are needed; maxWorkers allows {}", needed, *scaling.max_workers));
  }
  target.on_any_class = target.allowed;
  if (configuration.max_gpus) {
    const int left = std::max(0, *configuration.max_gpus - retiring.gpus_of(configuration.pool.spec.accelerator));
    const int gpus = std::max(1, configuration.pool.spec.gpus());
    limit(left / gpus, "MaxGpus",
          fmt::format("{} workers of {} x {} are needed; maxGPUs leaves {} GPUs", needed, gpus,
                      configuration.pool.spec.accelerator, left));
  }
  if (scaling.max_cost_per_hour && configuration.price_per_hour > 0) {
    const double left = std::max(0.0, *scaling.max_cost_per_hour - retiring.cost_per_hour);
    limit(std::floor(left / configuration.price_per_hour + 1e-9), "MaxCost",
          fmt::format("{} workers at {:.4g} per hour are needed; maxCostPerHour leaves {:.4g}", needed,
                      configuration.price_per_hour, left));
    target.on_any_class = std::min(target.on_any_class, to_int(std::floor(left / configuration.price_per_hour + 1e-9)));
  }
  target.floor = std::min(target.floor, target.allowed);
  if (!target.limited_by.empty()) {
    target.reasons.push_back(Reason{target.limited_by, target.limit_message, {{"allowed", std::to_string(target.allowed)}}});
  }
}

// The workers needed according to the signals.
struct Need {
  double demand_per_s = 0;  // demand provided for
  int needed = 0;
  int surely = 0;   // certain despite count noise and tolerance
  int backlog = 0;  // to serve the backlog soon; falls with the queue, regardless of the scale-down window
  int urgent = 0;   // by the short window or the queue; detects bursts
};

// Requests that will be waiting when a worker started now serves: those waiting plus new arrivals, minus what serving and
// starting workers complete by then. If a queue has lasted that long with all requested workers running, everything waiting
// counts, because the model is then too optimistic. If nothing waits, it is zero, because the model is then too pessimistic.
struct ExpectedQueue {
  double requests = 0;
  bool lasts = false;
};
ExpectedQueue expected_queue(const Service& service, const DemandView& view, const PolicyMemory& memory, double now_s,
                             double start_s, double worker_rate_per_s, double demand_per_s) {
  if (view.queued < 1) return {};
  double worker_seconds = 0;
  for (const Worker& worker : service.workers) {
    if (serves(worker)) worker_seconds += start_s;
    if (worker.state == WorkerState::kStarting && trouble_of(worker) == WorkerTrouble::kNone) {
      worker_seconds += std::clamp(now_s - worker.created_s, 0.0, start_s);
    }
  }
  const double expected = std::max(0.0, view.queued + demand_per_s * start_s - worker_seconds * worker_rate_per_s);
  const bool awaited =
      memory.last_change && memory.last_change->direction == Direction::kUp && now_s - memory.last_change->at_s < 2 * start_s;
  const bool lasts = memory.queue_since_s && now_s - *memory.queue_since_s >= start_s && !awaited;
  return {lasts ? std::max(expected, view.queued) : expected, lasts};
}

class Decision {
 public:
  Decision(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view,
           const Configuration& configuration, bool starts_over)
      : service_(service),
        scaling_(service.scaling),
        memory_(memory),
        now_s_(now_s),
        view_(view),
        configuration_(configuration),
        start_s_(start_time_s(service)),
        starts_over_(starts_over),
        current_(current_workers(service)),
        worker_rate_per_s_(configuration.pool.each.slots / effective_service_s(configuration)) {}

  Target decide() {
    const bool first_plan =
        (!service_.last_desired && service_.workers.empty() && !service_.memory.history_since_s) || starts_over_;
    target_.memory = memory_;
    target_.floor = scaling_.max_workers ? std::min(scaling_.min_workers, *scaling_.max_workers) : scaling_.min_workers;
    const Need need = assess();
    target_.demand_per_s = need.demand_per_s;
    int recommended = recommend(need);
    const bool idle = idles(recommended);
    if (first_plan) {
      target_.wanted = std::max({recommended, need.backlog, assumed(recommended)});
      record(target_.wanted);
    } else if (!view_.complete) {
      target_.wanted = paced(std::max({current_, recommended, need.backlog}));
      record(target_.wanted);
      if (current_ > recommended) hold("HeldOnMissingSignals", view_.problem);
    } else {
      record(recommended);
      if (idle) {
        target_.wanted = 0;
        say("IdleToZero", fmt::format("no request arrived for {:.0f} s", *scaling_.idle_to_zero_after_s));
      } else {
        follow(recommended, need);
      }
    }
    target_.needed = std::max({target_.floor, need.backlog, knows_the_load(first_plan) ? recommended : target_.wanted});
    note_change();
    return std::move(target_);
  }

 private:
  void say(const char* code, std::string message, std::map<std::string, std::string> inputs = {}) {
    target_.reasons.push_back(Reason{code, std::move(message), std::move(inputs)});
  }
  void hold(const char* code, const std::string& why) {
    say(code, fmt::format("keeping {} workers: {}", current_, why), {{"workers", std::to_string(current_)}});
  }
  void record(int workers) { target_.memory = remember(std::move(target_.memory), scaling_, now_s_, workers); }

  // How long demand must have been observed before scaling down.
  [[nodiscard]] double enough_history_s() const { return std::max(scaling_.scale_down_stabilization_s, kLeastHistoryS); }
  [[nodiscard]] double history_s() const { return now_s_ - *memory_.history_since_s; }

  // Whether workers beyond the present load are held only because of past load, and not because too little is known about it.
  [[nodiscard]] bool knows_the_load(bool first_plan) const {
    if (first_plan || !view_.complete || view_.silent_workers > 0) return false;
    return history_s() >= enough_history_s() || (!view_.any_demand() && view_.in_workers <= 0);
  }

  [[nodiscard]] int serving() const {
    return static_cast<int>(std::count_if(service_.workers.begin(), service_.workers.end(), serves));
  }

  [[nodiscard]] bool just_went(Direction direction) const {
    return memory_.last_change && memory_.last_change->direction == direction && now_s_ - memory_.last_change->at_s < start_s_;
  }

  // Whether workers were added so recently that misses within the last `window_s` may be older than them.
  [[nodiscard]] bool answered(double window_s) const {
    const bool rose_last = memory_.last_change && memory_.last_change->direction == Direction::kUp;
    const std::optional<double> up_s = rose_last ? memory_.last_change->at_s : memory_.earlier_up_s;
    return up_s && now_s_ - *up_s < window_s + start_s_;
  }

  // Whether measured requests miss the objective with the current workers.
  [[nodiscard]] bool misses() const {
    const auto& attainment = service_.demand.attainment;
    return !answered(service_.slo.window_s) && is_usable(attainment, now_s_) &&
           attainment->value * 100 < service_.slo.percentile - 1e-9;
  }

  // Share of the last minute's requests that missed the objective, if more than chance explains; otherwise 0.
  [[nodiscard]] double missed_lately() const {
    const auto& recent = service_.demand.recent_attainment;
    const double judged = service_.demand.recently_judged;
    if (!is_usable(recent, now_s_) || !std::isfinite(judged) || !(judged >= 1)) return 0;
    const double share = std::clamp(1 - recent->value, 0.0, 1.0), allowed = 1 - service_.slo.percentile / 100;
    const double by_chance = judged * allowed + kMissSigmas * std::sqrt(judged * allowed * (1 - allowed)) + 1;
    return share * judged > by_chance ? share : 0;
  }

  // If requests missed the objective throughout the last minute although nothing waited, no worker was starting, and the model
  // says the workers suffice, then the model is wrong. Adds workers in proportion to the misses and keeps them for such demand
  // for an hour.
  void learn_shortfall(const Need& need) {
    // Requests judged now may have waited up to a minute before that.
    constexpr double kSettledS = 2 * Demand::kRecentS;
    const auto queue_until_s = memory_.queue_until_s.value_or(-1e18);
    const bool starting = std::any_of(service_.workers.begin(), service_.workers.end(), [](const Worker& worker) {
      return worker.state == WorkerState::kStarting && trouble_of(worker) == WorkerTrouble::kNone;
    });
    const int now = serving();
    const bool settled = !answered(kSettledS) && !starting && now > 0 && now_s_ - queue_until_s > kSettledS &&
                         history_s() > kSettledS + start_s_;
    const double missed = view_.complete && settled && configuration_.keeps_objective ? missed_lately() : 0;
    if (missed <= 0 || need.needed > now) return;
    const int more = now + std::max(1, to_int(std::ceil(missed * now - 1e-9)));
    // More workers than requests do not help, nor does adding more if the last ones did not help.
    const int useful = std::min(more, to_int(std::ceil(view_.in_workers + view_.queued)));
    const auto& before = memory_.shortfall;
    const bool recent = before && now_s_ - before->at_s <= kShortfallMemoryS;
    const bool no_help = recent && now >= before->workers && missed > kHelpedShare * before->missed;
    if (useful <= now || no_help) {
      return say("MissedAlone", fmt::format("{:.0f} % of the last minute's requests missed the objective, with only {:.0f} "
                                            "running at once on {} workers; more workers would not help",
                                            missed * 100, view_.in_workers, now));
    }
    if (recent && before->workers * need.demand_per_s > useful * before->requests_per_s) return;
    target_.memory.shortfall = Shortfall{now_s_, need.demand_per_s, useful, missed};
  }

  // Workers needed because of a recorded shortfall.
  int for_shortfall(double demand_per_s) {
    const auto& shortfall = target_.memory.shortfall;
    if (!shortfall || now_s_ - shortfall->at_s > kShortfallMemoryS || !(shortfall->requests_per_s > 0)) return 0;
    const double share = std::min(1.0, demand_per_s / shortfall->requests_per_s);
    return to_int(std::ceil(shortfall->workers * share - 1e-9));
  }

  // Lower bound of a rate, given the noise of its count.
  [[nodiscard]] double below(double rate_per_s, double window_s) const {
    return std::max(0.0, rate_per_s - kRiseSigmas * std::sqrt(view_.burstiness * std::max(0.0, rate_per_s) / window_s));
  }

  // The forecast, if it exceeds the observed demand and can be trusted; otherwise 0.
  [[nodiscard]] double forecast_per_s(double observed) const {
    if (!view_.forecast || view_.forecast->judged < kForecastsToBelieve) return 0;
    if (!(view_.forecast->relative_error <= kForecastMaxError)) return 0;
    const double expected = std::min(view_.forecast->requests_per_s, kForecastMaxRise * observed);
    return expected > observed ? expected : 0;
  }

  void say_forecast(double expected) {
    const DemandForecast& forecast = *view_.forecast;
    say("Forecast",
        fmt::format(
            "{:.4g} requests/s expected in {:.0f} s, when a worker started now would be ready ({}, mean error {:.0f} %)",
            expected, forecast.horizon_s, forecast.method, forecast.relative_error * 100),
        {{"requestsPerS", figure(expected)},
         {"method", forecast.method},
         {"horizonS", figure(forecast.horizon_s)},
         {"relativeError", figure(forecast.relative_error)}});
  }

  // Raises the model's number if it was recently shown to be too low.
  void heed_shortfall(Need& need) {
    learn_shortfall(need);
    const int least = for_shortfall(need.demand_per_s);
    if (least <= need.needed) return;
    say("Shortfall",
        fmt::format("with fewer than {} workers, requests missed the objective at {:.4g} requests/s {:.0f} s ago; the model "
                    "asks for {} workers now, but {} are planned for {:.4g} requests/s",
                    target_.memory.shortfall->workers, target_.memory.shortfall->requests_per_s,
                    now_s_ - target_.memory.shortfall->at_s, need.needed, least, need.demand_per_s),
        {{"workers", std::to_string(least)}, {"believed", std::to_string(need.needed)}});
    need.needed = least;
    need.surely = std::max(need.surely, least);
  }

  void say_demand(const Need& need, double observed, double waits) {
    say("Demand",
        fmt::format("{:.4g} requests/s arrive and {:.0f} wait; workers needed: {}", observed, view_.queued, need.needed),
        {{"arrivalsPerS", figure(view_.arrivals_per_s)},
         {"levelPerS", figure(view_.level_per_s)},
         {"burstiness", figure(view_.burstiness)},
         {"queued", figure(view_.queued)},
         {"inputTokens", figure(view_.lengths.input_tokens)},
         {"outputTokens", figure(view_.lengths.output_tokens)},
         {"lengths", view_.lengths_observed ? "observed" : "assumed"},
         {"slots", std::to_string(configuration_.pool.each.slots)},
         {"serviceS", figure(configuration_.times.service_s)},
         {"workers", std::to_string(need.needed)}});
    if (need.backlog > need.needed) {
      say("Backlog",
          fmt::format("{:.0f} requests will be waiting in {:.0f} s, when a worker started now would be ready; {} workers are "
                      "needed until they are served",
                      waits, start_s_, need.backlog),
          {{"expectedQueue", figure(waits)}, {"workers", std::to_string(need.backlog)}});
    }
  }

  Need assess() {
    Need need;
    // The level follows a rise within a minute. If a worker starts faster than that, and all slots have been taken for longer
    // than a request may wait for its first token, the rise counts immediately.
    const bool suffers = start_s_ < kLevelWindowS && view_.queued >= 1 && memory_.queue_since_s &&
                         now_s_ - *memory_.queue_since_s >= service_.slo.ttft_s;
    const double sure_now = suffers ? view_.arrivals_per_s : below(view_.arrivals_per_s, view_.arrivals_window_s);
    // From the last seconds only what is certainly above the level; the rest may be a burst that ends before a worker serves.
    const double observed = std::max(view_.level_per_s, sure_now);
    double sure = std::max(sure_now, below(view_.level_per_s, view_.level_window_s));
    need.demand_per_s = observed;
    if (const double expected = forecast_per_s(observed); expected > 0) {
      need.demand_per_s = expected;
      sure = std::max(sure, expected * std::max(0.0, 1 - view_.forecast->relative_error));
      say_forecast(expected);
    }
    // A rise that makes requests miss the objective is not noise, however small.
    if (misses()) sure = need.demand_per_s;
    // Count only certain deficits: noise must not start workers for a queue that never forms.
    const auto [waits, lasts] =
        expected_queue(service_, view_, memory_, now_s_, start_s_, worker_rate_per_s_, std::min(sure, need.demand_per_s));
    // If the queue lasts, drain it in half a start: by the model, the serving workers would drain it in a whole one, and they
    // do not.
    const double drain_s = std::max(kBacklogDrainS, (lasts ? 0.5 : 1) * start_s_);
    if (waits >= 1) need.backlog = to_int(std::ceil((observed + waits / drain_s) / worker_rate_per_s_));
    // For one start after a scale-down, only the objective itself may cause a scale-up.
    const double tolerated = just_went(Direction::kDown) ? kObjectiveAlone : scaling_.tolerance / 2;
    need.needed = workers_for(service_, configuration_, need.demand_per_s, view_.burstiness);
    need.surely = workers_for(service_, configuration_, sure, view_.burstiness, tolerated);
    heed_shortfall(need);
    need.urgent = std::max(workers_for(service_, configuration_, sure_now), need.backlog);
    say_demand(need, observed, waits);
    return need;
  }

  int recommend(const Need& need) {
    const int previous = memory_.recommendations.empty() ? current_ : memory_.recommendations.back().workers;
    int recommended = need.surely > previous ? std::max(need.needed, need.surely) : std::min(need.needed, previous);
    if (need.needed > std::max(recommended, target_.floor)) {
      say("RiseNotSure",
          fmt::format(
              "{} workers would be needed for {:.4g} requests/s, but the rise may be noise; only {} are certain to be needed",
              need.needed, need.demand_per_s, need.surely),
          {{"needed", std::to_string(need.needed)}, {"surely", std::to_string(need.surely)}});
    }
    if (view_.any_demand()) recommended = std::max(recommended, 1);
    // Busy workers are needed, whatever the arrival rate says: an optimistic model must not remove them.
    const double in_system = view_.in_workers + view_.queued;
    const double in_pool = in_system * configuration_.load_share;
    const int occupied = to_int(std::ceil(in_pool / (configuration_.pool.each.slots * kMaxUtilisation)));
    if (const int kept = std::min(occupied, current_); kept > recommended) {
      recommended = kept;
      say("Occupied", fmt::format("{:.0f} requests are running or waiting; {} workers are kept for them", in_system, kept),
          {{"inWorkers", figure(view_.in_workers)}, {"silentWorkers", std::to_string(view_.silent_workers)}});
    }
    return recommended;
  }

  // Scale to zero only after the idle time has passed while this process was watching; until then one worker stays.
  bool idles(int& recommended) {
    if (scaling_.min_workers != 0 || !scaling_.idle_to_zero_after_s || recommended != 0 || current_ == 0) return false;
    const double quiet_since_s =
        std::max(service_.demand.last_arrival_at_s.value_or(*memory_.history_since_s), *memory_.history_since_s);
    if (view_.complete && view_.silent_workers == 0 && now_s_ - quiet_since_s >= *scaling_.idle_to_zero_after_s) return true;
    recommended = 1;
    say("NotIdleLongEnough",
        fmt::format("one worker stays until no request has arrived for {:.0f} s; the last arrived {:.0f} s ago",
                    *scaling_.idle_to_zero_after_s, now_s_ - quiet_since_s));
    return false;
  }

  int assumed(int recommended) {
    const int workers = workers_for(service_, configuration_, service_.workload.requests_per_s);
    if (workers > recommended) {
      target_.demand_per_s = service_.workload.requests_per_s;
      say("AssumedWorkload",
          fmt::format("no load observed yet; the assumed {:.4g} requests/s need {} workers", service_.workload.requests_per_s,
                      workers),
          {{"requestsPerS", figure(service_.workload.requests_per_s)}});
    }
    return workers;
  }

  // Limits the change to the workers that may come or go per minute.
  int paced(int wanted) {
    int added = 0;
    int removed = 0;
    for (std::size_t i = 1; i < memory_.wanted.size(); ++i) {
      if (memory_.wanted[i].at_s <= now_s_ - kMinuteS) continue;
      const int step = memory_.wanted[i].workers - memory_.wanted[i - 1].workers;
      (step > 0 ? added : removed) += std::abs(step);
    }
    const auto& max_up = scaling_.scale_up_max_per_minute;
    const auto& max_down = scaling_.scale_down_max_per_minute;
    int allowed = wanted;
    if (max_up && current_ > 0) allowed = std::min(allowed, current_ + std::max(0, *max_up - added));
    if (max_down && wanted < current_) allowed = std::max(allowed, current_ - std::max(0, *max_down - removed));
    if (wanted > current_) allowed = std::max(allowed, current_);
    if (allowed != wanted) {
      say(wanted > current_ ? "ScaleUpRateLimited" : "ScaleDownRateLimited",
          fmt::format("{} workers are wanted; maxWorkersPerMinute allows {} in this minute", wanted, allowed));
    }
    return allowed;
  }

  // Limits scale-up that is based on the data sheet alone, while workers are serving and about to be measured.
  int until_measured(int up) {
    const bool sure = configuration_.uncertainty && *configuration_.uncertainty <= kUncertain;
    double served_s = 0;
    for (const Worker& worker : service_.workers) {
      if (serves(worker)) served_s = std::max(served_s, worker.ready_s ? now_s_ - *worker.ready_s : kUncertainS);
    }
    const int most = std::max(current_, to_int(std::ceil(kUncertainFactor * serving())));
    if (sure || up <= most || serving() == 0 || served_s >= kUncertainS) return up;
    say("NotMeasuredYet",
        fmt::format("{} workers would be needed by the data sheet; until iterations are measured, at most {}", up, most));
    return most;
  }

  void follow(int recommended, const Need& need) {
    const int served = std::max(1, serving());
    const bool burst = need.urgent >= kPanicFactor * served && need.urgent > current_;
    if (burst) {
      target_.memory.panic_until_s = now_s_ + kPanicWindowS;
      say("Burst",
          fmt::format(
              "{} workers are needed now and {} are serving; scaling up without stabilization, and no scale-down for {:.0f} s",
              need.urgent, serving(), kPanicWindowS));
    } else if (target_.memory.panic_until_s && !(now_s_ < *target_.memory.panic_until_s)) {
      target_.memory.panic_until_s.reset();
    }
    const bool panic = target_.memory.panic_until_s.has_value();
    const int settled = range_over(target_.memory, now_s_, scaling_.scale_up_stabilization_s).first;
    const bool at_once = panic || scaling_.scale_up_stabilization_s <= 0;
    const int up = until_measured(at_once ? std::max({settled, recommended, need.backlog}) : settled);
    target_.wanted = current_;
    if (up > current_) {
      target_.wanted = paced(up);
      if (target_.wanted > current_) {
        say(current_ == 0 ? "ScaleFromZero" : "ScaleUp", fmt::format("from {} to {} workers", current_, target_.wanted),
            {{"from", std::to_string(current_)}, {"to", std::to_string(target_.wanted)}});
      }
    } else if (recommended > current_) {
      say("ScaleUpStabilising",
          fmt::format("{} workers are needed, but have not been for {:.0f} s (scaleUp.stabilizationWindow)", recommended,
                      scaling_.scale_up_stabilization_s));
    } else if (std::max(recommended, need.backlog) < current_) {
      go_down(std::max(recommended, need.backlog), need, panic);
    }
  }

  void go_down(int recommended, const Need& need, bool panic) {
    const double window_s = scaling_.scale_down_stabilization_s;
    if (history_s() < enough_history_s()) {
      return hold("HeldOnShortHistory", fmt::format("demand has been observed for {:.0f} s; scaling down needs {:.0f} s",
                                                    history_s(), enough_history_s()));
    }
    if (view_.silent_workers > 0) {
      return hold("HeldOnSilentWorkers", fmt::format("{} of them report no fresh metrics", view_.silent_workers));
    }
    const WorkerSpec& spec = configuration_.pool.spec;
    const WorkerEstimate* known = find_estimate(service_.estimates, spec.accelerator, spec.split());
    if (known != nullptr && known->split() == spec.split() && known->estimate.drifted(now_s_)) {
      return hold("HeldOnDrift",
                  fmt::format("iterations of {} no longer take what was measured; for {:.0f} s, until they are measured again, "
                              "keeping what runs costs {:.4g} more per hour",
                              text_of(spec), IterationEstimate::kDriftS - (now_s_ - *known->estimate.changed_at_s),
                              (current_ - recommended) * configuration_.price_per_hour));
    }
    if (panic) return hold("HeldAfterBurst", fmt::format("there was a burst within the last {:.0f} s", kPanicWindowS));
    if (just_went(Direction::kUp)) {
      return hold("HeldAfterScaleUp", fmt::format("workers were added {:.0f} s ago, and a worker takes {:.0f} s to start",
                                                  now_s_ - memory_.last_change->at_s, start_s_));
    }
    const int down = std::max(recommended, range_over(target_.memory, now_s_, window_s).second);
    if (down >= current_) {
      return say("ScaleDownStabilising", fmt::format("{} workers are enough now, but {} were needed within the last {:.0f} s",
                                                     recommended, down, window_s));
    }
    // The smaller number must meet the objective by the prediction, with room for slightly more demand than observed.
    const bool missed = misses() || missed_lately() > 0;
    const double headroom = std::max(missed ? kMissedHeadroom : 1, 1 + scaling_.tolerance / 2);
    int safe =
        std::max(down, workers_for(service_, configuration_, need.demand_per_s * headroom, view_.burstiness, kObjectiveAlone));
    // With all slots taken, timePerOutputToken would be missed; fewer workers would fill the slots further.
    const double at_once = need.demand_per_s * configuration_.times.service_s;
    if (configuration_.times.tpot_s > service_.slo.tpot_s) safe = std::max(safe, to_int(std::ceil(at_once)));
    if (safe >= current_) {
      return hold(missed ? "HeldOnMissedObjective" : "HeldWithinTolerance",
                  fmt::format("{} are enough for {:.4g} requests/s, but not for {:.0f} % more{}", down, need.demand_per_s,
                              (headroom - 1) * 100, missed ? ", and requests miss the objective now" : ""));
    }
    target_.wanted = paced(safe);
    if (target_.wanted == current_) return;
    say("ScaleDown",
        fmt::format("from {} to {} workers, the most needed within the last {:.0f} s", current_, target_.wanted, window_s),
        {{"from", std::to_string(current_)}, {"to", std::to_string(target_.wanted)}});
  }

  // Records what is wanted now, and how it changed, for the next plans.
  void note_change() {
    PolicyMemory& memory = target_.memory;
    memory.desired = target_.wanted;
    // Changes below minWorkers and above maxWorkers start or stop no worker.
    const auto inside = [&](int workers) {
      return std::max(target_.floor, scaling_.max_workers ? std::min(workers, *scaling_.max_workers) : workers);
    };
    const int now = inside(target_.wanted), before = inside(current_);
    if (now != before) {
      const auto& last = memory.last_change;
      if (last && last->direction == Direction::kUp) memory.earlier_up_s = last->at_s;
      if (now > before) memory.earlier_up_s.reset();
      memory.last_change = Change{now_s_, now > before ? Direction::kUp : Direction::kDown};
    }
    auto& entries = memory.wanted;
    for (int workers : {current_, target_.wanted}) {
      if (entries.empty() || entries.back().workers != workers) entries.push_back(Recommendation{now_s_, workers});
    }
    while (entries.size() > 1 && entries[1].at_s <= now_s_ - kMinuteS) entries.erase(entries.begin());
  }

  const Service& service_;
  const Scaling& scaling_;
  const PolicyMemory& memory_;
  double now_s_;
  const DemandView& view_;
  const Configuration& configuration_;
  double start_s_;
  bool starts_over_;
  int current_;
  double worker_rate_per_s_;
  Target target_;
};

// Workers at which the tail of timePerOutputToken meets the objective. Each serves at most rate_within_tpot, minus what an
// uneven spread over few workers costs (kUnevenShare standard deviations of a worker's batch, as far as its slots allow).
int workers_within_tpot(const Configuration& configuration, double arrivals_per_s) {
  const double max_per_s = configuration.rate_within_tpot_per_s;
  if (!(max_per_s > 0) || !(arrivals_per_s > 0)) return 0;
  const double batch =
      std::clamp(max_per_s * configuration.times.service_s, 1.0, static_cast<double>(configuration.pool.each.slots));
  // Solve n * (1 - u / (n sqrt(batch))) * most = arrivals for n.
  // The simulator's rates of single phases include it.
  const bool whole = configuration.pool.role == dispatch::Role::kUnified;
  const double uneven = whole ? std::min(kUnevenShare / std::sqrt(batch), configuration.pool.each.slots / batch - 1) : 0;
  return to_int(std::ceil(arrivals_per_s / max_per_s + uneven - 1e-9));
}

// Input of the queue's formulas for a rate, and the fewest workers by the rules without a queue.
struct Sizing {
  SizingInput queue;
  int least = 0;
};
Sizing sizing_of(const Service& service, const Configuration& configuration, double requests_per_s, double burstiness,
                 double tolerance) {
  // What the simulator found makes a worker as fast as one that has fewer arrivals.
  const double arrivals_per_s = requests_per_s * configuration.load_share / configuration.capacity_ratio;
  SizingInput sizing;
  sizing.arrival_rate_per_s = arrivals_per_s;
  sizing.service_time_s = configuration.times.service_s;
  sizing.slots_per_worker = configuration.pool.each.slots;
  sizing.wait_budget_s = service.slo.ttft_s - configuration.times.ttft_s;
  sizing.percentile = service.slo.percentile;
  // Many slots even out variation, so the room per slot shrinks with their square root (square-root staffing rule).
  const double busy = arrivals_per_s * configuration.times.service_s;
  const double slots = std::ceil(busy / kMaxUtilisationOfMany / configuration.pool.each.slots) * configuration.pool.each.slots;
  const double room = kStaffingRoom / std::sqrt(std::max(1.0, slots));
  sizing.max_utilisation =
      std::min(kMaxTolerated, std::clamp(1 - room, kMaxUtilisation, kMaxUtilisationOfMany) / (1 - tolerance));
  // Arrivals with k times Poisson's variance cause about k times its variance of busy slots (the peakedness of Hayward's
  // approximation).
  const double bursts = kBurstDeviations * std::sqrt(std::max(0.0, burstiness - 1) * busy);
  const int for_bursts = to_int(std::ceil((busy + bursts) / (configuration.pool.each.slots * (1 + tolerance)) - 1e-9));
  return {sizing, std::max(for_bursts, workers_within_tpot(configuration, arrivals_per_s / (1 + tolerance)))};
}

}  // namespace

int current_workers(const Service& service) {
  if (service.memory.desired) return *service.memory.desired;
  if (service.last_desired) return *service.last_desired;
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [](const Worker& w) { return w.state != WorkerState::kDraining; }));
}

int workers_for(const Service& service, const Configuration& configuration, double requests_per_s, double burstiness,
                double tolerance) {
  const Sizing sizing = sizing_of(service, configuration, requests_per_s, burstiness, tolerance);
  return std::max(static_cast<int>(workers_needed(sizing.queue, kMaxWorkers)), sizing.least);
}

double capacity_of(const Service& service, const Configuration& configuration, int workers) {
  constexpr int kSteps = 24;  // to 1e-7
  double fits = 0, too_much = workers * configuration.pool.each.slots / effective_service_s(configuration);
  for (int step = 0; step < kSteps; ++step) {
    const double middle = (fits + too_much) / 2;
    const Sizing sizing = sizing_of(service, configuration, middle, 1, 0);
    (sizing.least <= workers && workers_suffice(sizing.queue, workers) ? fits : too_much) = middle;
  }
  return fits;
}

PolicyMemory advance_memory(const Service& service, double now_s) {
  PolicyMemory memory = service.memory;
  // Entries in the future were written by another clock.
  const auto ahead = [&](const std::optional<double>& at_s) { return at_s && !(*at_s <= now_s); };
  const auto any_ahead = [&](const std::vector<Recommendation>& entries) {
    return std::any_of(entries.begin(), entries.end(), [&](const Recommendation& r) { return !(r.at_s <= now_s); });
  };
  const bool foreign =
      ahead(memory.history_since_s) || any_ahead(memory.recommendations) || any_ahead(memory.wanted) ||
      ahead(memory.queue_since_s) || ahead(memory.queue_until_s) || (memory.shortfall && ahead(memory.shortfall->at_s)) ||
      std::any_of(memory.slots.begin(), memory.slots.end(), [&](const PoolSlots& slots) { return ahead(slots.changed_s); }) ||
      std::any_of(memory.sides.begin(), memory.sides.end(),
                  [&](const SideShare& side) { return side.lower && ahead(side.lower->at_s); }) ||
      ahead(memory.configuration_since_s) || (memory.busiest && ahead(memory.busiest->at_s)) ||
      (memory.shift && ahead(memory.shift->at_s)) || (memory.role_change && ahead(memory.role_change->at_s)) ||
      (memory.last_change && ahead(memory.last_change->at_s)) || ahead(memory.earlier_up_s) ||
      (memory.counted && !(memory.counted->at_s <= now_s + 1)) ||
      (memory.panic_until_s && !(*memory.panic_until_s <= now_s + kPanicWindowS));
  if (foreign) memory = PolicyMemory{};
  if (!memory.history_since_s) {
    memory.history_since_s = now_s;
    memory.offer = service.last_offer;
  }
  count_arrivals(memory, service, now_s);
  // An unreadable queue is assumed unchanged.
  if (is_usable(service.demand.queued, now_s)) {
    if (service.demand.queued->value <= 0) {
      memory.queue_since_s.reset();
    } else {
      if (!memory.queue_since_s) memory.queue_since_s = now_s;
      if (now_s - *memory.queue_since_s >= kQueueLastsS) memory.queue_until_s = now_s;
    }
  }
  return memory;
}

PolicyMemory remember(PolicyMemory memory, const Scaling& scaling, double now_s, int workers) {
  auto& entries = memory.recommendations;
  if (!entries.empty() && entries.back().at_s == now_s) entries.pop_back();  // planned twice at one time: the later plan counts
  if (entries.empty() || entries.back().workers != workers) entries.push_back(Recommendation{now_s, workers});
  const double horizon_s = now_s - std::max(scaling.scale_down_stabilization_s, scaling.scale_up_stabilization_s);
  std::size_t outdated = 0;
  while (outdated + 1 < entries.size() && entries[outdated + 1].at_s <= horizon_s) ++outdated;
  entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(outdated));
  return memory;
}

bool starts_over(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view) {
  return memory.offer && memory.offer != service.memory.offer && !view.complete && !service.workers.empty() &&
         now_s - *memory.history_since_s < kFreshS &&
         std::all_of(service.workers.begin(), service.workers.end(),
                     [&](const Worker& worker) { return is_fresh(worker, now_s); });
}

Target decide_target(const Service& service, const PolicyMemory& memory, double now_s, const DemandView& view,
                     const Configuration& configuration, const Retiring& retiring, bool starts_over) {
  Target target = Decision(service, memory, now_s, view, configuration, starts_over).decide();
  apply_limits(service, configuration, retiring, target);
  return target;
}

}  // namespace windlass::planner
