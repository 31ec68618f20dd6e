// ServerState: what a server still has to do, as online routing sees it (Sun et al., Section 3.3.2 and Eq. 20).
//
// A session is a request that was routed through the server and has not ended, whether it has started or waits: its cache slots
// are claimed from the decision on. So slots may be claimed more often than they exist, and a new request waits until so many
// sessions have ended that the rest leaves it enough. When a session ends is an estimate. Seconds on the caller's time axis;
// not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>

namespace windlass::chain {

class ServerState {
 public:
  explicit ServerState(long slots) : slots_(slots), free_(slots) {}

  // `id` tells sessions apart that end at the same time. REQUIRES: slots >= 1.
  void add(std::int64_t id, long slots, double end_s);

  // REQUIRES: add(id, ..., end_s) came before, with exactly this end.
  void remove(std::int64_t id, double end_s);

  [[nodiscard]] long slots() const { return slots_; }
  [[nodiscard]] long unclaimed_slots() const { return free_; }  // negative when more are claimed than exist
  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }

  // t^W (Eq. 20): 0 if `needed` slots are unclaimed, else the remaining time of the session whose end leaves enough of them,
  // sessions ending in the order of their estimates; at least 0 where an estimate has passed. Infinite when the server never
  // has so many.
  [[nodiscard]] double wait_s(double now_s, long needed) const;

  // Adds wait_s(now_s, m) to costs_s[m - 1] for every m, in one pass.
  void add_waits(double now_s, std::span<double> costs_s) const;

 private:
  struct Session {
    double end_s = 0;
    std::int64_t id = 0;
    long slots = 0;

    bool operator<(const Session& other) const { return end_s != other.end_s ? end_s < other.end_s : id < other.id; }
  };

  long slots_;
  long free_;
  std::set<Session> sessions_;  // in rising order of their ends; a backlog may be long
};

}  // namespace windlass::chain
