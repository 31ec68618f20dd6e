// The "Demand" pass: decides which signals of each service can be trusted. See passes.h.
#include <cmath>

#include <fmt/format.h>

#include "planner/policy/asked_workload.h"
#include "planner/policy/passes/passes.h"

namespace windlass::planner {
namespace {

// Requests that the gateways' policy moved because predicted lengths were wrong.
void explain_rebalancing(Draft& draft, double now_s) {
  const std::optional<Reading>& rebalanced = draft.service->demand.rebalanced;
  if (!is_usable(rebalanced, now_s) || !(rebalanced->value >= 0.5)) return;
  const double count = std::round(rebalanced->value);
  draft.plan.reasons.push_back(
      Reason{"Rebalanced",
             fmt::format("answers were longer or shorter than predicted; to even that out, {:.0f} request{} of the last {:.0f} "
                         "min went to another worker than the fullest (Aladdin's re-balancing)",
                         count, count == 1 ? "" : "s", Demand::kRebalancedS / 60),
             {{"requests", figure(count)}}});
}

void explain_shift(Draft& draft, double now_s) {
  const std::optional<WorkloadShift>& shift = draft.memory.shift;
  if (!shift) return;
  draft.plan.reasons.push_back(Reason{"WorkloadShifted",
                                      fmt::format("{}; the strategies were asked again", text_of(*shift)),
                                      {{"secondsAgo", figure(now_s - shift->at_s)},
                                       {"inputTokensFrom", figure(shift->from.input_tokens)},
                                       {"inputTokensTo", figure(shift->to.input_tokens)},
                                       {"outputTokensFrom", figure(shift->from.output_tokens)},
                                       {"outputTokensTo", figure(shift->to.output_tokens)},
                                       {"requestsPerSFrom", figure(shift->from.requests_per_s)},
                                       {"requestsPerSTo", figure(shift->to.requests_per_s)}}});
}

}  // namespace

void believe_demand(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  for (Draft& draft : fleet.services) {
    draft.memory = advance_memory(*draft.service, now_s);
    draft.view = view_demand(*draft.service, draft.memory, now_s);
    follow_workload(draft.memory, *draft.service, draft.view, now_s);
    draft.plan.forecast = draft.view.forecast;
    explain_shift(draft, now_s);
    explain_rebalancing(draft, now_s);
  }
}

}  // namespace windlass::planner
