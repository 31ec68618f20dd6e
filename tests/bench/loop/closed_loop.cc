// Implements closed_loop.h.
#include "tests/bench/loop/closed_loop.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_model.h"
#include "planner/sim/serving_simulation.h"
#include "planner/sizing/worker_config.h"
#include "tests/reference/autoscalers/baseline_schedule.h"

namespace windlass::bench {
namespace {

constexpr const char* kAccelerator = "a100-80gb";
constexpr const char* kModel = "llama3-8b";
constexpr int kInput = 512, kOutput = 128;
constexpr double kPercentile = 95;
constexpr double kSampleS = 5;
constexpr double kCurve = 1.4;
constexpr double kFlatBatch = 16;

// The workers' true iteration times.
class TrueTimes final : public planner::IterationModel {
 public:
  TrueTimes(planner::LinearCoefficients sheet, const LoopCase& of) : c_(sheet), of_(of) {}

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    const double b = batch.decode_sequences;
    const double context = b > 0 ? batch.decode_context_tokens / b : 0;
    double effective = b;
    if (of_.shape == TruthShape::kCurved) effective = std::pow(b, kCurve);
    if (of_.shape == TruthShape::kFlat) effective = std::max(0.0, b - kFlatBatch) * 2;
    const double constant = of_.decode * c_.c3;
    const double decode = of_.decode * (c_.k2 * context + c_.c2) * effective;
    const double prefill = of_.prefill * c_.k1 * batch.prefill_tokens;
    return slowdown * (constant + decode + prefill);
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return c_.kv_capacity_tokens; }

  double slowdown = 1;

 private:
  planner::LinearCoefficients c_;
  LoopCase of_;
};

// The truth, behind the interface that the planner's search uses.
class TrueLatency final : public planner::LatencyModel {
 public:
  explicit TrueLatency(const TrueTimes& times) : times_(times) {}
  [[nodiscard]] double prefill_s(double tokens) const override { return times_.iteration_s(planner::prefill_batch(1, tokens)); }
  [[nodiscard]] double decode_s(double batch, double context) const override {
    return times_.iteration_s(planner::decode_batch(std::max(1, static_cast<int>(std::lround(batch))), context));
  }
  [[nodiscard]] double kv_capacity_tokens() const override { return times_.kv_capacity_tokens(); }

 private:
  const TrueTimes& times_;
};

class Poisson final : public workload::RequestSource {
 public:
  Poisson(const LoopCase& of, double rate_per_s, std::uint64_t seed)
      : of_(of), rate_(rate_per_s), rng_(seed, "loop/arrivals") {}
  std::optional<workload::Request> next() override {
    now_s_ += rng_.exponential(rate_now());
    if (now_s_ > of_.duration_s) return std::nullopt;
    const double grown = of_.lengths_drift ? 1 + now_s_ / of_.duration_s : 1;
    const auto around = [&](double mean) {
      return static_cast<int>(rng_.integer(static_cast<std::int64_t>(mean / 2), static_cast<std::int64_t>(mean * 3 / 2)));
    };
    return workload::Request{now_s_, 1, around(kInput), around(kOutput * grown)};
  }

 private:
  [[nodiscard]] double rate_now() const {
    const double third = of_.duration_s / 3;
    return now_s_ >= third && now_s_ < 2 * third ? rate_ * of_.step : rate_;
  }
  const LoopCase& of_;
  double rate_;
  double now_s_ = 0;
  Rng rng_;
};

class Watch final : public sim::ServingObserver {
 public:
  Watch(const planner::Slo& slo, double grace_s, LoopRun& run) : slo_(slo), grace_s_(grace_s), run_(run) {}

  void on_request(const sim::ServedRequest& request) override {
    const bool in = !request.refused && !request.failed && request.ttft_s <= slo_.ttft_s && request.tbt_s <= slo_.tpot_s;
    const auto minute = static_cast<std::size_t>(request.arrival_s / 60);
    if (came_.size() <= minute) {
      came_.resize(minute + 1);
      attained_.resize(minute + 1);
    }
    ++came_[minute];
    attained_[minute] += in ? 1 : 0;
    if (request.arrival_s < grace_s_) return;
    ++all_;
    inside_ += in ? 1 : 0;
  }
  void on_sample(const sim::WorkerSample& sample) override {
    const auto minute = static_cast<std::size_t>(sample.time_s / 60);
    if (run_.workers.size() <= minute) run_.workers.resize(minute + 1);
    if (sample.phase == sim::WorkerPhase::kReady) run_.workers[minute] += kSampleS / 60;
  }
  void finish() {
    run_.attainment = all_ > 0 ? inside_ / all_ : 1;
    for (std::size_t i = 0; i < came_.size(); ++i) run_.minutes.push_back(came_[i] > 0 ? attained_[i] / came_[i] : -1);
  }

 private:
  planner::Slo slo_;
  double grace_s_;
  LoopRun& run_;
  double all_ = 0, inside_ = 0;
  std::vector<double> came_, attained_;
};

// Slows the workers down during the run.
class Slowing final : public sim::ClusterController {
 public:
  Slowing(sim::ClusterController& inner, TrueTimes& times, std::optional<double> from_s)
      : inner_(inner), times_(times), from_s_(from_s) {}
  [[nodiscard]] double interval_s() const override { return inner_.interval_s(); }
  [[nodiscard]] sim::ClusterOrders decide(const sim::ClusterObservation& observation) override {
    if (from_s_ && observation.now_s >= *from_s_) times_.slowdown = 2;
    return inner_.decide(observation);
  }

 private:
  sim::ClusterController& inner_;
  TrueTimes& times_;
  std::optional<double> from_s_;
};

struct Setting {
  planner::AcceleratorState accelerator;
  planner::Service service;
  planner::LinearCoefficients sheet;
  std::unique_ptr<TrueTimes> times;
  sim::ServingPool pool;
  double rate_per_s = 0;

  explicit Setting(const LoopCase& of) {
    auto spec = planner::accelerator_by_name(kAccelerator).value();
    spec.price_per_hour = 2;
    accelerator = {spec, planner::CapacityMode::kObserved, 200, 0, {}};
    service.shape = planner::model_shape_by_name(kModel).value();
    service.max_gpus_per_worker = 1;
    sheet = planner::linear_coefficients(*service.shape, spec, 1, planner::EngineType::kWindlass);
    times = std::make_unique<TrueTimes>(sheet, of);
    const TrueLatency truth(*times);
    const planner::Lengths lengths{kInput, kOutput};
    const planner::WorkerTimes alone = planner::worker_times(truth, 1, lengths);
    service.id = {"default", "chat", "uid"};
    service.served_name = "chat";
    service.slo = {std::max(1.0, 10 * alone.prefill_s), 2.5 * alone.tpot_s + alone.prefill_s / 20, kPercentile, 300};
    if (of.slower_from_s) {  // the objective must be attainable at half speed, too
      service.slo.tpot_s *= 2;
      service.slo.ttft_s *= 2;
    }
    service.accelerators = {{kAccelerator, {}}};
    service.scaling.min_workers = 1;
    service.scaling.max_workers = 60;
    const planner::Objective objective{service.slo.ttft_s, service.slo.tpot_s, kPercentile};
    const planner::BatchChoice choice = planner::largest_batch(truth, objective, lengths);
    rate_per_s = of.workers * 0.75 * choice.batch / choice.times.service_s;
    service.workload = {rate_per_s, kInput, kOutput};
    pool.workers = 1;
    pool.spec.accelerator = kAccelerator;
    pool.name = "a100-80gb-1";
    pool.model = times.get();
    pool.spec.engine = planner::with_defaults_of(planner::Batching::kVllmV1);
    pool.spec.engine.schedules_ahead = false;  // the times are those of windlass-worker
    pool.spec.engine.max_sequences = planner::kMaxBatch;
    pool.price_per_gpu_hour = 2;
    pool.start_s = of.start_s * of.start_factor;
  }

  [[nodiscard]] sim::ServingService serving(dispatch::PolicyKind policy, int workers) const {
    sim::ServingService out;
    out.pools = {pool};
    out.pools.front().workers = workers;
    out.dispatch.policy = policy;
    out.objectives = sim::ServingObjectives{service.slo.ttft_s, service.slo.tpot_s};
    return out;
  }
};

// The later of two cold starts after the load's start and a minute after metrics return; and the same after the step, which
// nobody can foresee.
double grace_of(const LoopCase& of) { return 2 * of.start_s * of.start_factor; }

LoopRun simulate(const LoopCase& of, Setting& setting, sim::ClusterController& controller, dispatch::PolicyKind policy,
                 int workers, std::uint64_t seed) {
  LoopRun run;
  Watch watch(setting.service.slo, grace_of(of), run);
  sim::ClusterOptions cluster;
  cluster.services = {setting.serving(policy, workers)};
  cluster.seed = seed;
  setting.times->slowdown = 1;
  Slowing slowing(controller, *setting.times, of.slower_from_s);
  cluster.controller = &slowing;
  cluster.observer = &watch;
  cluster.sample_interval_s = kSampleS;
  Poisson source(of, setting.rate_per_s, seed);
  const auto results = sim::simulate_cluster(source, cluster);
  watch.finish();
  if (!results.ok()) return run;
  run.worker_hours = results->front().gpu_hours;
  run.max_workers = results->front().max_workers;
  return run;
}

}  // namespace

LoopRun run_loop(const LoopCase& of, std::uint64_t seed, bool unmanaged) {
  Setting setting(of);
  sim::PolicyAutoscalerOptions options;
  options.accelerators = {setting.accelerator};
  options.services = {setting.service};
  options.metrics = of.metrics;
  options.measures_itself = of.measures_itself;
  options.metrics_age_s = of.metrics_age_s;
  if (of.no_metrics_from_s) options.no_metrics = {{*of.no_metrics_from_s, *of.no_metrics_from_s + 120}};
  if (of.profiled) {
    const TrueLatency truth(*setting.times);
    options.known = {{kAccelerator, 1, true, planner::estimate_from(setting.sheet, truth, 0.02, 100, 64)}};
  }
  options.pool = [&](int, const std::string&, int) -> Result<sim::ServingPool> { return setting.pool; };
  sim::PolicyAutoscaler autoscaler(options);
  LoopRun run = simulate(of, setting, autoscaler, dispatch::PolicyKind::kJffc, 1, seed);
  run.decisions = autoscaler.decisions();
  run.changes = static_cast<int>(run.decisions.size());
  if (unmanaged) {
    std::vector<sim::ScheduleStep> steps;
    for (std::size_t minute = 0; minute < run.workers.size(); ++minute) {
      const int ready = std::max(1, static_cast<int>(std::lround(run.workers[minute])));
      if (steps.empty() || steps.back().workers != ready) steps.push_back({60.0 * static_cast<double>(minute), ready});
    }
    sim::BaselineSchedule same(sim::BaselineDeployment(&setting.pool, planner::kMaxBatch), steps, 5);
    run.unmanaged = simulate(of, setting, same, dispatch::PolicyKind::kRoundRobin, steps.front().workers, seed).attainment;
  }
  return run;
}

std::vector<LoopCase> loop_cases() {
  std::vector<LoopCase> cases;
  const double factors[] = {0.2, 0.33, 0.5, 0.7, 1, 1.5, 2, 4};
  for (const double prefill : factors) {
    for (const double decode : factors) {
      LoopCase one;
      one.name = fmt::format("prefill x {:g}, decode x {:g}", prefill, decode);
      one.prefill = prefill;
      one.decode = decode;
      cases.push_back(one);
    }
  }
  const auto add = [&](std::string name, auto change) {
    LoopCase one;
    one.name = std::move(name);
    change(one);
    cases.push_back(one);
  };
  for (const double factor : {0.25, 1.0, 4.0}) {
    const auto scaled = [factor](LoopCase& one) { one.prefill = one.decode = factor; };
    for (const auto& [name, shape] : {std::pair("curved", TruthShape::kCurved), std::pair("flat", TruthShape::kFlat)}) {
      add(fmt::format("{} x {:g}", name, factor), [&, shape = shape](LoopCase& one) {
        scaled(one);
        one.shape = shape;
      });
    }
    for (const sim::MetricSet set :
         {sim::MetricSet::kVllm, sim::MetricSet::kSglang, sim::MetricSet::kTensorRtLlm, sim::MetricSet::kLlamaCpp}) {
      add(fmt::format("{} x {:g}", sim::to_string(set), factor), [&](LoopCase& one) {
        scaled(one);
        one.metrics = set;
      });
    }
    add(fmt::format("unmeasured at start x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.measures_itself = false;
    });
    add(fmt::format("answers grow, x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.lengths_drift = true;
    });
    add(fmt::format("starts take twice as long, x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.start_factor = 2;
    });
    add(fmt::format("half as fast from the middle, x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.slower_from_s = 1800;
    });
    add(fmt::format("metrics 25 s late, x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.metrics_age_s = 25;
    });
    add(fmt::format("no metrics for two minutes, x {:g}", factor), [&](LoopCase& one) {
      scaled(one);
      one.no_metrics_from_s = 900;
    });
  }
  return cases;
}

}  // namespace windlass::bench
