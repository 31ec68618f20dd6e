// The r-th session is the first with unclaimed + sum_{r'<=r} k_r' >= needed, that is sum_{r'>r} k_r' <= slots - needed: counted
// from the last session back, no more sessions are visited than the server has slots, however many wait.
#include "planner/chain/server_state.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <limits>

namespace windlass::chain {

void ServerState::add(std::int64_t id, long slots, double end_s) {
  assert(slots >= 1);
  const Session session{end_s, id, slots};
  sessions_.insert(std::upper_bound(sessions_.begin(), sessions_.end(), session), session);
  free_ -= slots;
}

void ServerState::remove(std::int64_t id, double end_s) {
  const auto found = std::lower_bound(sessions_.begin(), sessions_.end(), Session{end_s, id, 0});
  assert(found != sessions_.end() && found->id == id && found->end_s == end_s);
  free_ += found->slots;
  sessions_.erase(found);
}

double ServerState::wait_s(double now_s, long needed) const {
  if (free_ >= needed) return 0;
  if (needed > slots_) return std::numeric_limits<double>::infinity();
  long after = 0;  // slots of the sessions that end later than sessions_[r]
  std::size_t r = sessions_.size() - 1;
  while (after + sessions_[r].slots <= slots_ - needed) after += sessions_[r--].slots;
  return std::max(0.0, sessions_[r].end_s - now_s);
}

void ServerState::add_waits(double now_s, std::span<double> costs_s) const {
  // From the most slots down: the fewer are needed, the earlier the session that leaves them.
  long after = 0;
  std::size_t r = sessions_.empty() ? 0 : sessions_.size() - 1;
  for (auto needed = static_cast<long>(costs_s.size()); needed > std::max(0L, free_); --needed) {
    double& cost_s = costs_s[static_cast<std::size_t>(needed - 1)];
    if (needed > slots_) {
      cost_s = std::numeric_limits<double>::infinity();
      continue;
    }
    while (after + sessions_[r].slots <= slots_ - needed) after += sessions_[r--].slots;
    cost_s += std::max(0.0, sessions_[r].end_s - now_s);
  }
}

}  // namespace windlass::chain
