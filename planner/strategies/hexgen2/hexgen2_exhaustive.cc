// See hexgen2_exhaustive.h.
#include "planner/strategies/hexgen2/hexgen2_exhaustive.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace windlass::hetero {
namespace {

class Enumeration {
 public:
  Enumeration(StrategyTable& table, int groups, const StopCheck& stop) : table_(table), groups_(groups), stop_(stop) {
    for (const ClusterNode& node : table.cluster().nodes) {
      left_.push_back(node.gpus);
      gpus_left_ += node.gpus;
    }
  }

  bool run() {
    next_group();
    return !stopped_;
  }

  [[nodiscard]] Exhausted& best() { return best_; }

 private:
  // The next group includes a GPU of the first node that still has some. Among groups that start with the same node, larger
  // vectors come first, so each partition occurs once.
  void next_group() {
    if (stopped_ || stop_requested(stop_)) {
      stopped_ = true;
      return;
    }
    if (static_cast<int>(chosen_.size()) == groups_) {
      if (gpus_left_ == 0) phases();
      return;
    }
    const int others = groups_ - static_cast<int>(chosen_.size()) - 1;
    if (gpus_left_ <= others) return;
    const auto first =
        static_cast<std::size_t>(std::find_if(left_.begin(), left_.end(), [](int gpus) { return gpus > 0; }) - left_.begin());
    std::vector<int> take(left_.size(), 0);
    choose(first, first, take, gpus_left_ - others);
  }

  void choose(std::size_t first, std::size_t node, std::vector<int>& take, int room) {
    if (node == left_.size()) {
      if (!chosen_.empty() && first_of_.back() == first && take > chosen_.back()) return;
      int taken = 0;
      for (std::size_t i = 0; i < take.size(); ++i) left_[i] -= take[i], taken += take[i];
      gpus_left_ -= taken;
      chosen_.push_back(take);
      first_of_.push_back(first);
      next_group();
      chosen_.pop_back();
      first_of_.pop_back();
      gpus_left_ += taken;
      for (std::size_t i = 0; i < take.size(); ++i) left_[i] += take[i];
      return;
    }
    // The last group takes everything left.
    const bool last = static_cast<int>(chosen_.size()) == groups_ - 1;
    const int least = last ? left_[node] : (node == first ? 1 : 0);
    for (int gpus = least; gpus <= std::min(left_[node], room); ++gpus) {
      take[node] = gpus;
      choose(first, node + 1, take, room - gpus);
    }
    take[node] = 0;
  }

  void phases() {
    std::vector<const GroupEntry*> entries;
    std::vector<Composition> compositions;
    for (const std::vector<int>& take : chosen_) {
      Composition composition;
      for (std::size_t node = 0; node < take.size(); ++node) {
        if (take[node] > 0) composition.push_back({static_cast<int>(node), take[node]});
      }
      entries.push_back(&table_.of(composition));
      compositions.push_back(std::move(composition));
    }
    for (std::uint32_t mask = 0; mask < (1U << groups_); ++mask) {
      std::int64_t prefill = 0, decode = 0;
      bool repeated = false;
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const bool is_prefill = (mask >> i & 1U) != 0;
        // Among equal groups, prefill ones come first.
        repeated = repeated || (i > 0 && is_prefill && (mask >> (i - 1) & 1U) == 0 && chosen_[i] == chosen_[i - 1]);
        (is_prefill ? prefill : decode) += flow_units(is_prefill ? entries[i]->strategies->prefill.capacity_requests_per_s
                                                                 : entries[i]->strategies->decode.capacity_requests_per_s);
      }
      if (repeated) continue;
      ++best_.placements;
      if (std::min(prefill, decode) <= best_.flow) continue;
      Placement placement;
      for (std::size_t i = 0; i < entries.size(); ++i) {
        placement.push_back({compositions[i], (mask >> i & 1U) != 0, entries[i], 0});
      }
      const std::int64_t value = second_phase(table_, placement, flow_);
      if (value > best_.flow) {
        best_.flow = value;
        best_.groups = std::move(placement);
      }
    }
  }

  StrategyTable& table_;
  int groups_;
  const StopCheck& stop_;
  std::vector<int> left_;
  int gpus_left_ = 0;
  std::vector<std::vector<int>> chosen_;
  std::vector<std::size_t> first_of_;
  BipartiteFlow flow_;
  Exhausted best_;
  bool stopped_ = false;
};

}  // namespace

Result<Exhausted> exhaustive_placement(StrategyTable& table, int groups, const StopCheck& stop) {
  const int gpus = table.cluster().gpus();
  if (groups < 2 || groups > gpus || groups > 20) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("groups: must be from 2 to {} (got {})", std::min(gpus, 20), groups)};
  }
  Enumeration enumeration(table, groups, stop);
  if (!enumeration.run()) return Error{ErrorCode::kCancelled, "stopped before every placement was tried"};
  return std::move(enumeration.best());
}

}  // namespace windlass::hetero
