// Prints plans for people; see plan_text.h.
#include "controller/cli/plan_text.h"

#include <fmt/format.h>

#include "controller/cli/text_table.h"

namespace windlass::cli {
namespace {

using planner::Reading;

std::string title(const planner::ServiceId& id) { return id.name_space + "/" + id.name; }

std::string count(int n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string inputs_text(const planner::Reason& reason) {
  std::string text;
  for (const auto& [key, value] : reason.inputs) text += (text.empty() ? "" : ", ") + key + " = " + value;
  return text;
}

std::string predicted_text(const planner::Predicted& predicted) {
  return fmt::format("predicted: TTFT {}, TPOT {}, up to {} requests/s ({} used), {}, {} an hour",
                     seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s), number_text(predicted.requests_per_s),
                     percent_text(predicted.utilisation), count(predicted.gpus, "GPU"), number_text(predicted.cost_per_hour));
}

// "Feasible: False (NoAccelerator): ..." for those that do not simply hold.
std::string hint_text(const char* name, const planner::Hint& hint) {
  return fmt::format("{}: {} ({}){}{}", name, planner::to_string(hint.status), hint.reason, hint.message.empty() ? "" : ": ",
                     hint.message);
}

std::string seen(const std::optional<Reading>& reading, double now_s, const std::string& value) {
  if (!reading) return "not known";
  return fmt::format("{} ({} ago)", value, seconds_text(std::max(0.0, now_s - reading->at_s)));
}

std::string denied_text(const planner::Denied& denied) {
  return fmt::format("denied ({}): wanted {}, granted {}{}: {}", denied.code, count(denied.wanted_workers, "worker"),
                     denied.granted_workers, denied.accelerator.empty() ? "" : " of " + denied.accelerator, denied.message);
}

void add_pools(TextTable& table, const planner::ServiceId& id, const std::vector<planner::PoolPlan>& pools) {
  for (const auto& pool : pools) {
    table.add({title(id), pool.name, dispatch::to_string(pool.role), pool.accelerator, std::to_string(pool.gpus_per_worker),
               std::to_string(pool.workers), fmt::format("{}/{}", pool.slots, pool.max_concurrency),
               number_text(pool.service_rate_per_s * pool.slots)});
  }
}

}  // namespace

std::string plan_table(const planner::Snapshot& snapshot, const planner::Plan& plan) {
  TextTable table({"SERVICE", "POOL", "ROLE", "ACCELERATOR", "GPUS/WORKER", "WORKERS", "SLOTS/MAX", "REQUESTS/S A WORKER"});
  bool pools = false;
  for (const auto& service : plan.services) {
    add_pools(table, service.id, service.pools);
    pools = pools || !service.pools.empty();
  }
  std::string text = pools ? table.text() : "No workers.\n";
  for (std::size_t i = 0; i < plan.services.size(); ++i) {
    const auto& service = plan.services[i];
    text += fmt::format("\n{}\n", title(service.id));
    if (i < snapshot.services.size() && snapshot.services[i].id == service.id) {
      const auto& slo = snapshot.services[i].slo;
      text += fmt::format("  objective: TTFT {}, TPOT {} for {:g}% of the requests\n", seconds_text(slo.ttft_s),
                          seconds_text(slo.tpot_s), slo.percentile);
    }
    text += "  " + predicted_text(service.predicted) + "\n";
    for (const auto& reason : service.reasons) text += wrapped(reason.code + ": " + reason.message, 2);
    if (service.feasible.status != planner::Truth::kTrue) text += wrapped(hint_text("Feasible", service.feasible), 2);
    for (const auto& denied : plan.denied) {
      if (denied.id == service.id) text += wrapped(denied_text(denied), 2);
    }
  }
  return text;
}

std::string explanation(const planner::Snapshot& snapshot, const planner::Service& service, const planner::Plan& plan,
                        const planner::ServicePlan& service_plan) {
  const auto& demand = service.demand;
  const double now = snapshot.now_s;
  std::string text = fmt::format("ModelService {} (\"{}\"), strategy {}, mode {}\n", title(service.id), service.served_name,
                                 planner::to_string(service_plan.strategy), planner::to_string(service.scaling.mode));
  text += fmt::format("  objective: TTFT {}, TPOT {} for {:g}% of the requests over {}\n", seconds_text(service.slo.ttft_s),
                      seconds_text(service.slo.tpot_s), service.slo.percentile, seconds_text(service.slo.window_s));

  text += "\nWhat was seen\n";
  const auto value = [](const std::optional<Reading>& reading) {
    return reading ? std::optional<double>(reading->value) : std::nullopt;
  };
  text += "  arrivals:   " + seen(demand.arrivals_per_s, now, number_text(value(demand.arrivals_per_s)) + " requests/s") + "\n";
  text += "  queued:     " + seen(demand.queued, now, number_text(value(demand.queued), 0)) + "\n";
  text += "  lengths:    " + seen(demand.input_tokens, now, number_text(value(demand.input_tokens), 0) + " tokens in") + ", " +
          seen(demand.output_tokens, now, number_text(value(demand.output_tokens), 0) + " tokens out") + "\n";
  text += "  TTFT:       " + seen(demand.ttft_s, now, seconds_text(value(demand.ttft_s))) + "\n";
  text += "  TPOT:       " + seen(demand.tpot_s, now, seconds_text(value(demand.tpot_s))) + "\n";
  text += "  attainment: " + seen(demand.attainment, now, percent_text(value(demand.attainment))) + "\n";
  for (const auto& worker : service.workers) {
    text += fmt::format("  worker {}: {}{}\n", worker.name, planner::to_string(worker.state),
                        worker.address.empty() ? "" : " at " + worker.address);
  }

  text += "\nWhat was decided\n";
  const bool recommended = !service_plan.recommended_pools.empty();
  for (const auto& pool : recommended ? service_plan.recommended_pools : service_plan.pools) {
    text +=
        fmt::format("  {}pool {}: {} of {} {} each, {} requests at once in each\n", recommended ? "recommended: " : "",
                    pool.name, count(pool.workers, "worker"), count(pool.gpus_per_worker, "GPU"), pool.accelerator, pool.slots);
  }
  if (service_plan.pools.empty()) text += "  no workers\n";
  text += "  " + predicted_text(service_plan.predicted) + "\n";

  text += "\nWhy\n";
  for (const auto& reason : service_plan.reasons) {
    text += wrapped(reason.code + ": " + reason.message, 2);
    if (!reason.inputs.empty()) text += wrapped(inputs_text(reason), 6);
  }
  for (const auto& denied : plan.denied) {
    if (denied.id == service.id) text += wrapped(denied_text(denied), 2);
  }

  text += "\nConditions\n";
  text += wrapped(hint_text("Feasible", service_plan.feasible), 2);
  text += wrapped(hint_text("AbleToScale", service_plan.able_to_scale), 2);
  text += wrapped(hint_text("MetricsFresh", service_plan.metrics_fresh), 2);
  text += wrapped(hint_text("SLOMet", service_plan.slo_met), 2);
  return text;
}

}  // namespace windlass::cli
