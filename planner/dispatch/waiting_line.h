// WaitingLine: the requests of one model that wait for a slot, and whose turn it is. The gateway's queue, and the simulator's.
//
// First come, first served makes everybody late once a burst has made the wait longer than timeToFirstToken: those who are
// served have missed it, and by the time that the next one is served he has too. So (QueueOrder::kObjective) those who can
// still get their first token in time go first, by their deadline; those who cannot any more wait behind them, by arrival. What
// the slots can do then goes to requests that it still helps, and as many miss the objective as there is no slot for.
//
// What bounds the wait of those behind: of kTurns turns in a row at least one is theirs, so that nobody waits for more than
// kTurns times the turns that first come, first served would have cost him.
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

  // `place`: by arrival, each once; who comes back takes his old one. `deadline_s`: for the first token; infinity: none.
  void join(std::uint64_t place, std::uint64_t id, double deadline_s);
  // False: nobody has this place.
  bool leave(std::uint64_t place);

  struct Waiting {
    std::uint64_t place = 0;
    std::uint64_t id = 0;
    double deadline_s = 0;
  };
  // Whose turn it is, if a first token takes `margin_s` from now. Who is late by that stays behind, whatever comes later.
  [[nodiscard]] std::optional<Waiting> next(double now_s, double margin_s);
  // The one that next() named last has got his turn, and leaves.
  void take(std::uint64_t place);
  // One that was taken comes back: nobody was overtaken by it.
  void give_back();
  // By arrival alone he would have had his turn by now: others had it.
  [[nodiscard]] bool overtaken(std::uint64_t place) const;

  // All of them, by arrival.
  [[nodiscard]] std::vector<Waiting> all() const;
  // All of them, by arrival; nobody waits here any more.
  [[nodiscard]] std::vector<Waiting> take_all();
  [[nodiscard]] bool empty() const { return by_place_.empty(); }
  [[nodiscard]] std::size_t size() const { return by_place_.size(); }
  [[nodiscard]] std::size_t late() const { return late_.size(); }

 private:
  struct Entry {
    std::uint64_t id = 0;
    double deadline_s = 0;
    std::uint64_t turn = 0;  // by arrival: that of the turns_ which would be his
  };

  QueueOrder order_;
  std::map<std::uint64_t, Entry> by_place_;
  std::set<std::pair<double, std::uint64_t>> in_time_;  // deadline, place
  std::set<std::uint64_t> late_;                        // places
  std::uint64_t turns_ = 0;                             // that were ever taken
  int passed_ = 0;                                      // turns that went past those who are late, since their last one
};

// How long a first token takes from a slot's being given, in all but a few cases: a running quantile (Robbins and Monro's
// stochastic approximation, on the logarithm).
class FirstTokenTail {
 public:
  void observe(double seconds);
  // Of this objective: what is known, or a tenth of it; at most kMaxShare of it, so that a new request is never late at once.
  [[nodiscard]] double margin_s(double objective_s) const;

  static constexpr double kMaxShare = 0.8;

 private:
  double tail_s_ = 0;  // 0: nothing is known
};

}  // namespace windlass::dispatch
