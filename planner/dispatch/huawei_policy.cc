// Sends each request to the instance that keeps the largest workload smallest; see huawei_policy.h.
#include "planner/dispatch/huawei_policy.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace windlass::dispatch {

void HuaweiPolicy::set(Instance& instance, const ChainState& state) {
  instance.open = state.takes_requests();
  instance.capacity = state.capacity;
  instance.in_flight = state.in_flight;
  if (state.capacity > 0) instance.slots_s = 1 / (state.service_rate_per_s * state.capacity);
  instance.times = {};
  instance.kv_tokens = 0;
  instance.max_requests = std::max(1, state.capacity);
  if (state.packing == nullptr) return;
  instance.times = batch_times(*state.packing);
  instance.kv_tokens = state.packing->kv_capacity_tokens;
  instance.max_requests = std::max(1, std::min(state.packing->max_requests, state.capacity));
}

void HuaweiPolicy::reset(std::span<const ChainState> chains) {
  std::map<std::uint64_t, std::size_t> known;  // instance by key
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    if (instances_[i].told > 0) known.emplace(instances_[i].key, i);
  }
  const std::vector<Instance> old = std::exchange(instances_, {});
  constexpr auto kGone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> now_at(old.size(), kGone);
  for (const ChainState& chain : chains) {
    Instance instance;
    if (const auto found = known.find(chain.key); found != known.end()) {
      instance = old[found->second];
      now_at[found->second] = instances_.size();
      known.erase(found);
    }
    instance.key = chain.key;
    set(instance, chain);
    instances_.push_back(instance);
  }
  chains_ = chains.size();
  for (const auto& [key, i] : known) {
    now_at[i] = instances_.size();
    instances_.push_back(old[i]);
    instances_.back().open = false;
  }
  // If several chains have one key, only the first is found again; requests of the others no longer count.
  std::erase_if(placed_, [&](const auto& placed) { return now_at[placed.second.instance] == kGone; });
  for (auto& [id, placed] : placed_) placed.instance = now_at[placed.instance];
}

void HuaweiPolicy::update(std::size_t index, const ChainState& state) { set(instances_[index], state); }

int HuaweiPolicy::untold(const Instance& instance) const { return std::max(0, instance.in_flight - instance.told); }

double HuaweiPolicy::growth_of(double usage) const { return std::exp(std::min(kMaxExponent, rules_.theta * usage)); }

double HuaweiPolicy::usage_of(const Instance& instance) const {
  const double slots = std::max(1, instance.capacity);
  const double told = instance.kv_tokens > 0 ? instance.told_tokens / instance.kv_tokens : instance.told / slots;
  return told + untold(instance) / slots;
}

double HuaweiPolicy::load_of(const Instance& instance) const {
  const int count = untold(instance);
  if (count == 0) return instance.told_load;
  // The sum of T e^(theta j / capacity) over j = 0 .. count - 1; terms are equal once the exponent reaches its maximum.
  const double step = rules_.theta / std::max(1, instance.capacity);
  const double rising = step > 0 ? std::min<double>(count, std::ceil(kMaxExponent / step)) : 0;
  const double sum = (step > 0 ? std::expm1(step * rising) / std::expm1(step) : 0) +
                     (count - rising) * (step > 0 ? std::exp(kMaxExponent) : 1);
  return instance.told_load + untold_time_s(instance) * sum;
}

double HuaweiPolicy::time_of(const Instance& instance, int input_tokens, int output_tokens) const {
  if (rules_.memory_only) return 1;
  if (!instance.times.known()) return instance.slots_s;
  return request_workload_s(instance.times, instance.kv_tokens, instance.max_requests, input_tokens, output_tokens,
                            rules_.phase);
}

double HuaweiPolicy::workload(std::size_t index, int input_tokens, int output_tokens) const {
  const Instance& instance = instances_[index];
  return time_of(instance, input_tokens, output_tokens) * growth_of(usage_of(instance));
}

int HuaweiPolicy::input_of(const RequestLengths& request) const {
  if (request.input_tokens > 0) return request.input_tokens;
  if (history_.observed() == 0) return kUnknownInput;
  return std::max(1, static_cast<int>(std::lround(std::min(1e9, history_.mean_input_tokens()))));
}

int HuaweiPolicy::output_of(const RequestLengths& request, int input_tokens) {
  if (request.output_tokens > 0) return request.output_tokens;
  if (rules_.drawn_outputs) {
    if (!drawn_ || drawn_->first != request.id) {
      const double tokens = rules_.drawn_outputs->mean_tokens + rules_.drawn_outputs->deviation_tokens * rng_.normal();
      drawn_ = {request.id, static_cast<int>(std::lround(std::clamp(tokens, 1.0, 1e9)))};
    }
    return drawn_->second;
  }
  if (rules_.assumed_output_tokens > 0 && history_.observed() < OutputHistory::kEnough) {
    return std::max(1, static_cast<int>(std::lround(std::min(1e9, rules_.assumed_output_tokens))));
  }
  return history_.predict(input_tokens);
}

std::optional<std::size_t> HuaweiPolicy::choose_for(const RequestLengths& request, double /*now_s*/) {
  const int input = input_of(request), output = output_of(request, input);
  std::optional<std::size_t> best;
  std::pair<bool, double> least{true, 0};  // (too small for the request, resulting load)
  for (std::size_t i = 0; i < chains_; ++i) {
    const Instance& instance = instances_[i];
    if (!instance.open) continue;
    const bool too_small = instance.kv_tokens > 0 && instance.kv_tokens < static_cast<double>(input) + output;
    const std::pair<bool, double> here{too_small, load_of(instance) + workload(i, input, output)};
    if (best && !(here < least)) continue;
    best = i;
    least = here;
  }
  return best;
}

void HuaweiPolicy::placed(std::size_t chain, const RequestLengths& request) {
  Instance& instance = instances_[chain];
  const int input = input_of(request), output = output_of(request, input);
  // The caller may have taken the slot before reporting the request; do not count that slot in addition to the request itself.
  Instance before = instance;
  if (untold(before) > 0) --before.in_flight;
  const double added = time_of(before, input, output) * growth_of(usage_of(before));
  if (!placed_.emplace(request.id, Placed{chain, added, input, static_cast<double>(input) + output}).second) return;
  instance.told_load += added;
  instance.told_tokens += static_cast<double>(input) + output;
  ++instance.told;
}

void HuaweiPolicy::ended(std::uint64_t id, int output_tokens) {
  const auto at = placed_.find(id);
  if (at == placed_.end()) return;
  Instance& instance = instances_[at->second.instance];
  --instance.told;
  instance.told_load = std::max(0.0, instance.told_load - at->second.workload);
  instance.told_tokens = std::max(0.0, instance.told_tokens - at->second.tokens);
  if (instance.told == 0) instance.told_load = instance.told_tokens = 0;  // remove rounding errors
  if (output_tokens > 0) history_.observe(at->second.input_tokens, output_tokens);
  placed_.erase(at);
}

}  // namespace windlass::dispatch
