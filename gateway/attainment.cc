// The rule of attainment.h.
#include "gateway/attainment.h"

#include <algorithm>

namespace windlass::gateway {
namespace {

bool inside(double value_s, double limit_s) { return limit_s <= 0 || value_s <= limit_s; }

Verdict verdict(bool attained) { return attained ? Verdict::kAttained : Verdict::kMissed; }

Verdict judge_tokens(const RequestRecord& record, const Objective& objective) {
  if (!record.first_token_s.has_value()) return Verdict::kMissed;
  const auto tpot_s = time_per_output_token_s(record);
  return verdict(inside(*record.first_token_s - record.arrived_s, objective.ttft_s) &&
                 (!tpot_s.has_value() || inside(*tpot_s, objective.tpot_s)));
}

}  // namespace

std::optional<double> time_per_output_token_s(const RequestRecord& record) {
  if (!record.first_token_s.has_value() || !record.last_token_s.has_value() || record.generation_tokens < 2)
    return std::nullopt;
  return (*record.last_token_s - *record.first_token_s) / (record.generation_tokens - 1);
}

Verdict judge(const RequestRecord& record, const Objective& objective) {
  const double latency_s = record.finished_s - record.arrived_s;
  if (record.code == kClientGone) {
    if (objective.ttft_s <= 0 && !record.first_token_s.has_value()) return Verdict::kNotCounted;
    if (latency_s < objective.ttft_s) return Verdict::kNotCounted;
    return judge_tokens(record, objective);
  }
  if (record.code == 429 || record.code >= 500) return Verdict::kMissed;
  if (record.code >= 400) return Verdict::kNotCounted;
  if (record.streamed) {
    // A stream that ended well without a token (an empty completion) counts as answered when it ended.
    if (!record.first_token_s.has_value()) return verdict(inside(latency_s, objective.ttft_s));
    return judge_tokens(record, objective);
  }
  if (objective.ttft_s <= 0 || objective.tpot_s <= 0) return Verdict::kAttained;  // the whole has a limit only if both are set
  const int later_tokens = std::max(0, record.generation_tokens - 1);
  return verdict(latency_s <= objective.ttft_s + later_tokens * objective.tpot_s);
}

}  // namespace windlass::gateway
