// Implements run.h.
#include "tests/bench/outcome/run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "tests/list_source.h"
#include "tests/reference/autoscalers/baseline_dynamo.h"
#include "tests/reference/autoscalers/baseline_keda.h"
#include "tests/reference/autoscalers/baseline_wva.h"

namespace windlass::bench {
namespace {

constexpr double kSampleS = 5;

class MinuteWatch final : public sim::ServingObserver {
 public:
  MinuteWatch(const planner::Slo& slo, std::vector<OutcomeMinute>& minutes) : slo_(slo), minutes_(minutes) {}

  void on_request(const sim::ServedRequest& request) override {
    OutcomeMinute& minute = at(request.arrival_s);
    ++minute.arrived;
    const bool lost = request.refused || request.failed;
    if (lost || request.ttft_s > slo_.ttft_s) ++minute.missed_ttft;
    if (!lost && request.tbt_s > slo_.tpot_s) ++minute.missed_tpot;
  }
  void on_sample(const sim::WorkerSample& sample) override {
    OutcomeMinute& minute = at(sample.time_s);
    if (sample.phase == sim::WorkerPhase::kReady) minute.ready += kSampleS / 60;
    minute.held += kSampleS / 60;
  }

 private:
  OutcomeMinute& at(double time_s) {
    const auto minute = static_cast<std::size_t>(time_s / 60);
    if (minutes_.size() <= minute) minutes_.resize(minute + 1);
    return minutes_[minute];
  }

  planner::Slo slo_;
  std::vector<OutcomeMinute>& minutes_;
};

sim::BaselineDeployment deployment_of(const OutcomeSetting& setting) {
  return sim::BaselineDeployment(&setting.pool, setting.slots);
}

Result<OutcomeRun> run_windlass(const OutcomeWorkload& workload, const OutcomeSetting& setting) {
  sim::PolicyAutoscalerOptions options;
  options.accelerators = {setting.accelerator};
  options.services = {setting.service};
  std::vector<std::unique_ptr<planner::LinearIterationModel>> models;
  options.pool = [&](int, const std::string& accelerator, int gpus) -> Result<sim::ServingPool> {
    if (accelerator == setting.pool.spec.accelerator && gpus == setting.pool.spec.gpus()) return setting.pool;
    const planner::LinearCoefficients c =
        planner::linear_coefficients(*setting.service.shape, setting.accelerator.spec, gpus, planner::EngineType::kWindlass);
    models.push_back(std::make_unique<planner::LinearIterationModel>(
        planner::LinearPhase{{c.k1, 0, 0, c.c1}, {}}, planner::LinearPhase{{c.k2, c.c2, 0, c.c3}, {}}, c.kv_capacity_tokens));
    sim::ServingPool pool = setting.pool;
    pool.model = models.back().get();
    pool.spec.tensor_parallel = gpus;
    return pool;
  };
  sim::PolicyAutoscaler autoscaler(options);
  WINDLASS_ASSIGN_OR_RETURN(OutcomeRun run, run_outcome(workload, setting, &autoscaler, setting.first_workers, true));
  if (!autoscaler.problem().ok()) return autoscaler.problem().error();
  run.decisions = autoscaler.decisions();
  return run;
}

// The smallest fixed number of workers that attains the objective: what a user would buy who knew the peak.
Result<OutcomeRun> run_fixed(const OutcomeWorkload& workload, const OutcomeSetting& setting) {
  const auto with = [&](int workers, bool minutes) {
    sim::BaselineSchedule controller(deployment_of(setting), {{0, workers}}, 60);
    return run_outcome(workload, setting, &controller, workers, minutes);
  };
  int too_few = 0, enough = setting.max_workers;
  while (enough - too_few > 1) {
    const int middle = too_few == 0 ? std::min(enough - 1, setting.first_workers + too_few) : (too_few + enough) / 2;
    const int tried = std::clamp(middle, too_few + 1, enough - 1);
    WINDLASS_ASSIGN_OR_RETURN(const OutcomeRun run, with(tried, false));
    if (run.attainment >= kAttainment) {
      enough = tried;
      if (too_few == 0) too_few = std::max(0, tried / 2 - 1);
    } else {
      too_few = tried;
      enough = std::min(enough, std::max(too_few + 1, 4 * tried));
    }
  }
  return with(enough, true);
}

Result<OutcomeRun> run_clairvoyant(const OutcomeWorkload& workload, const OutcomeSetting& setting) {
  sim::ClairvoyantOptions options;
  options.attainment = kAttainment;
  options.max_workers = setting.max_workers;
  const bool long_run = workload.end_s > 4 * 3600;
  options.cell_s = long_run ? 60 : 10;
  options.averages_s = long_run ? std::vector<double>{300} : std::vector<double>{10, 60, 300};
  options.caps = long_run ? std::vector<double>{1} : std::vector<double>{1, 0.9};
  options.improvement_runs = long_run ? 24 : 120;
  std::optional<Error> problem;
  const auto trial = [&](std::vector<sim::ScheduleStep> steps) {
    sim::ScheduleTrial trial;
    trial.steps = steps;
    sim::BaselineSchedule controller(deployment_of(setting), std::move(steps), 10);
    const auto run = run_outcome(workload, setting, &controller, trial.steps.front().workers, false);
    if (!run.ok()) {
      problem = run.error();
      return trial;
    }
    trial.attainment = run->attainment;
    trial.gpu_hours = run->gpu_hours;
    return trial;
  };
  const planner::LinearModel model(setting.coefficients);
  const sim::ScheduleTrial best =
      sim::cheapest_schedule(sim::offered_workers(workload.requests, model, setting.slots, options.cell_s), options, trial);
  if (problem) return *problem;
  sim::BaselineSchedule controller(deployment_of(setting), best.steps, 10);
  WINDLASS_ASSIGN_OR_RETURN(OutcomeRun run, run_outcome(workload, setting, &controller, best.steps.front().workers, true));
  run.steps = best.steps;
  return run;
}

}  // namespace

Result<OutcomeRun> run_outcome(const OutcomeWorkload& workload, const OutcomeSetting& setting,
                               sim::ClusterController* controller, int first_workers, bool minutes) {
  OutcomeRun outcome;
  sim::ClusterOptions options;
  options.services = {setting.serving()};
  options.services.front().pools.front().workers = first_workers;
  options.seed = kSeed;
  options.controller = controller;
  MinuteWatch watch(setting.service.slo, outcome.minutes);
  if (minutes) {
    options.observer = &watch;
    options.sample_interval_s = kSampleS;
  }
  sim::ListSource source(workload.requests);
  WINDLASS_ASSIGN_OR_RETURN(const auto results, sim::simulate_cluster(source, options));
  const sim::ServingResult& result = results.front();
  outcome.attainment = result.attainment;
  outcome.gpu_hours = result.gpu_hours;
  outcome.ttft_p99_s = result.ttft.p99_s;
  outcome.tpot_p99_s = result.tpot.p99_s;
  outcome.max_workers = result.max_workers;
  return outcome;
}

const std::vector<std::string>& outcome_rules() {
  static const std::vector<std::string> rules = {"windlass", "fixed", "hpa", "keda", "wva", "dynamo", "clairvoyant"};
  return rules;
}

Result<OutcomeRun> run_rule(const std::string& rule, const OutcomeWorkload& workload, const OutcomeSetting& setting) {
  const auto finished = [&](Result<OutcomeRun> run) {
    if (run.ok()) run->rule = rule;
    return run;
  };
  if (rule == "windlass") return finished(run_windlass(workload, setting));
  if (rule == "fixed") return finished(run_fixed(workload, setting));
  if (rule == "clairvoyant") return finished(run_clairvoyant(workload, setting));

  sim::HpaOptions hpa;
  hpa.max_replicas = setting.max_workers;
  std::unique_ptr<sim::ClusterController> controller;
  if (rule == "hpa") {
    hpa.target = 3;
    controller = std::make_unique<sim::BaselineHpa>(deployment_of(setting), sim::HpaMetric::kWaiting, hpa);
  } else if (rule == "keda") {
    hpa.target = setting.slots * planner::kMaxUtilisation;
    controller = std::make_unique<sim::BaselineKeda>(deployment_of(setting), sim::KedaOptions{hpa});
  } else if (rule == "wva") {
    sim::WvaOptions options;
    options.hpa = hpa;
    controller = std::make_unique<sim::BaselineWva>(deployment_of(setting), options);
  } else if (rule == "dynamo") {
    sim::DynamoOptions options;
    options.ttft_s = setting.service.slo.ttft_s;
    options.itl_s = setting.service.slo.tpot_s;
    options.max_replicas = setting.max_workers;
    controller = std::make_unique<sim::BaselineDynamo>(deployment_of(setting), options);
  } else {
    return Error{ErrorCode::kInvalidArgument, fmt::format("rule: must be one of outcome_rules() (got {})", rule)};
  }
  return finished(run_outcome(workload, setting, controller.get(), setting.first_workers, true));
}

}  // namespace windlass::bench
