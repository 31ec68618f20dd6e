// See status.h.
#include "controller/reconcile/status.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "planner/dispatch/routing_table.h"
#include "planner/policy/capacity.h"
#include "planner/policy/json.h"

namespace windlass::controller {
namespace {

api::ConditionStatus to_api(planner::Truth truth) {
  switch (truth) {
    case planner::Truth::kTrue: return api::ConditionStatus::kTrue;
    case planner::Truth::kFalse: return api::ConditionStatus::kFalse;
    case planner::Truth::kUnknown: return api::ConditionStatus::kUnknown;
  }
  return api::ConditionStatus::kUnknown;
}

api::Strategy to_api(planner::Family strategy) {
  switch (strategy) {
    case planner::Family::kAuto: return api::Strategy::kAuto;
    case planner::Family::kReplicated: return api::Strategy::kReplicated;
    case planner::Family::kDisaggregated: return api::Strategy::kDisaggregated;
    case planner::Family::kChained: return api::Strategy::kChained;
  }
  return api::Strategy::kAuto;
}

api::PoolRole to_api(dispatch::Role role) {
  switch (role) {
    case dispatch::Role::kUnified: return api::PoolRole::kUnified;
    case dispatch::Role::kPrefill: return api::PoolRole::kPrefill;
    case dispatch::Role::kDecode: return api::PoolRole::kDecode;
  }
  return api::PoolRole::kUnified;
}

api::Condition condition(const api::ModelService& service, const char* type, planner::Hint hint) {
  api::Condition out;
  out.type = type;
  out.status = to_api(hint.status);
  out.observed_generation = service.metadata.generation;
  out.reason = hint.reason.empty() ? "Unknown" : hint.reason;
  out.message = hint.message;
  return out;
}

bool has_trouble(const Worker& worker) {
  if (worker.finished || worker.terminating) return false;
  return worker.trouble != planner::WorkerTrouble::kNone || (!worker.ready && !worker.message.empty());
}

// "2 CrashLoop, 1 ImagePull: chat-h100-1-0: back-off pulling image": a count per trouble, and one worker's message.
std::string troubles(const std::vector<Worker>& all) {
  std::map<std::string, int> counts;
  const Worker* first = nullptr;
  for (const Worker& worker : all) {
    if (!has_trouble(worker)) continue;
    if (worker.trouble != planner::WorkerTrouble::kNone) ++counts[planner::to_string(worker.trouble)];
    if (first == nullptr || (first->message.empty() && !worker.message.empty())) first = &worker;
  }
  if (first == nullptr) return "";
  std::string text;
  for (const auto& [trouble, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, trouble);
  if (!first->message.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : ": ", first->name, first->message);
  return text;
}

planner::Hint readiness(const api::WorkersStatus& workers, const std::vector<Worker>& all) {
  if (workers.desired == 0 && workers.current == 0) {
    return {planner::Truth::kTrue, "ScaledToZero", "no workers, because there are no requests; the first request starts one"};
  }
  const std::string count = fmt::format("{} of {} workers ready", workers.ready, workers.desired);
  const std::string trouble = troubles(all);
  const std::string message = trouble.empty() ? count : count + "; " + trouble;
  if (workers.ready > 0) return {planner::Truth::kTrue, workers.ready >= workers.desired ? "WorkersReady" : "Scaling", message};
  for (const Worker& worker : all) {
    if (!has_trouble(worker)) continue;
    const bool told_apart =
        worker.trouble != planner::WorkerTrouble::kNone && worker.trouble != planner::WorkerTrouble::kFailed;
    const char* reason = told_apart             ? planner::to_string(worker.trouble)
                         : worker.gated         ? "SchedulingGated"
                         : worker.unschedulable ? "Unschedulable"
                                                : "WorkersNotReady";
    return {planner::Truth::kFalse, reason, message};
  }
  return {planner::Truth::kFalse, "WorkersStarting", message};
}

// Keeps NaN and infinities out of the status.
std::optional<double> finite(double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; }

std::optional<double> value_of(const std::optional<planner::Reading>& reading) {
  return reading ? finite(reading->value) : std::nullopt;
}

template <class Figures>
api::PredictedFigures finite_figures(const Figures& of) {
  return {finite(of.ttft_s), finite(of.tpot_s), finite(of.requests_per_s)};
}

api::Prediction to_api(const planner::Predicted& predicted) {
  api::Prediction out;
  static_cast<api::PredictedFigures&>(out) = finite_figures(predicted);
  out.basis = planner::to_string(predicted.from);
  out.low = finite_figures(predicted.low);
  out.high = finite_figures(predicted.high);
  return out;
}

}  // namespace

api::ModelServiceStatus status_of(const api::ModelService& service, const planner::Service& observed,
                                  const std::vector<Worker>& all, const planner::ServicePlan& plan, const ServiceMemory* memory,
                                  const std::string& now_rfc3339) {
  api::ModelServiceStatus out;
  out.observed_generation = service.metadata.generation;
  out.served_name = service.served_name();
  out.selector = fmt::format("app.kubernetes.io/component=worker,windlass.dev/service={}", service.metadata.name);

  out.plan.strategy = to_api(plan.strategy);
  for (const planner::Pool& pool : plan.pools) {
    out.plan.pools.push_back({pool.name, to_api(pool.role), pool.spec.accelerator, pool.spec.gpus(), pool.workers, ""});
  }
  out.plan.predicted = to_api(plan.predicted);
  for (const planner::Reason& reason : plan.reasons) out.plan.reasons.push_back({reason.code, reason.message, reason.inputs});

  for (const planner::StrategyAnswer& answer : plan.strategies) {
    out.plan.strategies.push_back({answer.strategy, answer.deployment,
                                   answer.deployment.empty() ? std::nullopt : finite(answer.cost_per_hour), answer.outcome});
  }
  if (plan.memory.offer) out.plan.offer = planner::to_json(*plan.memory.offer);

  out.workers.desired = plan.desired_workers();
  for (const Worker& worker : all) {
    if (worker.finished) continue;
    ++out.workers.current;
    out.gpus += worker.gpus;
    if (worker.draining_since_s || worker.terminating) {
      ++out.workers.draining;
    } else if (worker.serves_its_role()) {
      ++out.workers.ready;
    } else {
      ++out.workers.starting;
    }
  }
  out.cost_per_hour = finite(plan.predicted.cost_per_hour);

  out.load.requests_per_s = value_of(observed.demand.arrivals_per_s);
  out.load.input_tokens = value_of(observed.demand.input_tokens);
  out.load.output_tokens = value_of(observed.demand.output_tokens);
  if (const auto queued = value_of(observed.demand.queued)) out.load.queued = static_cast<std::int64_t>(*queued);
  out.slo.attainment = value_of(observed.demand.attainment);
  out.slo.time_to_first_token_s = value_of(observed.demand.ttft_s);
  out.slo.time_per_output_token_s = value_of(observed.demand.tpot_s);
  if (observed.demand.ttft_s) out.slo.ttft_bound = observed.demand.ttft_s->bound;
  if (observed.demand.tpot_s) out.slo.tpot_bound = observed.demand.tpot_s->bound;

  out.conditions = service.status.conditions;
  planner::Hint able = plan.able_to_scale;
  if (memory != nullptr && memory->create_backoff) {
    able = {planner::Truth::kFalse, memory->create_backoff->code, memory->create_backoff->message};
  }
  api::set_condition(out.conditions, condition(service, api::kReady, readiness(out.workers, all)), now_rfc3339);
  api::set_condition(out.conditions, condition(service, api::kFeasible, plan.feasible), now_rfc3339);
  api::set_condition(out.conditions, condition(service, api::kSloMet, plan.slo_met), now_rfc3339);
  api::set_condition(out.conditions, condition(service, api::kMetricsFresh, plan.metrics_fresh), now_rfc3339);
  api::set_condition(out.conditions, condition(service, api::kAbleToScale, able), now_rfc3339);
  api::set_condition(out.conditions, condition(service, api::kTimesKnown, plan.times_known), now_rfc3339);
  return out;
}

api::ModelServiceStatus name_taken_status(const api::ModelService& service, const std::string& holder,
                                          const std::string& now_rfc3339) {
  api::ModelServiceStatus out;
  out.observed_generation = service.metadata.generation;
  out.conditions = service.status.conditions;
  api::set_condition(
      out.conditions,
      condition(service, api::kReady,
                {planner::Truth::kFalse, "NameTaken",
                 fmt::format(
                     "spec.model.servedName: must differ from the name of every other ModelService (got '{}', which {} serves)",
                     service.served_name(), holder)}),
      now_rfc3339);
  return out;
}

api::AcceleratorClassStatus status_of(const api::AcceleratorClass& object, const GpuCapacity& capacity,
                                      const Observation& observation) {
  api::AcceleratorClassStatus out;
  out.observed_generation = object.metadata.generation;
  out.nodes = capacity.nodes;
  out.allocatable_gpus = capacity.allocatable;
  out.used_gpus = capacity.used_by_others;
  const auto count = [&](const Worker& worker) {
    if (worker.accelerator != object.metadata.name || worker.finished) return;
    (worker.unschedulable || worker.gated ? out.pending_gpus : out.used_gpus) += worker.gpus;
  };
  for (const auto& [uid, workers] : observation.workers) std::for_each(workers.begin(), workers.end(), count);
  std::for_each(observation.strays.begin(), observation.strays.end(), count);
  std::for_each(observation.orphans.begin(), observation.orphans.end(), count);
  out.conditions = object.status.conditions;
  return out;
}

std::optional<api::Condition> data_sheet_condition(const api::AcceleratorClass& object, const planner::Snapshot& snapshot) {
  const planner::AcceleratorState* state = planner::find_accelerator(snapshot, object.metadata.name);
  if (state == nullptr) return std::nullopt;
  api::Condition out;
  out.type = kDataSheetFits;
  out.observed_generation = object.metadata.generation;
  bool measured = false;
  for (const planner::Service& service : snapshot.services) {
    if (!service.shape) continue;
    for (const planner::WorkerEstimate& estimate : service.estimates) {
      if (estimate.accelerator != object.metadata.name) continue;
      const auto advice = planner::advise_on_sheet(*service.shape, state->spec, service.engine, estimate);
      measured = measured || advice;
      if (!advice || !advice->off) continue;
      out.status = api::ConditionStatus::kFalse;
      out.reason = "MeasuredOtherwise";
      out.message = fmt::format("{}/{} on {} x {}: {}", service.id.name_space, service.id.name, estimate.gpus_per_worker,
                                object.metadata.name, advice->to_text(*service.shape));
      // Figures change with every measurement, so the message keeps its first ones while the data sheet is off.
      const api::Condition* before = api::find_condition(object.status.conditions, kDataSheetFits);
      if (before != nullptr && before->reason == out.reason && before->observed_generation == out.observed_generation)
        out.message = before->message;
      return out;
    }
  }
  if (!measured) return std::nullopt;
  out.status = api::ConditionStatus::kTrue;
  out.reason = "AsMeasured";
  out.message = "the measurements are within a third of the data sheet";
  return out;
}

api::Condition unreadable_condition(const BrokenObject& object, const std::string& now_rfc3339) {
  api::Condition out;
  out.type = kReadable;
  out.status = api::ConditionStatus::kFalse;
  out.observed_generation = object.generation;
  out.last_transition_time = now_rfc3339;
  out.reason = "Unreadable";
  constexpr std::size_t kMost = 1024;
  out.message = object.message.substr(0, kMost) + "; the last readable state stays in use";
  return out;
}

void mark_readable(std::vector<api::Condition>& conditions, std::int64_t generation, const std::string& now_rfc3339) {
  const api::Condition* before = api::find_condition(conditions, kReadable);
  if (before == nullptr || before->status == api::ConditionStatus::kTrue) return;
  api::Condition now = *before;
  now.status = api::ConditionStatus::kTrue;
  now.observed_generation = generation;
  now.reason = "Read";
  now.message = "the object can be read again";
  api::set_condition(conditions, now, now_rfc3339);
}

bool meaningfully_different(const api::ModelServiceStatus& a, const api::ModelServiceStatus& b) {
  const auto still = [](api::ModelServiceStatus status) {
    status.load = {};
    status.slo = {};
    status.plan.predicted = {};
    status.plan.reasons.clear();   // they depend on every figure
    status.cost_per_hour.reset();  // it changes with the workers, and is rounded on the wire
    for (api::Condition& one : status.conditions) {
      one.last_transition_time.clear();
      one.message.clear();
    }
    return status;
  };
  return still(a) != still(b);
}

}  // namespace windlass::controller
