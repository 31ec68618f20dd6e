// Prints plans for people; see plan_text.h.
#include "controller/cli/console/plan_text.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

std::string title(const planner::ServiceId& id) { return id.name_space + "/" + id.name; }

// GPUs of a worker; of a chain its servers, and the GPUs of each.
std::string gpus_text(const planner::WorkerSpec& spec) {
  if (spec.pipeline_stages == 1) return std::to_string(spec.gpus());
  return fmt::format("{} x {}", spec.pipeline_stages, spec.tensor_parallel);
}

void add_pools(TextTable& table, const planner::ServiceId& id, const std::vector<planner::Pool>& pools) {
  for (const auto& pool : pools) {
    table.add({title(id), pool.name, dispatch::to_string(pool.role), pool.spec.accelerator, gpus_text(pool.spec),
               std::to_string(pool.workers), fmt::format("{}/{}", pool.each.slots, pool.each.max_concurrency),
               number_text(pool.each.requests_per_s)});
  }
}

std::string latency(double seconds) { return std::isinf(seconds) ? "unbounded" : seconds_text(seconds); }

}  // namespace

std::string basis_text(std::string_view provenance) {
  if (provenance == "Measured") return "measured on such workers";
  if (provenance == "Interpolated") return "from measurements of such workers";
  if (provenance == "Extrapolated") return "beyond what was measured";
  return "by the data sheet, not measured";
}

std::string strategies_table(const std::vector<planner::StrategyAnswer>& answers) {
  if (answers.empty()) return "";
  TextTable table({"  STRATEGY", "OFFERS", "COST/H", "OUTCOME"});
  for (const planner::StrategyAnswer& answer : answers) {
    table.add({"  " + answer.strategy, answer.deployment.empty() ? "-" : answer.deployment,
               answer.deployment.empty() ? "-" : number_text(answer.cost_per_hour), answer.outcome});
  }
  return table.text();
}

std::string count_text(int n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string predicted_figures(const planner::ServicePlan& service) {
  const planner::Predicted& predicted = service.predicted;
  const planner::PredictedEnd &low = predicted.low, &high = predicted.high;
  std::map<std::string, int> taken;  // by class
  for (const planner::Pool& pool : service.pools) taken[pool.spec.accelerator] += pool.workers * pool.spec.gpus();
  std::string accelerators;
  for (const auto& [name, count] : taken) accelerators += fmt::format("{} x {}, ", count, name);
  return fmt::format(
      "TTFT {}, TPOT {}, up to {} requests/s, {} used, {}{} per hour; {}",
      interval_text(latency(predicted.ttft_s), latency(low.ttft_s), latency(high.ttft_s)),
      interval_text(latency(predicted.tpot_s), latency(low.tpot_s), latency(high.tpot_s)),
      interval_text(number_text(predicted.requests_per_s), number_text(low.requests_per_s), number_text(high.requests_per_s)),
      percent_text(predicted.utilisation), accelerators, number_text(predicted.cost_per_hour),
      basis_text(planner::to_string(predicted.from)));
}

std::string hint_text(const char* name, const planner::Hint& hint) {
  return fmt::format("{}: {} ({}){}{}", name, planner::to_string(hint.status), hint.reason, hint.message.empty() ? "" : ": ",
                     hint.message);
}

std::string denied_text(const planner::Denied& denied) {
  return fmt::format("denied ({}): asked for {}, granted {}{}: {}", denied.code, count_text(denied.wanted_workers, "worker"),
                     denied.granted_workers, denied.accelerator.empty() ? "" : " of " + denied.accelerator, denied.message);
}

std::string plan_table(const planner::Snapshot& snapshot, const planner::Plan& plan) {
  TextTable table({"SERVICE", "POOL", "ROLE", "ACCELERATOR", "PER WORKER", "WORKERS", "SLOTS/MAX", "REQUESTS/S PER WORKER"});
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
    text += wrapped("predicted: " + predicted_figures(service), 2);
    for (const auto& reason : service.reasons) text += wrapped(reason.code + ": " + reason.message, 2);
    text += strategies_table(service.strategies);
    if (service.feasible.status != planner::Truth::kTrue) text += wrapped(hint_text("Feasible", service.feasible), 2);
    for (const auto& denied : plan.denied) {
      if (denied.id == service.id) text += wrapped(denied_text(denied), 2);
    }
  }
  return text;
}

}  // namespace windlass::cli
