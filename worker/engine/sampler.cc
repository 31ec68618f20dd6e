// Argmax, or inversion over the (perhaps truncated) softmax.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "worker/engine/logit_row.h"

namespace windlass::worker {
namespace {

bool is_finite(float value) { return value - value == 0; }

// The id of the largest finite logit, the lowest among equals; -1 where none is finite.
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

// The `most` likeliest tokens, of equals the first ones, in any order, with their logits as weights.
void Sampler::choose_likeliest(std::span<const float> logits, std::size_t most) {
  // Of so many blocks each has one that is at least this.
  float least = -std::numeric_limits<float>::infinity();
  if (most < maxima_.size()) {
    highest_maxima_ = maxima_;
    const auto last = highest_maxima_.begin() + static_cast<std::ptrdiff_t>(most) - 1;
    std::nth_element(highest_maxima_.begin(), last, highest_maxima_.end(), std::greater<>());
    least = *last;
  }
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (!(maxima_[block] >= least)) continue;
    for (std::size_t id = block * kLogitBlock; id < std::min((block + 1) * kLogitBlock, logits.size()); ++id) {
      if (logits[id] >= least && is_finite(logits[id])) {
        candidates_.push_back({static_cast<double>(logits[id]), static_cast<std::int32_t>(id)});
      }
    }
  }
  if (candidates_.size() <= most) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(most), candidates_.end(), likelier);
  candidates_.resize(most);
}

// The `most` likeliest with what they weigh, but for those that min-p leaves out. Returns the sum.
double Sampler::weigh_likeliest(std::span<const float> logits, const Weighing& how, std::size_t most) {
  choose_likeliest(logits, most);
  chosen_.clear();
  for (const Candidate& candidate : candidates_) chosen_.push_back(logits[static_cast<std::size_t>(candidate.id)]);
  weights_.resize(chosen_.size());
  const double total = weigh(chosen_, how.highest, how.steepness, how.least, weights_.data());
  for (std::size_t i = 0; i < candidates_.size(); ++i) candidates_[i].weight = static_cast<double>(weights_[i]);
  std::erase_if(candidates_, [](const Candidate& candidate) { return candidate.weight == 0; });
  return total;
}

// All that weigh anything, into weights_. Returns the sum.
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

// Those that are enough for top-p, of all that are in weights_.
void Sampler::choose_heavy(const Weighing& how, double total) {
  // All that weigh less than this weigh less than 1 - top_p together: the others are enough.
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

std::int32_t Sampler::draw(std::span<const float> logits, std::int32_t best) {
  const Weighing how{logits[static_cast<std::size_t>(best)], static_cast<float>(std::min(1 / params_.temperature, 1e30)),
                     static_cast<float>(params_.min_p)};
  const auto most = static_cast<std::size_t>(params_.top_k);
  double total = 0;
  if (params_.top_k > 0 && most < logits.size()) {
    total = weigh_likeliest(logits, how, most);
  } else {
    total = weigh_all(logits, how);
    if (params_.top_p >= 1) return draw_of_all(total);
    choose_heavy(how, total);
  }
  // A heap gives up the likeliest one by one: few of a large vocabulary are kept, and the others need no order.
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
  return first->id;  // rounding used up the last sliver
}

// The block by the sums, then the token within it; where rounding has used up the last sliver the last of both that weighs
// anything.
std::int32_t Sampler::draw_of_all(double total) {
  double left = rng_.uniform() * total;
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
  find_maxima(logits, maxima_);  // of the model's own, whatever was added to them
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
  if (best < 0) return Error{ErrorCode::kInternal, "the model gave no finite logit; its weights are damaged"};
  Sampled sampled;
  sampled.id = params_.temperature <= 0 ? best : draw(weighed, best);
  if (params_.logprobs) tell(logits, sampled);
  remember(sampled.id);
  return sampled;
}

void Sampler::remember(std::int32_t token) {
  if (params_.repetition_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0) ++seen_[token];
}

void Sampler::adopt(std::int32_t token) {
  if (params_.temperature > 0) static_cast<void>(rng_.uniform());  // a draw takes one
  remember(token);
}

}  // namespace windlass::worker
