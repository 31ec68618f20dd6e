// Waiting times of a server; see server_state.h. The session waited for is the first r with unclaimed + sum_{r'<=r} k_r' >=
// needed, that is sum_{r'>r} k_r' <= slots - needed. Counting back from the last session, it visits at most as many sessions as
// the server has slots, however many wait. add() and remove() take time logarithmic in the backlog.
#include "planner/chain/server_state.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace windlass::chain {

void ServerState::add(std::int64_t id, long slots, double end_s) {
  assert(slots >= 1);
  sessions_.insert({end_s, id, slots});
  free_ -= slots;
}

void ServerState::remove(std::int64_t id, double end_s) {
  const auto found = sessions_.find(Session{end_s, id, 0});
  assert(found != sessions_.end());
  free_ += found->slots;
  sessions_.erase(found);
}

double ServerState::wait_s(double now_s, long needed) const {
  if (free_ >= needed) return 0;
  if (needed > slots_) return std::numeric_limits<double>::infinity();
  long after = 0;  // slots of the sessions that end later than the r-th
  auto r = sessions_.rbegin();
  while (after + r->slots <= slots_ - needed) after += (r++)->slots;
  return std::max(0.0, r->end_s - now_s);
}

void ServerState::add_waits(double now_s, std::span<double> costs_s) const {
  // From the most slots down: the fewer are needed, the earlier they are free.
  long after = 0;
  auto r = sessions_.rbegin();
  for (auto needed = static_cast<long>(costs_s.size()); needed > std::max(0L, free_); --needed) {
    double& cost_s = costs_s[static_cast<std::size_t>(needed - 1)];
    if (needed > slots_) {
      cost_s = std::numeric_limits<double>::infinity();
      continue;
    }
    while (after + r->slots <= slots_ - needed) after += (r++)->slots;
    cost_s += std::max(0.0, r->end_s - now_s);
  }
}

}  // namespace windlass::chain
