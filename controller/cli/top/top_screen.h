// TopScreen: what `windlass top` draws on a terminal: a table that fits its width, one service chosen, with what it is waited
// for and its last minutes, and the keys. Pure: rows and keys come in, lines come out. TerminalScreen draws them.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/live/live_view.h"
#include "controller/cli/top/terminal_screen.h"

namespace windlass::cli {

enum class SortBy { kName, kWorkers, kRequests, kTtft, kTpot, kAttained };

class TopScreen {
 public:
  // A look at the services. One that is gone loses its history.
  void take(std::vector<ServiceRow> rows);

  // Sorts (again: the other way round) or chooses a service. False for a key that means nothing here.
  bool press(Key key);

  // What fits a terminal of that size, at most `height` lines of at most `width` columns. `problem`: why the rows are not
  // fresh; empty when they are.
  [[nodiscard]] std::vector<ScreenLine> lines(std::size_t width, std::size_t height, const std::string& problem = {}) const;

 private:
  struct Look {
    std::optional<double> arrivals_per_s;
    std::optional<double> attainment;
  };

  void sort();
  [[nodiscard]] std::size_t chosen_index() const;
  [[nodiscard]] std::vector<std::string> details(std::size_t width) const;

  std::vector<ServiceRow> rows_;
  std::map<std::string, std::deque<Look>> history_;  // by title, the newest last
  SortBy sort_ = SortBy::kName;
  bool reversed_ = false;
  std::string chosen_;  // title
};

// Eight heights of block from 0 to `most`, one for each value, and a space where there is none: "▁▃█ ▂".
[[nodiscard]] std::string sparkline(const std::vector<std::optional<double>>& values, double most);

}  // namespace windlass::cli
