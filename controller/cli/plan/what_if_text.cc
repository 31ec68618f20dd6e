// Compares two plans of the same services; see what_if_text.h.
#include "controller/cli/plan/what_if_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/text_table.h"
#include "planner/policy/json.h"

namespace windlass::cli {
namespace {

using planner::Reason;
using planner::ServicePlan;

std::string title(const planner::ServiceId& id) { return id.name_space + "/" + id.name; }

// The pools that the plan has, or in modes Recommend and Paused those that it recommends.
const std::vector<planner::Pool>& pools_of(const ServicePlan& plan) {
  return plan.recommended_pools.empty() ? plan.pools : plan.recommended_pools;
}

int workers_of(const ServicePlan& plan) {
  int workers = 0;
  for (const planner::Pool& pool : pools_of(plan)) workers += pool.workers;
  return workers;
}

std::string pools_text(const ServicePlan& plan) {
  std::string text;
  for (const planner::Pool& pool : pools_of(plan)) {
    if (pool.workers == 0) continue;
    const bool whole = pool.role == dispatch::Role::kUnified;
    text += fmt::format("{}{} x {}{}", text.empty() ? "" : " + ", pool.workers, pool.name,
                        whole ? "" : fmt::format(" ({})", dispatch::to_string(pool.role)));
  }
  return text.empty() ? "none" : text;
}

std::string feasible_text(const ServicePlan& plan) {
  const char* status = planner::to_string(plan.feasible.status);
  return plan.feasible.status == planner::Truth::kTrue ? status : fmt::format("{} ({})", status, plan.feasible.reason);
}

std::string ttft_text(const ServicePlan& plan) {
  return std::isinf(plan.predicted.ttft_s) ? "unbounded" : seconds_text(plan.predicted.ttft_s);
}

// Reasons of one plan that the other does not give in the same words.
std::vector<const Reason*> only_in(const ServicePlan& plan, const ServicePlan& other) {
  std::vector<const Reason*> found;
  for (const Reason& reason : plan.reasons) {
    const bool same = std::any_of(other.reasons.begin(), other.reasons.end(),
                                  [&](const Reason& one) { return one.code == reason.code && one.message == reason.message; });
    if (!same) found.push_back(&reason);
  }
  return found;
}

const planner::Denied* denial_of(const planner::Plan& plan, const planner::ServiceId& id) {
  const auto found = std::find_if(plan.denied.begin(), plan.denied.end(), [&](const auto& denied) { return denied.id == id; });
  return found == plan.denied.end() ? nullptr : &*found;
}

std::string service_text(const ServicePlan& now, const ServicePlan& then) {
  TextTable table({title(now.id), "NOW", "WHAT IF"});
  const auto row = [&](const char* what, const auto& text_of) { table.add({what, text_of(now), text_of(then)}); };
  row("feasible", feasible_text);
  row("workers", [](const ServicePlan& plan) { return std::to_string(workers_of(plan)); });
  row("pools", pools_text);
  row("GPUs", [](const ServicePlan& plan) { return std::to_string(plan.predicted.gpus); });
  row("cost per hour", [](const ServicePlan& plan) { return number_text(plan.predicted.cost_per_hour); });
  row("predicted TTFT", ttft_text);
  row("predicted TPOT", [](const ServicePlan& plan) { return seconds_text(plan.predicted.tpot_s); });
  row("requests/s, at most", [](const ServicePlan& plan) { return number_text(plan.predicted.requests_per_s); });
  row("used", [](const ServicePlan& plan) { return percent_text(plan.predicted.utilisation); });
  return table.text();
}

nlohmann::ordered_json reasons_json(const std::vector<const Reason*>& reasons) {
  auto list = nlohmann::ordered_json::array();
  for (const Reason* reason : reasons) list.push_back({{"code", reason->code}, {"message", reason->message}});
  return list;
}

}  // namespace

bool all_feasible(const planner::Plan& plan) {
  return plan.denied.empty() && std::none_of(plan.services.begin(), plan.services.end(), [](const ServicePlan& service) {
           return service.feasible.status == planner::Truth::kFalse;
         });
}

std::string what_if_text(const WhatIfPlans& plans) {
  std::string text = "What if:\n";
  for (const planner::SnapshotEdit& edit : plans.edits) {
    text += fmt::format("  {} {}: {} -> {}\n", edit.of, edit.key, edit.from, edit.to);
  }
  for (std::size_t i = 0; i < plans.now.services.size(); ++i) {
    const ServicePlan& now = plans.now.services[i];
    const ServicePlan& then = plans.what_if.services[i];
    text += "\n" + service_text(now, then);
    const auto gone = only_in(now, then), came = only_in(then, now);
    const planner::Denied* denied_now = denial_of(plans.now, now.id);
    const planner::Denied* denied_then = denial_of(plans.what_if, now.id);
    if (gone.empty() && came.empty() && denied_now == nullptr && denied_then == nullptr) {
      text += "  The reasons are the same.\n";
      continue;
    }
    text += "  Reasons that differ (- now, + what if):\n";
    for (const Reason* reason : gone) text += wrapped(fmt::format("- {}: {}", reason->code, reason->message), 2);
    if (denied_now != nullptr) text += wrapped("- " + denied_text(*denied_now), 2);
    for (const Reason* reason : came) text += wrapped(fmt::format("+ {}: {}", reason->code, reason->message), 2);
    if (denied_then != nullptr) text += wrapped("+ " + denied_text(*denied_then), 2);
  }
  return text;
}

nlohmann::ordered_json what_if_json(const WhatIfPlans& plans) {
  using Json = nlohmann::ordered_json;
  Json edits = Json::array(), reasons = Json::array();
  for (const planner::SnapshotEdit& edit : plans.edits) {
    edits.push_back({{"of", edit.of}, {"key", edit.key}, {"from", edit.from}, {"to", edit.to}});
  }
  for (std::size_t i = 0; i < plans.now.services.size(); ++i) {
    const ServicePlan& now = plans.now.services[i];
    const ServicePlan& then = plans.what_if.services[i];
    reasons.push_back({{"service", title(now.id)},
                       {"onlyNow", reasons_json(only_in(now, then))},
                       {"onlyWhatIf", reasons_json(only_in(then, now))}});
  }
  return {{"edits", std::move(edits)},
          {"now", Json::parse(planner::to_json(plans.now))},
          {"whatIf", Json::parse(planner::to_json(plans.what_if))},
          {"reasons", std::move(reasons)}};
}

}  // namespace windlass::cli
