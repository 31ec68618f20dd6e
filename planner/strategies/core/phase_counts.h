// CountWalk: the cheapest numbers of prefill and decode workers that hold, by walking the frontier of what holds instead of the
// grid.
//
// What holds is taken to be monotone: more workers of either kind never break it. Then each number of decode workers has one
// least number of prefill workers, and once some pair is known that holds, another column is worth a look only below that
// pair's worth: one question tells whether any pair of the column is cheaper, since the largest pair below the worth holds if
// any does. A grid of a x b pairs takes about a + b questions. Simulations are monotone but for noise; what is inferred from a
// pair and never asked is as sure as that. Pure; not thread-safe.
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
  int decode = 1;  // 0: unified workers, counted as prefill ones

  bool operator==(const PhaseCounts&) const = default;
};

// The largest number from 1 to `most` that is good, where all below a good one are; 0: none.
[[nodiscard]] int largest_good(int most, const std::function<bool(int)>& good);

struct CountQuestions {
  double prefill_worth = 1, decode_worth = 1;  // of one worker, > 0; what is cheapest has the least sum
  bool unified = false;                        // there are no decode workers
  // Whether there is room for them; what is smaller has it too.
  std::function<bool(const PhaseCounts&)> fits;
  // Whether each of these holds, in their order. An error ends the walk, which keeps what it has found.
  std::function<Result<std::vector<char>>(std::span<const PhaseCounts>)> hold;
  int most_workers = 100'000;  // of either kind
};

class CountWalk {
 public:
  explicit CountWalk(CountQuestions questions) : questions_(std::move(questions)) {}

  // Finds the pair of the least worth that holds, if one is below `below`. Begins near `guess`, which costs time where it is
  // wrong and changes the answer only among equals. REQUIRES: guess.prefill >= 1, guess.decode >= 1 (0: unified).
  [[nodiscard]] Result<void> run(const PhaseCounts& guess, double below);

  [[nodiscard]] const std::optional<PhaseCounts>& best() const { return best_; }
  [[nodiscard]] double worth(const PhaseCounts& counts) const {
    return counts.prefill * questions_.prefill_worth + counts.decode * questions_.decode_worth;
  }
  [[nodiscard]] std::int64_t asked() const { return asked_; }

 private:
  [[nodiscard]] std::optional<bool> known(const PhaseCounts& counts) const;
  [[nodiscard]] Result<std::vector<char>> hold(std::span<const PhaseCounts> counts);
  // The most prefill workers beside so many decode workers that there is room for and that cost less than the best; 0: none.
  [[nodiscard]] int widest(int decode) const;
  // More of both until a pair holds, there is no room, or it costs too much; false: as many as there may be do not hold.
  [[nodiscard]] Result<bool> grow(const PhaseCounts& guess);
  // The best of a column whose pair `holds` does.
  [[nodiscard]] Result<void> descend(PhaseCounts holds);
  [[nodiscard]] Result<void> look_at(std::span<const PhaseCounts> tops);

  CountQuestions questions_;
  std::vector<PhaseCounts> held_, failed_;  // what was asked; no pair that another one implies
  std::optional<PhaseCounts> best_;
  double below_ = 0;
  std::int64_t asked_ = 0;
};

}  // namespace windlass::search
