// Tracks servers between two placements; see transition_order.h.
#include <algorithm>
#include <cassert>

#include "planner/chain/transition_order.h"

namespace windlass::chain {
namespace {

BlockRange intersection(const BlockRange& a, const BlockRange& b) {
  const int first = std::max(a.first, b.first);
  const int last = std::min(a.last(), b.last());
  return first <= last ? BlockRange{first, last - first + 1} : BlockRange{1, 0};
}

}  // namespace

std::vector<BlockRange> without(const BlockRange& range, const BlockRange& other) {
  const BlockRange common = intersection(range, other);
  if (range.blocks == 0) return {};
  if (common.blocks == 0) return {range};
  std::vector<BlockRange> parts;
  if (range.first < common.first) parts.push_back({range.first, common.first - range.first});
  if (common.last() < range.last()) parts.push_back({common.last() + 1, range.last() - common.last()});
  return parts;
}

std::vector<ServerChange> changes_between(const Instance& instance, const Placement& before, const Placement& after) {
  assert(before.size() == instance.servers.size() && after.size() == before.size());
  std::vector<ServerChange> changes;
  for (std::size_t j = 0; j < before.size(); ++j) {
    if (before[j] == after[j] || (before[j].blocks == 0 && after[j].blocks == 0)) continue;
    ServerChange change{static_cast<int>(j), before[j], after[j], intersection(before[j], after[j]), 0, false};
    change.held_blocks = before[j].blocks + after[j].blocks - change.kept.blocks;
    // Only dropping, or only loading next to what stays, takes no more room than the larger of the two ranges.
    change.loads_first = change.held_blocks == std::max(before[j].blocks, after[j].blocks) ||
                         cache_slots(instance, change.server, change.held_blocks) >= change.held_blocks;
    changes.push_back(change);
  }
  return changes;
}

TransitionState::TransitionState(const Instance& instance, const Placement& before, std::vector<ServerChange> changes)
    : instance_(instance),
      before_(before),
      changes_(std::move(changes)),
      phases_(changes_.size(), Phase::kBefore),
      change_of_server_(before.size(), -1),
      servers_with_(static_cast<std::size_t>(instance.blocks) + 1, 0),
      uncovered_(instance.blocks) {
  for (const BlockRange& range : before_) count(range, 1);
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    change_of_server_[static_cast<std::size_t>(changes_[i].server)] = static_cast<int>(i);
  }
}

void TransitionState::count(const BlockRange& range, int sign) {
  for (int block = range.first; block <= range.last(); ++block) {
    int& servers = servers_with_[static_cast<std::size_t>(block)];
    uncovered_ -= servers == 0;
    twice_ -= servers >= 2;
    servers += sign;
    uncovered_ += servers == 0;
    twice_ += servers >= 2;
  }
}

void TransitionState::count(std::size_t i, int sign) {
  const ServerChange& change = changes_[i];
  switch (phases_[i]) {
    case Phase::kBefore:
    case Phase::kLoading: return count(change.before, sign);
    case Phase::kReplacing: return count(change.kept, sign);
    case Phase::kAfter: return count(change.after, sign);
    case Phase::kBoth:
      count(change.after, sign);
      for (const BlockRange& part : without(change.before, change.after)) count(part, sign);
  }
}

void TransitionState::set(std::size_t change, Phase phase) {
  count(change, -1);
  phases_[change] = phase;
  count(change, 1);
}

void TransitionState::begin(const TransitionWave& wave) {
  for (const TransitionStep& step : wave.steps) {
    const auto i = static_cast<std::size_t>(change_of_server_[static_cast<std::size_t>(step.server)]);
    if (!changes_[i].loads_first) {
      set(i, Phase::kReplacing);
    } else {
      set(i, step.loads.empty() ? Phase::kAfter : Phase::kLoading);
    }
  }
}

void TransitionState::finish(const TransitionStep& step) {
  const auto i = static_cast<std::size_t>(change_of_server_[static_cast<std::size_t>(step.server)]);
  set(i, phases_[i] == Phase::kLoading ? Phase::kBoth : Phase::kAfter);
}

void TransitionState::end(const TransitionWave& wave) {
  for (const TransitionStep& step : wave.steps) finish(step);
}

double TransitionState::run(const TransitionWave& wave) {
  begin(wave);
  if (full_chain()) {  // loads only add coverage
    end(wave);
    return 0;
  }
  std::vector<const TransitionStep*> steps;
  for (const TransitionStep& step : wave.steps) steps.push_back(&step);
  std::stable_sort(steps.begin(), steps.end(), [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
  double interrupted_s = 0;
  bool serving = false;
  for (const TransitionStep* step : steps) {
    if (!serving) interrupted_s = step->seconds;
    finish(*step);
    serving = serving || full_chain();
  }
  return interrupted_s;
}

TransitionState::View TransitionState::view() const {
  View view{instance_, before_, {}};
  std::vector<int> held;  // blocks that memory must have room for
  for (const BlockRange& range : before_) held.push_back(range.blocks);
  std::vector<std::size_t> twice;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const ServerChange& change = changes_[i];
    const auto j = static_cast<std::size_t>(change.server);
    switch (phases_[i]) {
      case Phase::kBefore: break;
      case Phase::kLoading: held[j] = change.held_blocks; break;
      case Phase::kReplacing:
        view.placement[j] = change.kept;
        held[j] = change.after.blocks;
        break;
      case Phase::kAfter:
        view.placement[j] = change.after;
        held[j] = change.after.blocks;
        break;
      case Phase::kBoth: {
        held[j] = change.held_blocks;
        const int first = std::min(change.before.first, change.after.first);
        const int last = std::max(change.before.last(), change.after.last());
        if (change.before.blocks == 0 || change.after.blocks == 0) {
          view.placement[j] = change.before.blocks == 0 ? change.after : change.before;
        } else if (last - first + 1 == change.held_blocks) {
          view.placement[j] = BlockRange{first, change.held_blocks};
        } else {
          twice.push_back(i);
        }
      }
    }
  }
  for (std::size_t j = 0; j < held.size(); ++j) view.slots.push_back(cache_slots(instance_, static_cast<int>(j), held[j]));
  for (const std::size_t i : twice) {
    const ServerChange& change = changes_[i];
    const auto j = static_cast<std::size_t>(change.server);
    const long all = view.slots[j];
    const long old = all * change.before.blocks / change.held_blocks;
    view.slots[j] = old;
    view.instance.servers.push_back(view.instance.servers[j]);
    view.placement.push_back(change.after);
    view.slots.push_back(all - old);
  }
  return view;
}

}  // namespace windlass::chain
