// See infeasible.h.
#include "planner/policy/infeasible.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

// Names a class that the spec does not allow and that would meet the objective; empty if none.
std::string others_that_would_do(const ReplicatedInput& asked, const Snapshot& snapshot) {
  ReplicatedInput input = asked;
  input.accelerators.clear();
  for (const AcceleratorState& state : snapshot.accelerators) {
    input.accelerators.push_back(AcceleratorOption{state.spec, state.spec.gpus_per_node, state.spec.gpus_per_node});
  }
  const ReplicatedResult result = place_replicated(input);
  if (result.candidates.empty()) return {};
  const Candidate& best = result.candidates.front();
  return fmt::format(
      "; {} would meet it, with {:.4g} ms to the first token and {:.4g} ms per token, if spec.accelerators allowed it",
      text_of(best.config.spec), best.config.times.ttft_s * 1e3, best.config.times.tpot_s * 1e3);
}

// Which objectives the best candidate misses (TtftTooTight or TpotTooTight), and the values that could be met.
void explain_too_tight(const ReplicatedResult& result, const Service& service, Hint& feasible,
                       std::map<std::string, std::string>& inputs) {
  const bool tpot = result.smallest_tpot_s > service.slo.tpot_s;
  const bool ttft = result.smallest_ttft_s > service.slo.ttft_s;
  std::vector<std::string> parts;
  if (ttft) {
    parts.push_back(fmt::format("timeToFirstToken is {:.4g} ms, but the fastest worker takes {:.4g} ms ({})",
                                service.slo.ttft_s * 1e3, std::ceil(result.smallest_ttft_s * 1e4) / 10,
                                result.smallest_ttft_on));
    inputs["smallestTtftS"] = figure(result.smallest_ttft_s);
  }
  if (tpot) {
    parts.push_back(fmt::format("timePerOutputToken is {:.4g} ms, but the fastest worker takes {:.4g} ms ({})",
                                service.slo.tpot_s * 1e3, std::ceil(result.smallest_tpot_s * 1e4) / 10,
                                result.smallest_tpot_on));
    inputs["smallestTpotS"] = figure(result.smallest_tpot_s);
  }
  if (parts.empty()) {
    parts.emplace_back("no single configuration meets both timeToFirstToken and timePerOutputToken");
  }
  feasible.reason = ttft && !tpot ? "TtftTooTight" : "TpotTooTight";
  feasible.message = fmt::format(
      "the allowed accelerators cannot meet the objective: {}; loosen it, assume shorter requests, or allow faster or more "
      "accelerators",
      fmt::join(parts, "; "));
}

}  // namespace

std::optional<Candidate> closest_of(const ReplicatedResult& result, const ReplicatedInput& input,
                                    const std::optional<WorkerSpec>& running) {
  std::optional<Candidate> closest;
  double least = std::numeric_limits<double>::infinity();
  for (const Rejected& rejected : result.rejected) {
    if (rejected.code != RejectCode::kTpot && rejected.code != RejectCode::kTtft) continue;
    const bool runs = running && *running == rejected.spec;
    const bool measured = find_estimate(input.estimates, rejected.spec.accelerator, rejected.spec.split()) != nullptr;
    const double times =
        std::max(rejected.smallest_tpot_s / input.objective.tpot_s, rejected.smallest_ttft_s / input.objective.ttft_s);
    if (!measured && times > kSheetMayBeOff) continue;
    const auto option = std::find_if(input.accelerators.begin(), input.accelerators.end(),
                                     [&](const AcceleratorOption& o) { return o.spec.name == rejected.spec.accelerator; });
    if (!runs && option->available_gpus < rejected.spec.gpus()) continue;
    const double rank = !runs ? times : measured ? times / kKeptSlack : 0;
    if (rank >= least) continue;
    least = rank;
    const LinearModel model(
        believed_coefficients(input.shape, option->spec, rejected.spec.split(), input.engine, input.estimates));
    closest.emplace();
    closest->config =
        WorkerConfig{rejected.spec, 1, BatchLimit::kTpot, 0, model.kv_capacity_tokens(), worker_times(model, 1, input.lengths)};
    closest->has_room = true;
  }
  return closest;
}

void explain_infeasible(const ReplicatedResult& result, const ReplicatedInput& asked, const ConfigurationInput& given,
                        ConfigurationChoice& choice) {
  const Service& service = *given.service;
  std::set<RejectCode> codes;
  for (const Rejected& rejected : result.rejected) codes.insert(rejected.code);
  choice.feasible.status = Truth::kFalse;
  std::map<std::string, std::string> inputs;
  if (codes.contains(RejectCode::kTpot) || codes.contains(RejectCode::kTtft)) {
    explain_too_tight(result, service, choice.feasible, inputs);
  } else if (!result.rejected.empty()) {
    const Rejected& closest = result.rejected.back();
    choice.feasible.reason = to_string(closest.code);
    choice.feasible.message = fmt::format(
        "{}; allow an accelerator with more memory, allow more GPUs per worker, or lower maxContextTokens", closest.message);
  } else {
    choice.feasible.reason = "NoAccelerator";
    choice.feasible.message = "no allowed accelerator has enough GPUs for a worker";
  }
  choice.feasible.message += others_that_would_do(asked, *given.snapshot);
  choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, std::move(inputs)});
  for (const Rejected& rejected : result.rejected) {
    choice.reasons.push_back(
        Reason{to_string(rejected.code),
               rejected.message,
               {{"accelerator", rejected.spec.accelerator}, {"gpusPerWorker", std::to_string(rejected.spec.gpus())}}});
  }
}

}  // namespace windlass::planner
