// Builds the sections of an explanation; see explain_text.h.
#include "controller/cli/explain/explain_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/text_table.h"
#include "planner/sizing/worker_config.h"
#include "planner/whatif/what_if.h"

namespace windlass::cli {
namespace {

using planner::Reading;
using planner::Truth;

std::optional<double> value(const std::optional<Reading>& reading) {
  return reading ? std::optional<double>(reading->value) : std::nullopt;
}

std::string seen(const std::optional<Reading>& reading, double now_s, const std::string& text) {
  if (!reading) return "unknown";
  return fmt::format("{} ({} ago)", text, seconds_text(std::max(0.0, now_s - reading->at_s)));
}

std::string latency_text(const std::optional<Reading>& reading) {
  return reading ? seconds_text(reading->value, reading->bound) : seconds_text(std::nullopt);
}

std::string objective(double ttft_s, double tpot_s, double percentile, double window_s) {
  return fmt::format("  objective: TTFT {}, TPOT {} for {:g}% of the requests over {}\n", seconds_text(ttft_s),
                     seconds_text(tpot_s), percentile, seconds_text(window_s));
}

std::string inputs_text(const std::map<std::string, std::string>& inputs) {
  std::string text;
  for (const auto& [key, figure] : inputs) text += (text.empty() ? "" : ", ") + key + " = " + figure;
  return text;
}

std::string reason_text(const std::string& code, const std::string& message, const std::map<std::string, std::string>& inputs,
                        int indent = 2) {
  return wrapped(code + ": " + message, indent) + (inputs.empty() ? "" : wrapped(inputs_text(inputs), indent + 4));
}

// The reasons, grouped by the policy's pass that gave them.
std::string why_section(const std::vector<planner::Reason>& reasons) {
  std::string text = "\nWhy\n";
  if (reasons.empty()) return text + "  the plan has not changed\n";
  std::string pass;
  for (const planner::Reason& reason : reasons) {
    if (reason.pass != pass && !reason.pass.empty()) text += fmt::format("  {}\n", reason.pass);
    pass = reason.pass;
    text += reason_text(reason.code, reason.message, reason.inputs, pass.empty() ? 2 : 4);
  }
  return text;
}

std::string workers_text(const planner::Service& service, double now_s) {
  if (service.workers.empty()) return "  no workers\n";
  TextTable table({"  WORKER", "STATE", "RUNNING", "WAITING", "KV CACHE", "AGE", "ADDRESS"});
  for (const planner::Worker& worker : service.workers) {
    table.add({"  " + worker.name, planner::to_string(worker.state), number_text(value(worker.running), 0),
               number_text(value(worker.waiting), 0), percent_text(value(worker.kv_use)),
               seconds_text(std::max(0.0, now_s - worker.created_s)), worker.address.empty() ? "-" : worker.address});
  }
  std::string text = table.text();
  for (const planner::Worker& worker : service.workers) {
    if (worker.trouble == planner::WorkerTrouble::kNone) continue;
    text += wrapped(fmt::format("{}: {}{}{}", worker.name, planner::to_string(worker.trouble),
                                worker.trouble_message.empty() ? "" : ": ", worker.trouble_message),
                    4);
  }
  return text;
}

std::string seen_text(const planner::Service& service, double now_s) {
  const planner::Demand& demand = service.demand;
  std::string text = "\nWhat was seen\n";
  text +=
      "  arrivals:   " + seen(demand.arrivals_per_s, now_s, number_text(value(demand.arrivals_per_s)) + " requests/s") + "\n";
  text += "  queued:     " + seen(demand.queued, now_s, number_text(value(demand.queued), 0)) + "\n";
  text += "  lengths:    " + seen(demand.input_tokens, now_s, number_text(value(demand.input_tokens), 0) + " tokens in") +
          ", " + seen(demand.output_tokens, now_s, number_text(value(demand.output_tokens), 0) + " tokens out") + "\n";
  text += "  TTFT:       " + seen(demand.ttft_s, now_s, latency_text(demand.ttft_s)) + "\n";
  text += "  TPOT:       " + seen(demand.tpot_s, now_s, latency_text(demand.tpot_s)) + "\n";
  text += "  attainment: " + seen(demand.attainment, now_s, percent_text(value(demand.attainment))) + "\n";
  if (service.starts) {
    text += fmt::format("  starts:     9 of 10 workers were ready within {} (starts measured: {})\n",
                        seconds_text(service.starts->p90_s), service.starts->count);
  }
  for (const planner::WorkerEstimate& one : service.estimates) {
    const planner::IterationEstimate& estimate = one.estimate;
    text +=
        wrapped(fmt::format("iterations of {} x {}: {} observations{}, batches up to {:.0f}; typical error {} per iteration",
                            one.gpus_per_worker, one.accelerator, estimate.samples,
                            one.from_profile ? ", starting from a PerformanceProfile" : "", estimate.largest_batch,
                            percent_text(std::sqrt(estimate.noise_variance))),
                2);
  }
  if (service.refused)
    text += wrapped(fmt::format("refused by the cluster ({}): {}", service.refused->code, service.refused->message), 2);
  return text + workers_text(service, now_s);
}

std::string predicted_section(const planner::ServicePlan& planned) {
  std::string text = "\nWhat was predicted\n";
  if (const auto& forecast = planned.forecast) {
    text += wrapped(fmt::format("arrivals within the next {}, the time to start a worker: {} requests/s, forecast by {}{}",
                                seconds_text(forecast->horizon_s), number_text(forecast->requests_per_s), forecast->method,
                                forecast->judged > 0 ? fmt::format(" with a mean error of {} over {} forecasts",
                                                                   percent_text(forecast->relative_error), forecast->judged)
                                                     : std::string(", not yet compared with what arrived")),
                    2);
  }
  return text + wrapped("with this plan: " + predicted_figures(planned), 2);
}

std::string considered_section(const planner::ServicePlan& planned) {
  if (planned.considered.empty() && planned.strategies.empty()) return "";
  if (planned.considered.empty()) return "\nWhat was considered\n" + strategies_table(planned.strategies);
  TextTable table({"  CONFIGURATION", "WORKERS", "COST/H", "TTFT", "TPOT", "VERDICT"});
  for (const planner::Considered& one : planned.considered) {
    table.add({"  " + planner::text_of(one.spec), one.workers > 0 ? std::to_string(one.workers) : "-",
               one.workers > 0 ? number_text(one.cost_per_hour) : "-", one.ttft_s > 0 ? seconds_text(one.ttft_s) : "-",
               one.tpot_s > 0 ? seconds_text(one.tpot_s) : "-", one.rejected.empty() ? "taken" : one.rejected});
  }
  return "\nWhat was considered\n" + table.text() + strategies_table(planned.strategies);
}

std::string decided_section(const planner::ServicePlan& planned) {
  std::string text = "\nWhat was decided\n";
  const bool recommended = !planned.recommended_pools.empty();
  for (const auto& pool : recommended ? planned.recommended_pools : planned.pools) {
    text += fmt::format("  {}pool {}: {} of {}, {} concurrent requests each\n", recommended ? "recommended: " : "",
                        planner::title(pool.id()), count_text(pool.workers, "worker"), planner::text_of(pool.spec),
                        pool.each.slots);
  }
  if (planned.pools.empty()) text += "  no workers\n";
  return text;
}

// Which loads would change the plan, and which workers were denied.
std::string change_section(const planner::Snapshot& snapshot, const planner::Plan& plan, std::size_t index) {
  std::string text = "\nWhat would change it\n";
  const auto found = planner::what_if(snapshot, index);
  if (!found) {
    text += "  unknown: needs a recent arrival rate and a configuration that meets the objective\n";
  } else {
    if (found->more_at_per_s) {
      text += fmt::format("  at {} requests/s or more: {}\n", number_text(*found->more_at_per_s),
                          count_text(found->more_workers, "worker"));
    }
    if (found->fewer_at_per_s) {
      text += fmt::format("  at {} requests/s or less for {}: {}\n", number_text(*found->fewer_at_per_s),
                          seconds_text(snapshot.services[index].scaling.scale_down_stabilization_s),
                          count_text(found->fewer_workers, "worker"));
    }
    if (!found->more_at_per_s && !found->fewer_at_per_s) text += "  no arrival rate up to 16 times the current one\n";
  }
  for (const planner::Denied& denied : plan.denied) {
    if (denied.id == snapshot.services[index].id) text += wrapped(denied_text(denied), 2);
  }
  return text;
}

std::string conditions_section(const planner::ServicePlan& planned) {
  return "\nConditions\n" + wrapped(hint_text("Feasible", planned.feasible), 2) +
         wrapped(hint_text("AbleToScale", planned.able_to_scale), 2) +
         wrapped(hint_text("MetricsFresh", planned.metrics_fresh), 2) + wrapped(hint_text("SLOMet", planned.slo_met), 2) +
         wrapped(hint_text("TimesKnown", planned.times_known), 2);
}

}  // namespace

std::string explanation(const planner::Snapshot& snapshot, const planner::Plan& plan, std::size_t index) {
  const planner::Service& service = snapshot.services[index];
  const planner::ServicePlan& planned = plan.services[index];
  std::string text =
      fmt::format("ModelService {}/{} (\"{}\"), strategy {}, mode {}\n", service.id.name_space, service.id.name,
                  service.served_name, planner::to_string(planned.strategy), planner::to_string(service.scaling.mode));
  text += objective(service.slo.ttft_s, service.slo.tpot_s, service.slo.percentile, service.slo.window_s);
  text +=
      seen_text(service, snapshot.now_s) + predicted_section(planned) + considered_section(planned) + decided_section(planned);
  return text + why_section(planned.reasons) + change_section(snapshot, plan, index) + conditions_section(planned);
}

std::string explanation(const api::ModelService& service) {
  const api::ModelServiceStatus& status = service.status;
  std::string text = fmt::format("ModelService {}/{} (\"{}\"), mode {}\n", service.metadata.name_space, service.metadata.name,
                                 status.served_name.empty() ? service.model_name() : status.served_name,
                                 api::to_string(service.spec.scaling.mode));
  const api::SloSpec& slo = service.spec.slo;
  text += objective(slo.time_to_first_token_s, slo.time_per_output_token_s, slo.percentile, slo.window_s);
  if (status.observed_generation == 0) return text + "\nNo controller has processed it yet.\n";
  if (status.observed_generation != service.metadata.generation) {
    text += wrapped(
        fmt::format("the status is for generation {}, the spec is at {}: the controller has not processed the last edit",
                    status.observed_generation, service.metadata.generation),
        2);
  }
  text += "\nWhat was seen\n";
  text += fmt::format("  arrivals {} requests/s, {} queued, {} tokens in, {} tokens out\n",
                      number_text(status.load.requests_per_s), status.load.queued ? std::to_string(*status.load.queued) : "-",
                      number_text(status.load.input_tokens, 0), number_text(status.load.output_tokens, 0));
  text +=
      fmt::format("  TTFT {}, TPOT {}, attainment {}\n", seconds_text(status.slo.time_to_first_token_s, status.slo.ttft_bound),
                  seconds_text(status.slo.time_per_output_token_s, status.slo.tpot_bound), percent_text(status.slo.attainment));
  text += fmt::format("  workers: {} desired, {} ready, {} starting, {} draining; {}, {} per hour\n", status.workers.desired,
                      status.workers.ready, status.workers.starting, status.workers.draining,
                      count_text(static_cast<int>(status.gpus), "accelerator"), number_text(status.cost_per_hour));
  text += "\nWhat was predicted\n";
  const api::Prediction& predicted = status.plan.predicted;
  const api::PredictedFigures &low = predicted.low, &high = predicted.high;
  // A status has no infinity: TTFT is unbounded where only the low end is known.
  const bool unbounded = low.time_to_first_token_s && !high.time_to_first_token_s;
  text += fmt::format(
      "  TTFT {}, TPOT {}, up to {} requests/s{}\n",
      interval_text(seconds_text(predicted.time_to_first_token_s), seconds_text(low.time_to_first_token_s),
                    unbounded ? "unbounded" : seconds_text(high.time_to_first_token_s)),
      interval_text(seconds_text(predicted.time_per_output_token_s), seconds_text(low.time_per_output_token_s),
                    seconds_text(high.time_per_output_token_s)),
      interval_text(number_text(predicted.requests_per_s), number_text(low.requests_per_s), number_text(high.requests_per_s)),
      predicted.basis.empty() ? "" : "; " + basis_text(predicted.basis));
  if (!status.plan.strategies.empty()) {
    std::vector<planner::StrategyAnswer> answers;
    for (const api::StrategyStatus& one : status.plan.strategies) {
      answers.push_back({one.strategy, one.deployment, one.cost_per_hour.value_or(0), one.outcome});
    }
    text += "\nWhat was considered\n" + strategies_table(answers);
  }
  text += "\nWhat was decided\n";
  for (const api::PoolStatus& pool : status.plan.pools) {
    text += fmt::format("  pool {}{}: {} of {} x {}\n", pool.name,
                        pool.role == api::PoolRole::kUnified ? "" : fmt::format(" ({})", api::to_string(pool.role)),
                        count_text(static_cast<int>(pool.workers), "worker"), pool.gpus_per_worker, pool.accelerator);
  }
  if (status.plan.pools.empty()) text += "  no workers\n";
  text += "\nWhy\n";
  for (const api::Reason& reason : status.plan.reasons) text += reason_text(reason.code, reason.message, reason.inputs);
  text += "\nConditions\n";
  for (const api::Condition& one : status.conditions) {
    text += wrapped(fmt::format("{}: {} ({}){}{}", one.type, api::to_string(one.status), one.reason,
                                one.message.empty() ? "" : ": ", one.message),
                    2);
  }
  return text;
}

}  // namespace windlass::cli
