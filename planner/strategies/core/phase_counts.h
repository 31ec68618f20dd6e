// CountWalk: finds the cheapest feasible numbers of prefill and decode workers by walking along the frontier of feasible pairs
// instead of the whole grid.
//
// Feasibility is assumed to be monotone: more workers of either kind never make a pair infeasible. So each number of decode
// workers has a smallest feasible number of prefill workers. Once a feasible pair is known, another number of decode workers
// matters only if it gives a cheaper pair. One query decides that: if any cheaper pair with this number of decode workers is
// feasible, the one with the most prefill workers is.
//
// A grid of a x b pairs takes about a + b queries. Simulations are monotone except for noise; an inferred result is as certain
// as the query it comes from. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/base/result.h"

namespace windlass::search {

struct PhaseCounts {
  int prefill = 1;
  int decode = 1;  // 0: unified workers, counted as prefill workers

  bool operator==(const PhaseCounts&) const = default;
};

// The largest good number from 1 to `most`, if all below a good one are good; 0: none.
[[nodiscard]] int largest_good(int most, const std::function<bool(int)>& good);

struct CountQuestions {
  double prefill_worth = 1, decode_worth = 1;  // per worker, > 0; the search minimises the sum
  bool unified = false;                        // there are no decode workers
  // Whether there is room; then smaller pairs have room too.
  std::function<bool(const PhaseCounts&)> fits;
  // Whether each pair is feasible, in order. An error ends the walk, which keeps its result so far.
  std::function<Result<std::vector<char>>(std::span<const PhaseCounts>)> hold;
  int max_workers = 100'000;  // of either kind
};

class CountWalk {
 public:
  explicit CountWalk(CountQuestions questions) : questions_(std::move(questions)) {}

  // Finds the feasible pair of least worth, if one is below `below`. Starts near `guess`; a bad guess costs time, and changes
  // the answer only among ties. REQUIRES: guess.prefill >= 1, guess.decode >= 1 (0: unified).
  [[nodiscard]] Result<void> run(const PhaseCounts& guess, double below);

  [[nodiscard]] const std::optional<PhaseCounts>& best() const { return best_; }
  [[nodiscard]] double worth(const PhaseCounts& counts) const {
    return counts.prefill * questions_.prefill_worth + counts.decode * questions_.decode_worth;
  }
  [[nodiscard]] std::int64_t asked() const { return asked_; }

 private:
  [[nodiscard]] std::optional<bool> known(const PhaseCounts& counts) const;
  [[nodiscard]] Result<std::vector<char>> hold(std::span<const PhaseCounts> counts);
  // The most prefill workers, for this many decode workers, that have room and cost less than the best; 0: none.
  [[nodiscard]] int widest(int decode) const;
  // Increases both until a pair is feasible, there is no room, or it costs too much. False if even the maximum is infeasible.
  [[nodiscard]] Result<bool> grow(const PhaseCounts& guess);
  // Finds the best pair of the column of the feasible pair `holds`.
  [[nodiscard]] Result<void> descend(PhaseCounts holds);
  [[nodiscard]] Result<void> look_at(std::span<const PhaseCounts> tops);

  CountQuestions questions_;
  std::vector<PhaseCounts> held_, failed_;  // query results, without pairs implied by others
  std::optional<PhaseCounts> best_;
  double below_ = 0;
  std::int64_t asked_ = 0;
};

}  // namespace windlass::search
