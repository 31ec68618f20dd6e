// Sampling: argmax, or inversion of the cumulative softmax, possibly truncated.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace windlass::worker {
namespace {

Error no_finite_logit() { return {ErrorCode::kInternal, "the model produced no finite logit; its weights are damaged"}; }

bool is_finite(float value) { return value - value == 0; }

// Returns the id of the largest finite logit, the lowest among equals; -1 if none is finite.
std::int32_t best_of(std::span<const float> logits, const std::vector<float>& maxima) {
  const auto highest = std::max_element(maxima.begin(), maxima.end());
  if (highest == maxima.end() || !is_finite(*highest)) return -1;
  const auto block = logits.begin() + (highest - maxima.begin()) * static_cast<std::ptrdiff_t>(kLogitBlock);
  return static_cast<std::int32_t>(std::find(block, logits.end(), *highest) - logits.begin());
}

}  // namespace

Sampler::Sampler(SamplingParams params, std::span<const std::int32_t> prompt)
    : params_(std::move(params)), rng_(params_.seed, "sampling") {
  if (params_.repetition_penalty == 1) return;
  for (const std::int32_t token : prompt) seen_.try_emplace(token);
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  if (seen_.empty() && params_.logit_bias.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  const auto holds = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < adjusted_.size(); };
  for (const auto& [id, bias] : params_.logit_bias) {
    if (holds(id)) adjusted_[static_cast<std::size_t>(id)] += bias;
  }
  for (const auto& [id, generated] : seen_) {
    if (!holds(id)) continue;
    double logit = adjusted_[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (generated > 0) {
      logit -= params_.frequency_penalty * static_cast<double>(generated) + params_.presence_penalty;
    }
    adjusted_[static_cast<std::size_t>(id)] = static_cast<float>(logit);
  }
  return adjusted_;
}

void Sampler::choose_likeliest(std::span<const float> logits, std::size_t most) {
  find_likeliest(logits, maxima_, most, highest_maxima_, candidates_);
}

// Collects the `most` likeliest tokens with their weights, without those that min-p drops. Returns the sum.
double Sampler::weigh_likeliest(std::span<const float> logits, const Weighing& how, std::size_t most) {
  choose_likeliest(logits, most);
  chosen_.clear();
  for (const Candidate& candidate : candidates_) chosen_.push_back(logits[static_cast<std::size_t>(candidate.id)]);
  weights_.resize(chosen_.size());
  weigh(chosen_, how.highest, how.steepness, how.least, weights_.data());
  double total = 0;  // in double precision, so that it does not depend on the order
  for (std::size_t i = 0; i < candidates_.size(); ++i) total += candidates_[i].weight = static_cast<double>(weights_[i]);
  std::erase_if(candidates_, [](const Candidate& candidate) { return candidate.weight == 0; });
  return total;
}

// Writes all weights to weights_. Returns the sum.
double Sampler::weigh_all(std::span<const float> logits, const Weighing& how) {
  weights_.resize(logits.size());
  block_sums_.clear();
  double total = 0;
  for (std::size_t first = 0; first < logits.size(); first += kLogitBlock) {
    const auto block = logits.subspan(first, std::min(kLogitBlock, logits.size() - first));
    block_sums_.push_back(weigh(block, how.highest, how.steepness, how.least, weights_.data() + first));
    total += block_sums_.back();
  }
  return total;
}

// Selects from weights_ the tokens that suffice for top-p.
void Sampler::choose_heavy(const Weighing& how, double total) {
  // All tokens below `least` together weigh less than 1 - top_p, so the others suffice.
  const double least = (1 - params_.top_p) * total / static_cast<double>(weights_.size());
  chosen_.resize(maxima_.size());
  weigh(maxima_, how.highest, how.steepness, how.least, chosen_.data());
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (static_cast<double>(chosen_[block]) < least) continue;
    for (std::size_t id = block * kLogitBlock; id < std::min((block + 1) * kLogitBlock, weights_.size()); ++id) {
      if (weights_[id] > 0 && weights_[id] >= least) candidates_.push_back({weights_[id], static_cast<std::int32_t>(id)});
    }
  }
}

Sampler::Weighing Sampler::weighing(float highest) const {
  return {highest, static_cast<float>(std::min(1 / params_.temperature, 1e30)), static_cast<float>(params_.min_p)};
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int32_t best) {
  const Weighing how = weighing(logits[static_cast<std::size_t>(best)]);
  const auto most = static_cast<std::size_t>(params_.top_k);
  double total = 0;
  if (params_.top_k > 0 && most < logits.size()) {
    total = weigh_likeliest(logits, how, most);
  } else {
    total = weigh_all(logits, how);
    if (params_.top_p >= 1) return draw_of_all(rng_.uniform() * total);
    choose_heavy(how, total);
  }
  // A heap yields the likeliest tokens one by one: few of a large vocabulary are kept, and the rest need no order.
  const auto less_likely = [&](const Candidate& a, const Candidate& b) {
    const float one = logits[static_cast<std::size_t>(a.id)], other = logits[static_cast<std::size_t>(b.id)];
    return one != other ? one < other : a.id > b.id;
  };
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  double kept = 0;
  auto first = candidates_.end();
  while (first != candidates_.begin() && (first == candidates_.end() || params_.top_p >= 1 || kept < params_.top_p * total)) {
    std::pop_heap(candidates_.begin(), first, less_likely);
    --first;
    kept += first->weight;
  }
  double left = rng_.uniform() * kept;
  for (auto candidate = candidates_.end(); candidate != first;) {
    left -= (--candidate)->weight;
    if (left < 0) return candidate->id;
  }
  return first->id;  // only rounding error is left
}

// Finds the block by its sum, then the token in it. If only rounding error is left, returns the last token with a positive
// weight.
std::int32_t Sampler::draw_of_all(double left) const {
  std::size_t block = 0;
  bool within = false;
  for (std::size_t each = 0; each < block_sums_.size(); ++each) {
    if (block_sums_[each] == 0) continue;
    block = each;
    within = left < block_sums_[each];
    if (within) break;
    left -= block_sums_[each];
  }
  if (!within) left = block_sums_[block];
  std::size_t drawn = 0;
  for (std::size_t id = block * kLogitBlock; id < std::min((block + 1) * kLogitBlock, weights_.size()); ++id) {
    if (weights_[id] == 0) continue;
    drawn = id;
    left -= static_cast<double>(weights_[id]);
    if (left < 0) break;
  }
  return static_cast<std::int32_t>(drawn);
}

void Sampler::tell(std::span<const float> logits, Sampled& sampled) {
  find_maxima(logits, maxima_);  // logprobs are the model's own, without penalties and bias
  const float highest = *std::max_element(maxima_.begin(), maxima_.end());
  const double log_total = static_cast<double>(highest) + std::log(weigh_all(logits, {highest, 1, 0}));
  sampled.logprob = logits[static_cast<std::size_t>(sampled.id)] - log_total;
  if (*params_.logprobs == 0) return;
  choose_likeliest(logits, static_cast<std::size_t>(*params_.logprobs));
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  for (const Candidate& candidate : candidates_) sampled.top.push_back({candidate.id, candidate.weight - log_total});
}

Result<Sampled> Sampler::sample(std::span<const float> logits) {
  const std::span<const float> weighed = adjusted(logits);
  find_maxima(weighed, maxima_);
  const std::int32_t best = best_of(weighed, maxima_);
  if (best < 0) return no_finite_logit();
  Sampled sampled;
  sampled.id = params_.temperature <= 0 ? best : draw(weighed, best);
  if (params_.logprobs) tell(logits, sampled);
  remember(sampled.id);
  return sampled;
}

RowNeed Sampler::need() const {
  if (!seen_.empty() || !params_.logit_bias.empty()) return {};
  RowNeed need{1, 1};
  if (params_.temperature > 0) {
    if (params_.top_k > kMaxLikeliest) return {};
    need = {params_.top_k > 0 ? static_cast<std::int32_t>(params_.top_k) : kMaxLikeliest, weighing(0).steepness};
  }
  const int told = params_.logprobs.value_or(0);
  if (told > kMaxLikeliest) return {};
  need.likeliest = std::max(need.likeliest, told);
  return need;
}

bool Sampler::row_may_follow() const { return params_.temperature > 0 && params_.top_k == 0; }

// Fills candidates_ with the summary's tokens and weights, likeliest first, without dropped and zero-weight ones. Returns the
// sum.
double Sampler::weigh_summary(const LogitSummary& summary, const Weighing& how) {
  const auto count = static_cast<std::size_t>(summary.count);
  const std::size_t most = params_.top_k > 0 ? std::min(count, static_cast<std::size_t>(params_.top_k)) : count;
  weights_.resize(most);
  weigh(std::span(summary.logits).first(most), how.highest, how.steepness, how.least, weights_.data());
  candidates_.clear();
  double total = 0;
  for (std::size_t i = 0; i < most && weights_[i] > 0; ++i) {
    candidates_.push_back({static_cast<double>(weights_[i]), summary.ids[i]});
    total += candidates_.back().weight;
  }
  return total;
}

// Total weight of all tokens that may be drawn, if the summary has it; `candidates_weigh` if no other token has weight.
std::optional<double> Sampler::total_of(const LogitSummary& summary, double candidates_weigh) const {
  const bool all = static_cast<std::size_t>(summary.count) > candidates_.size() || summary.count < need().likeliest;
  if (all || params_.top_k > 0) return candidates_weigh;
  if (params_.min_p > 0) return std::nullopt;  // the summary's sum includes tokens that min-p drops
  return std::max(candidates_weigh, static_cast<double>(summary.tempered));
}

// Draws a token that is not a candidate, at this fraction of their joint weight.
std::int32_t Sampler::draw_of_rest(std::span<const float> logits, const Weighing& how, double share) {
  static_cast<void>(weigh_all(logits, how));
  for (const Candidate& candidate : candidates_) weights_[static_cast<std::size_t>(candidate.id)] = 0;
  for (const Candidate& candidate : candidates_) {  // summed again: a difference might leave a remainder where nothing is left
    const std::size_t block = static_cast<std::size_t>(candidate.id) / kLogitBlock;
    const auto first = weights_.begin() + static_cast<std::ptrdiff_t>(block * kLogitBlock);
    const auto end = weights_.begin() + static_cast<std::ptrdiff_t>(std::min((block + 1) * kLogitBlock, weights_.size()));
    block_sums_[block] = std::accumulate(first, end, 0.0);
  }
  const double total = std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0);
  return total > 0 ? draw_of_all(share * total) : candidates_.back().id;
}

Result<Sampled> Sampler::sample(const LogitSummary& summary, const RowOf& row) {
  if (summary.count == 0) return no_finite_logit();
  const auto tell_of = [&](std::int32_t id, float logit) {
    Sampled sampled{id, 0, {}};
    if (params_.logprobs) {
      const double log_total = static_cast<double>(summary.highest) + std::log(static_cast<double>(summary.total));
      sampled.logprob = static_cast<double>(logit) - log_total;
      for (int i = 0; i < std::min(*params_.logprobs, summary.count); ++i)
        sampled.top.push_back({summary.ids[i], static_cast<double>(summary.logits[i]) - log_total});
    }
    remember(id);
    return sampled;
  };
  if (params_.temperature <= 0) return tell_of(summary.ids[0], summary.logits[0]);

  const Weighing how = weighing(summary.highest);
  const double candidates_weigh = weigh_summary(summary, how);
  const std::optional<double> total = total_of(summary, candidates_weigh);
  // Neither depends on the drawn token, so the distribution is that of the row.
  if (!total || (params_.top_p < 1 && candidates_weigh < params_.top_p * *total)) {
    WINDLASS_ASSIGN_OR_RETURN(const std::span<const float> logits, row());
    return sample(logits);
  }
  std::size_t end = params_.top_p < 1 ? 0 : candidates_.size();
  double kept = params_.top_p < 1 ? 0 : *total;
  while (params_.top_p < 1 && end < candidates_.size() && kept < params_.top_p * *total) kept += candidates_[end++].weight;
  double left = rng_.uniform() * kept;
  for (std::size_t i = 0; i < end; ++i) {
    if (left < candidates_[i].weight) return tell_of(candidates_[i].id, summary.logits[i]);
    left -= candidates_[i].weight;
  }
  const double rest = kept - candidates_weigh;
  if (params_.top_p < 1 || !(rest > 0))
    return tell_of(candidates_[end - 1].id, summary.logits[end - 1]);  // only rounding error is left
  WINDLASS_ASSIGN_OR_RETURN(const std::span<const float> logits, row());
  Sampled sampled;
  sampled.id = draw_of_rest(logits, how, std::min(left / rest, 1.0));
  if (params_.logprobs) tell(logits, sampled);
  remember(sampled.id);
  return sampled;
}

void Sampler::remember(std::int32_t token) {
  if (params_.repetition_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0) ++seen_[token];
}

void Sampler::adopt(std::int32_t token) {
  if (params_.temperature > 0) static_cast<void>(rng_.uniform());  // a draw uses one random number
  remember(token);
}

}  // namespace windlass::worker
