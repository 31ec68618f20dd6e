// WaitingLine holds the requests of one model that wait for a slot, and decides which request is next. The gateway and the
// simulator use it as their queue.
//
// After a burst, first come, first served makes every request late: once the wait exceeds timeToFirstToken, each request served
// has already missed it, and so will the next one. So with QueueOrder::kObjective, requests that can still get their first
// token in time go first, by deadline. Late ones wait behind them, by arrival. The slots then work for requests that can still
// be in time, and a request misses the objective only if the slots are too few.
//
// The wait of late requests is bounded: at least one of kTurns consecutive turns is theirs, so none waits for more than kTurns
// times as many turns as under first come, first served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::dispatch {

enum class QueueOrder { kObjective, kArrival };

[[nodiscard]] const char* to_string(QueueOrder order);  // "objective", "arrival"
[[nodiscard]] Result<QueueOrder> queue_order_from_string(std::string_view text);

class WaitingLine {
 public:
  static constexpr int kTurns = 20;

  explicit WaitingLine(QueueOrder order = QueueOrder::kObjective) : order_(order) {}

  // `place`: rank by arrival, unique; a returning request takes its old place. `deadline_s`: for the first token; infinity:
  // none.
  void join(std::uint64_t place, std::uint64_t id, double deadline_s);
  // False if no request has this place.
  bool leave(std::uint64_t place);

  struct Waiting {
    std::uint64_t place = 0;
    std::uint64_t id = 0;
    double deadline_s = 0;
  };
  // The next request. `margin_s`: the assumed time from now to its first token. A request that would miss its deadline with
  // this margin counts as late from then on.
  [[nodiscard]] std::optional<Waiting> next(double now_s, double margin_s);
  // The request last returned by next() gets its turn and leaves.
  void take(std::uint64_t place);
  // A request that was taken returns to the line, so its turn does not count.
  void give_back();
  // Whether the request would have had its turn by now under arrival order.
  [[nodiscard]] bool overtaken(std::uint64_t place) const;

  // All requests, by arrival.
  [[nodiscard]] std::vector<Waiting> all() const;
  // Removes and returns all requests, by arrival.
  [[nodiscard]] std::vector<Waiting> take_all();
  [[nodiscard]] bool empty() const { return by_place_.empty(); }
  [[nodiscard]] std::size_t size() const { return by_place_.size(); }
  [[nodiscard]] std::size_t late() const { return late_.size(); }

 private:
  struct Entry {
    std::uint64_t id = 0;
    double deadline_s = 0;
    std::uint64_t turn = 0;  // the turn that it would have under arrival order
  };

  QueueOrder order_;
  std::map<std::uint64_t, Entry> by_place_;
  std::set<std::pair<double, std::uint64_t>> in_time_;  // (deadline, place)
  std::set<std::uint64_t> late_;                        // places
  std::uint64_t turns_ = 0;                             // turns taken in total
  int passed_ = 0;  // turns that passed late requests over, since the last turn of a late one
};

// Estimates the time from getting a slot to the first token, as a high quantile: a running quantile (Robbins and Monro's
// stochastic approximation, on the logarithm).
class FirstTokenTail {
 public:
  void observe(double seconds);
  // For this objective: the estimate, or a tenth of the objective if unknown. At most kMaxShare of it, so that a new request is
  // never late immediately.
  [[nodiscard]] double margin_s(double objective_s) const;

  static constexpr double kMaxShare = 0.8;

 private:
  double tail_s_ = 0;  // 0: unknown
};

}  // namespace windlass::dispatch
