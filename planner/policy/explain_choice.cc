// See explain_choice.h.
#include "planner/policy/explain_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/linear_model.h"
#include "planner/sizing/tpot_tail.h"

namespace windlass::planner {

void explain_belief(const Service& service, const AcceleratorSpec& spec, const Configuration& chosen, const Lengths& lengths,
                    ConfigurationChoice& choice) {
  const Pool& pool = chosen.pool;
  const WorkerEstimate* known = find_estimate(service.estimates, pool.spec.accelerator, pool.spec.split());
  if (known == nullptr) return;
  const IterationEstimate& estimate = known->estimate;
  const LinearCoefficients sheet = linear_coefficients(*service.shape, spec, pool.spec.split(), service.engine);
  const LinearModel of_sheet(sheet), believed(estimated(sheet, estimate));
  const double batch = std::max(1.0, std::round(estimate.seen_batch > 0 ? estimate.seen_batch : pool.each.slots));
  const double context = lengths.input_tokens + kContextGrowth * lengths.output_tokens;
  const double decode_s = believed.decode_s(batch, context), prefill_s = believed.prefill_s(lengths.input_tokens);
  const double sheet_decode_s = of_sheet.decode_s(batch, context), sheet_prefill_s = of_sheet.prefill_s(lengths.input_tokens);
  std::string from = estimate.decode_count > 0 ? fmt::format("measured, {:.0f} iterations", estimate.decode_count)
                     : known->from_profile     ? "a PerformanceProfile"
                                               : "measured";
  if (known->split() != pool.spec.split()) from += fmt::format(", on {} x {}", known->gpus_per_worker, pool.spec.accelerator);
  choice.reasons.push_back(Reason{"MeasuredTimes",
                                  fmt::format("one decode step takes {:.3g} ms at batch {:.0f} ({}), {:.3g} ms by the data "
                                              "sheet; a prompt of {:.0f} tokens takes {:.3g} ms, {:.3g} ms by the data sheet",
                                              decode_s * 1e3, batch, from, sheet_decode_s * 1e3, lengths.input_tokens,
                                              prefill_s * 1e3, sheet_prefill_s * 1e3),
                                  {{"samples", std::to_string(estimate.samples)},
                                   {"batch", figure(batch)},
                                   {"decodeS", figure(decode_s)},
                                   {"sheetDecodeS", figure(sheet_decode_s)},
                                   {"prefillS", figure(prefill_s)},
                                   {"sheetPrefillS", figure(sheet_prefill_s)},
                                   {"noise", figure(std::sqrt(estimate.noise_variance))}}});
  if (const auto advice = advise_on_sheet(*service.shape, spec, service.engine, *known); advice && advice->off) {
    choice.reasons.push_back(Reason{"DataSheetOff",
                                    fmt::format("AcceleratorClass {}: {}", spec.name, advice->to_text(*service.shape)),
                                    {{"decodeTimes", figure(advice->decode_times)},
                                     {"prefillTimes", figure(advice->prefill_times)},
                                     {"memoryBandwidthBytesPerS", figure(advice->memory_bandwidth_bytes_per_s)},
                                     {"peakFlopsPerS", figure(advice->peak_flops_per_s)}}});
  }
}

void weigh(const ReplicatedResult& result, const std::optional<Candidate>& winner, const ReplicatedInput& input,
           ConfigurationChoice& choice) {
  const auto price_of = [&](const std::string& accelerator) {
    for (const AcceleratorOption& option : input.accelerators) {
      if (option.spec.name == accelerator) return option.spec.price_per_hour;
    }
    return 0.0;
  };
  const auto tail_rate_of = [&](const WorkerConfig& config) {
    for (const AcceleratorOption& option : input.accelerators) {
      if (option.spec.name != config.spec.accelerator) continue;
      const LinearModel model(
          believed_coefficients(input.shape, option.spec, config.spec.split(), input.engine, input.estimates));
      return rate_within_tpot(model, input.objective, input.lengths, config.batch);
    }
    return 0.0;
  };
  const auto add = [&](const Candidate& candidate, bool chosen) {
    const WorkerConfig& config = candidate.config;
    Weighed weighed;
    weighed.configuration.pool.spec = config.spec;
    weighed.configuration.pool.each.slots = config.batch;
    weighed.configuration.times = config.times;
    weighed.configuration.price_per_hour = config.spec.gpus() * price_of(config.spec.accelerator);
    weighed.configuration.rate_within_tpot_per_s = tail_rate_of(config);
    weighed.outbid = !chosen && candidate.has_room;
    if (!chosen && !candidate.has_room) weighed.rejected = fmt::format("{}: too few free GPUs", text_of(config.spec));
    choice.weighed.push_back(std::move(weighed));
  };
  bool listed = false;
  for (const Candidate& candidate : result.candidates) {
    const bool chosen = winner && candidate.config.spec == winner->config.spec;
    listed = listed || chosen;
    add(candidate, chosen);
  }
  if (winner && !listed) add(*winner, true);
  for (const Rejected& rejected : result.rejected) {
    Weighed weighed;
    weighed.configuration.pool.spec = rejected.spec;
    weighed.configuration.times.tpot_s = rejected.smallest_tpot_s;
    weighed.configuration.times.ttft_s = rejected.smallest_ttft_s;
    weighed.rejected = rejected.message;
    choice.weighed.push_back(std::move(weighed));
  }
}

void explain_losers(const ReplicatedResult& result, const Candidate& winner, ConfigurationChoice& choice) {
  for (const Candidate& loser : result.candidates) {
    if (loser.config.spec.accelerator == winner.config.spec.accelerator) continue;
    const char* code = loser.has_room ? "NotChosen" : "NoRoom";
    std::string message = loser.has_room ? fmt::format("{} workers of {} would cost {:.4g} per hour, against {:.4g} on {}",
                                                       loser.workers, text_of(loser.config.spec), loser.cost_per_hour,
                                                       winner.cost_per_hour, winner.config.spec.accelerator)
                                         : fmt::format("too few free GPUs for one worker of {}", text_of(loser.config.spec));
    choice.reasons.push_back(
        Reason{code,
               std::move(message),
               {{"accelerator", loser.config.spec.accelerator}, {"costPerHour", figure(loser.cost_per_hour)}}});
  }
  // For an accelerator with no feasible configuration, the one with the most GPUs came closest.
  std::map<std::string, const Rejected*> last;
  for (const Rejected& rejected : result.rejected) last[rejected.spec.accelerator] = &rejected;
  for (const auto& [accelerator, rejected] : last) {
    const bool has_candidate = std::any_of(result.candidates.begin(), result.candidates.end(),
                                           [&](const Candidate& c) { return c.config.spec.accelerator == accelerator; });
    if (!has_candidate) {
      choice.reasons.push_back(Reason{to_string(rejected->code), rejected->message, {{"accelerator", accelerator}}});
    }
  }
}

}  // namespace windlass::planner
