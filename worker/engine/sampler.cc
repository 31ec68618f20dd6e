// Argmax, or inversion over the (perhaps truncated) softmax.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace windlass::worker {
namespace {

constexpr std::size_t kLanes = 8;    // running results side by side, for the compiler to vectorise
constexpr std::size_t kBlock = 256;  // weights that have one sum

// std::isfinite() would keep loops from being vectorised.
bool is_finite(float value) { return value - value == 0; }

// The id of the largest finite logit, the lowest among equals; -1 where none is finite.
std::int32_t best_of(std::span<const float> logits) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), kNone);
  std::size_t id = 0;
  for (; id + kLanes <= logits.size(); id += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = is_finite(logits[id + lane]) ? logits[id + lane] : kNone;
      lanes[lane] = lanes[lane] < logit ? logit : lanes[lane];
    }
  }
  float best = *std::max_element(std::begin(lanes), std::end(lanes));
  for (; id < logits.size(); ++id) best = is_finite(logits[id]) ? std::max(best, logits[id]) : best;
  if (best == kNone) return -1;
  return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

// e^x to a few units in the last place, for x from -87, below which it does not go, to 0: 2^k e^r with |r| at most half of
// ln 2.
float exp_of(float x) {
  x = x > -87.0F ? x : -87.0F;
  const int k = static_cast<int>(x * 1.44269504F - 0.5F);
  const auto whole = static_cast<float>(k);
  const float r = x - whole * 0.693359375F + whole * 2.12194440e-4F;  // ln 2 in two parts, the first one exact
  const float p = 1 + r * (1 + r * (1.0F / 2 + r * (1.0F / 6 + r * (1.0F / 24 + r * (1.0F / 120 + r * (1.0F / 720))))));
  return p * std::bit_cast<float>((k + 127) << 23);
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

// What each token weighs beside the likeliest, which weighs 1; nothing where min-p leaves it out. Returns the sum.
double Sampler::weigh(std::span<const float> logits, float highest) {
  const auto steepness = static_cast<float>(std::min(1 / params_.temperature, 1e30));
  const auto least = static_cast<float>(params_.min_p);
  weights_.resize(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const bool finite = is_finite(logits[id]);
    const float weight = exp_of(finite ? (logits[id] - highest) * steepness : 0);
    weights_[id] = finite && weight >= least ? weight : 0;
  }
  block_sums_.clear();
  double total = 0;
  for (std::size_t first = 0; first < weights_.size(); first += kBlock) {
    double sum = 0;
    for (std::size_t id = first; id < std::min(first + kBlock, weights_.size()); ++id) sum += static_cast<double>(weights_[id]);
    block_sums_.push_back(sum);
    total += sum;
  }
  return total;
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int32_t best) {
  double total = weigh(logits, logits[static_cast<std::size_t>(best)]);
  const auto most = static_cast<std::size_t>(params_.top_k);
  const bool cuts_number = params_.top_k > 0 && most < logits.size();
  if (!cuts_number && params_.top_p >= 1) return draw_of_all(total);

  const auto likelier = [&](const Candidate& a, const Candidate& b) {
    const float one = logits[static_cast<std::size_t>(a.id)], other = logits[static_cast<std::size_t>(b.id)];
    return one != other ? one > other : a.id < b.id;
  };
  candidates_.clear();
  if (cuts_number) {
    // The likeliest so far as a heap with the least likely on top: most tokens are compared with that one alone.
    std::optional<float> least;
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      if (weights_[id] == 0 || (least && logits[id] <= *least)) continue;  // of equals the first ones stay
      if (candidates_.size() == most) {
        std::pop_heap(candidates_.begin(), candidates_.end(), likelier);
        candidates_.pop_back();
      }
      candidates_.push_back({weights_[id], static_cast<std::int32_t>(id)});
      std::push_heap(candidates_.begin(), candidates_.end(), likelier);
      if (candidates_.size() == most) least = logits[static_cast<std::size_t>(candidates_.front().id)];
    }
    total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.weight;
  } else {
    // All that weigh less than this weigh less than 1 - top_p together: the others are enough.
    const double least = (1 - params_.top_p) * total / static_cast<double>(weights_.size());
    for (std::size_t id = 0; id < weights_.size(); ++id) {
      if (weights_[id] > 0 && weights_[id] >= least) candidates_.push_back({weights_[id], static_cast<std::int32_t>(id)});
    }
  }
  // A heap gives up the likeliest one by one: few of a large vocabulary are kept, and the others need no order.
  const auto less_likely = [&](const Candidate& a, const Candidate& b) { return likelier(b, a); };
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
  for (std::size_t id = block * kBlock; id < std::min((block + 1) * kBlock, weights_.size()); ++id) {
    if (weights_[id] == 0) continue;
    drawn = id;
    left -= static_cast<double>(weights_[id]);
    if (left < 0) break;
  }
  return static_cast<std::int32_t>(drawn);
}

void Sampler::tell(std::span<const float> logits, Sampled& sampled) {
  const double highest = logits[static_cast<std::size_t>(best_of(logits))];
  double total = 0;
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) continue;
    total += std::exp(logits[id] - highest);
    candidates_.push_back({logits[id], static_cast<std::int32_t>(id)});
  }
  const double log_total = highest + std::log(total);
  sampled.logprob = logits[static_cast<std::size_t>(sampled.id)] - log_total;
  const std::size_t count = std::min(static_cast<std::size_t>(*params_.logprobs), candidates_.size());
  std::partial_sort(
      candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.weight != b.weight ? a.weight > b.weight : a.id < b.id; });
  for (std::size_t i = 0; i < count; ++i) sampled.top.push_back({candidates_[i].id, candidates_[i].weight - log_total});
}

Result<Sampled> Sampler::sample(std::span<const float> logits) {
  const std::span<const float> weighed = adjusted(logits);
  const std::int32_t best = best_of(weighed);
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
