// Implements the steps of arbitration.h.
#include "planner/policy/arbitration.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <queue>
#include <tuple>

namespace windlass::planner {
namespace {

// Most evaluations of one claim's growth; a claim that wants more grows by several workers at a time.
constexpr int kMaxWeighed = 128;

class Arbiter {
 public:
  Arbiter(const std::vector<Claim>& claims, std::map<std::string, int> free_gpus)
      : claims_(claims), free_gpus_(std::move(free_gpus)), granted_(claims.size(), 0), order_(claims.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return claims_[a].priority > claims_[b].priority; });
  }

  std::vector<int> decide() {
    std::map<std::string, double> asked;
    for (const Claim& claim : claims_) asked[claim.accelerator] += static_cast<double>(claim.wanted) * claim.gpus_per_worker();
    for (std::size_t i : order_) {
      if (asked[claims_[i].accelerator] <= free_gpus_[claims_[i].accelerator]) raise(i, claims_[i].wanted);
    }
    for_equals([&](auto begin, auto end) {
      for (auto i = begin; i != end; ++i) raise(*i, std::min(claims_[*i].floor, claims_[*i].keep));
      for (auto i = begin; i != end; ++i) raise(*i, std::min(claims_[*i].floor, now_most(*i)));
    });
    for_equals([&](auto begin, auto end) {
      for (auto i = begin; i != end; ++i) raise(*i, claims_[*i].keep);
      grow(begin, end, [&](std::size_t i) { return now_most(i); });
    });
    for (std::size_t i : order_) raise(i, claims_[i].floor);
    for_equals([&](auto begin, auto end) { grow(begin, end, [&](std::size_t i) { return claims_[i].wanted; }); });
    return granted_;
  }

 private:
  // What a claim may get before the claims that yield.
  [[nodiscard]] int now_most(std::size_t i) const { return claims_[i].yields ? claims_[i].keep : claims_[i].wanted; }

  // Raises a claim's grant towards `to` as far as the GPUs allow; returns whether it grew.
  bool raise(std::size_t i, int to) {
    const Claim& claim = claims_[i];
    int& free = free_gpus_[claim.accelerator];
    const int affordable = claim.gpus_per_worker() > 0 ? std::max(0, free) / claim.gpus_per_worker() : 0;
    const int more = std::clamp(std::min(to, claim.wanted) - granted_[i], 0, affordable);
    granted_[i] += more;
    free -= more * claim.gpus_per_worker();
    return more > 0;
  }

  // Calls each(begin, end) for the claims of every priority, highest first.
  template <class Each>
  void for_equals(Each each) {
    for (auto begin = order_.begin(); begin != order_.end();) {
      const auto end =
          std::find_if(begin, order_.end(), [&](std::size_t i) { return claims_[i].priority != claims_[*begin].priority; });
      each(begin, end);
      begin = end;
    }
  }

  // Step size of claim `i`'s growth: one worker, unless that takes more than kMaxWeighed steps.
  [[nodiscard]] int stride(std::size_t i) const { return (claims_[i].wanted + kMaxWeighed - 1) / kMaxWeighed; }

  // Violations saved by this many more workers, per GPU.
  [[nodiscard]] double gain(std::size_t i, int more) const {
    const Claim& claim = claims_[i];
    const double saved = claim.loss ? (claim.loss(granted_[i]) - claim.loss(granted_[i] + more)) / more
                                    : static_cast<double>(claim.wanted - granted_[i]);
    return saved / std::max(1, claim.gpus_per_worker());
  }

  template <class Iterator, class Most>
  void grow(Iterator begin, Iterator end, Most most) {
    // Largest gain first, then the claim listed first; hence the complement of the position.
    std::priority_queue<std::tuple<double, std::size_t>> heap;
    const auto more_of = [&](std::size_t i) { return std::min(stride(i), most(i) - granted_[i]); };
    const auto offer = [&](std::size_t i) {
      if (const int more = more_of(i); more > 0) heap.emplace(gain(i, more), claims_.size() - i);
    };
    for (auto i = begin; i != end; ++i) offer(*i);
    while (!heap.empty()) {
      const std::size_t i = claims_.size() - std::get<1>(heap.top());
      heap.pop();
      if (raise(i, granted_[i] + more_of(i))) offer(i);
    }
  }

  const std::vector<Claim>& claims_;
  std::map<std::string, int> free_gpus_;
  std::vector<int> granted_;
  std::vector<std::size_t> order_;  // by priority
};

}  // namespace

std::vector<int> arbitrate(const std::vector<Claim>& claims, std::map<std::string, int> gpus) {
  return Arbiter(claims, std::move(gpus)).decide();
}

std::vector<int> startable(const std::vector<Claim>& claims, std::vector<int> granted, std::map<std::string, int> free_gpus) {
  std::vector<Claim> growth = claims;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const int kept = std::min(claims[i].keep, granted[i]);
    free_gpus[claims[i].accelerator] -= kept * claims[i].gpus_per_worker();
    growth[i].floor = std::max(0, std::min(claims[i].floor, granted[i]) - kept);
    growth[i].keep = 0;
    growth[i].wanted = granted[i] - kept;
    if (claims[i].loss) growth[i].loss = [&loss = claims[i].loss, kept](int workers) { return loss(kept + workers); };
    granted[i] = kept;
  }
  const std::vector<int> more = Arbiter(growth, std::move(free_gpus)).decide();
  for (std::size_t i = 0; i < claims.size(); ++i) granted[i] += more[i];
  return granted;
}

}  // namespace windlass::planner
