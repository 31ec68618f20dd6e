// ServerState tracks the remaining work of a server for online routing (Sun et al., Section 3.3.2 and Eq. 20).
//
// A session is a request that was routed through the server and has not ended, whether it runs or waits. It claims its cache
// slots when it is routed. So more slots may be claimed than exist; a new request then waits until enough sessions have ended
// to leave it room. Session ends are estimates. Times are seconds on the caller's time axis; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>

namespace windlass::chain {

class ServerState {
 public:
  explicit ServerState(long slots) : slots_(slots), free_(slots) {}

  // `id` distinguishes sessions that end at the same time. REQUIRES: slots >= 1.
  void add(std::int64_t id, long slots, double end_s);

  // REQUIRES: add(id, ..., end_s) was called with exactly this end.
  void remove(std::int64_t id, double end_s);

  [[nodiscard]] long slots() const { return slots_; }
  [[nodiscard]] long unclaimed_slots() const { return free_; }  // negative if more are claimed than exist
  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }

  // t^W (Eq. 20): 0 if `needed` slots are unclaimed, otherwise the remaining time of the session whose end leaves enough of
  // them, with sessions ordered by estimated end; at least 0 if an estimate has passed. Infinite if the server has fewer than
  // `needed` slots.
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
  std::set<Session> sessions_;  // sorted by end; a backlog may be long
};

}  // namespace windlass::chain
