// Implements setting.h.
#include "tests/bench/outcome/setting.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/target.h"
#include "planner/sizing/replicated.h"
#include "planner/workload/arrivals.h"
#include "planner/workload/lengths.h"
#include "planner/workload/trace.h"

namespace windlass::bench {
namespace {

constexpr const char* kModel = "llama3-70b";
constexpr const char* kAccelerator = "h100-80gb";
constexpr double kTtftS = 2;
constexpr double kTpotS = 0.075;
constexpr double kRoom = 2;            // GPUs of the cluster, relative to the plan for the busiest minute
constexpr double kTraceRate = 16;      // number of overlaid copies of a trace
constexpr double kFirstSeconds = 300;  // the first workers suffice for the busiest minute of this time

Result<std::vector<workload::TraceRow>> read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: must be a readable file; ../shared/data/README.md lists the data", path)};
  std::ostringstream text;
  text << file.rdbuf();
  auto rows = workload::parse_azure_trace(text.str());
  if (!rows.ok()) return rows.error().within(path);
  return rows;
}

OutcomeWorkload finished(OutcomeWorkload workload) {
  double input = 0, output = 0;
  for (const workload::Request& request : workload.requests) {
    input += request.input_tokens;
    output += request.output_tokens;
  }
  const auto count = static_cast<double>(workload.requests.size());
  workload.lengths = {input / count, output / count};
  workload.end_s = workload.requests.back().arrival_s;
  return workload;
}

OutcomeWorkload of_trace(const std::string& name, const std::string& title, const std::vector<workload::TraceRow>& rows,
                         std::uint64_t seed) {
  OutcomeWorkload workload{name, title, {}, 0, {}};
  workload::TraceSource source(rows, rows.size(), {1, kTraceRate}, seed, name);
  while (const auto request = source.next()) workload.requests.push_back(*request);
  return finished(std::move(workload));
}

// Arrivals from a rate curve, with the lengths of a trace's rows.
OutcomeWorkload of_process(const std::string& name, const std::string& title, workload::ArrivalProcess& arrivals, double end_s,
                           const std::vector<workload::TraceRow>& rows, std::uint64_t seed) {
  OutcomeWorkload workload{name, title, {}, 0, {}};
  const auto lengths = workload::LengthDistribution::empirical(workload::lengths_of(rows));
  Rng rng(seed, name + "/lengths");
  for (auto at_s = arrivals.next_s(); at_s && *at_s < end_s; at_s = arrivals.next_s()) {
    const workload::TokenPair tokens = lengths->draw(rng);
    workload.requests.push_back({*at_s, 1, tokens.input_tokens, tokens.output_tokens});
  }
  return finished(std::move(workload));
}

// Requests per second in the busiest whole minute that ends within `seconds`.
double busiest_minute(const OutcomeWorkload& workload, double seconds) {
  std::vector<int> minutes(static_cast<std::size_t>(seconds / 60));
  for (const workload::Request& request : workload.requests) {
    const auto minute = static_cast<std::size_t>(request.arrival_s / 60);
    if (minute < minutes.size()) ++minutes[minute];
  }
  return *std::max_element(minutes.begin(), minutes.end()) / 60.0;
}

class StepArrivals final : public workload::ArrivalProcess {
 public:
  struct Phase {
    double rate_per_s, until_s;
  };
  StepArrivals(std::vector<Phase> phases, std::uint64_t seed) : phases_(std::move(phases)), rng_(seed, "step/times") {}
  std::optional<double> next_s() override {
    while (phase_ < phases_.size()) {
      const double at_s = now_s_ + rng_.exponential(phases_[phase_].rate_per_s);
      if (at_s < phases_[phase_].until_s) return now_s_ = at_s;
      now_s_ = phases_[phase_++].until_s;
    }
    return std::nullopt;
  }

 private:
  std::vector<Phase> phases_;
  std::size_t phase_ = 0;
  double now_s_ = 0;
  Rng rng_;
};

}  // namespace

Result<std::vector<OutcomeWorkload>> outcome_workloads(const std::string& data, std::uint64_t seed) {
  WINDLASS_ASSIGN_OR_RETURN(const auto conversation, read_trace(data + "/traces/AzureLLMInferenceTrace_conv.csv"));
  WINDLASS_ASSIGN_OR_RETURN(const auto code, read_trace(data + "/traces/AzureLLMInferenceTrace_code.csv"));
  std::vector<OutcomeWorkload> workloads;
  workloads.push_back(of_trace("conversation", "Azure conversation", conversation, seed));
  workloads.push_back(of_trace("code", "Azure code", code, seed));
  workload::DiurnalArrivals day;
  day.mean_rate_per_s = 40;
  day.peak_to_trough = 5;
  day.peak_at_s = 50'400;
  WINDLASS_ASSIGN_OR_RETURN(const auto curve, workload::make_arrivals(day, seed, "day"));
  workloads.push_back(of_process("day", "a day, 5 to 1", *curve, 86'400, conversation, seed));
  StepArrivals step({{40, 1800}, {80, 3600}, {40, 7200}}, seed);
  workloads.push_back(of_process("step", "a step, 40 to 80 to 40 requests/s", step, 7200, conversation, seed));
  return workloads;
}

Result<OutcomeSetting> OutcomeSetting::make(const OutcomeWorkload& workload) {
  OutcomeSetting setting;
  WINDLASS_ASSIGN_OR_RETURN(planner::AcceleratorSpec spec, planner::accelerator_by_name(kAccelerator));
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, planner::model_shape_by_name(kModel));
  setting.accelerator = {spec, planner::CapacityMode::kObserved, 1 << 20, 0, {}};
  planner::Service& service = setting.service;
  service.id = {"default", workload.name, "uid"};
  service.served_name = workload.name;
  service.shape = shape;
  service.slo = {kTtftS, kTpotS, 100 * kAttainment, 300};
  service.workload = {workload.rate_per_s(), workload.lengths.input_tokens, workload.lengths.output_tokens};
  service.accelerators = {{kAccelerator, {}}};

  planner::Snapshot snapshot;
  snapshot.accelerators = {setting.accelerator};
  snapshot.services = {service};
  const planner::Plan plan = planner::make_plan(snapshot);
  const planner::ServicePlan& planned = plan.services.front();
  if (planned.pools.empty()) return Error{ErrorCode::kFailedPrecondition, planned.feasible.message};
  const planner::Pool& chosen = planned.pools.front();
  setting.coefficients = planner::linear_coefficients(shape, spec, chosen.spec.tensor_parallel, planner::EngineType::kWindlass);
  const planner::LinearCoefficients& c = setting.coefficients;
  setting.model = std::make_shared<planner::LinearIterationModel>(
      planner::LinearPhase{{c.k1, 0, 0, c.c1}, {}}, planner::LinearPhase{{c.k2, c.c2, 0, c.c3}, {}}, c.kv_capacity_tokens);
  sim::ServingPool& pool = setting.pool;
  pool.name = chosen.name;
  pool.spec.accelerator = chosen.spec.accelerator;
  pool.model = setting.model.get();
  pool.spec.engine = planner::with_defaults_of(planner::Batching::kVllmV1);
  pool.spec.engine.schedules_ahead = false;  // the times are those of windlass-worker
  pool.spec.engine.max_sequences = chosen.each.max_concurrency;
  pool.spec.tensor_parallel = chosen.spec.tensor_parallel;
  pool.price_per_gpu_hour = spec.price_per_hour;
  pool.start_s = kStartS;
  setting.slots = chosen.each.slots;
  setting.worker_per_s = chosen.each.slots * chosen.each.service_rate_per_s;

  const auto workers_for_rate = [&](double requests_per_s) {
    snapshot.services.front().workload.requests_per_s = requests_per_s;
    return std::max(1, planner::make_plan(snapshot).services.front().desired_workers());
  };
  setting.first_workers = workers_for_rate(busiest_minute(workload, kFirstSeconds));
  setting.max_workers = static_cast<int>(kRoom * workers_for_rate(busiest_minute(workload, workload.end_s)));
  setting.accelerator.allocatable_gpus = setting.max_workers * chosen.spec.tensor_parallel;
  return setting;
}

sim::ServingService OutcomeSetting::serving() const {
  sim::ServingService serving;
  serving.name = service.served_name;
  serving.pools = {pool};
  serving.pools.front().workers = first_workers;
  serving.dispatch.policy = dispatch::PolicyKind::kJffc;
  serving.objectives = sim::ServingObjectives{service.slo.ttft_s, service.slo.tpot_s};
  return serving;
}

}  // namespace windlass::bench
