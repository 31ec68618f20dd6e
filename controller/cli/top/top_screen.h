// TopScreen: the contents of `windlass top` on a terminal: a table that fits its width, details of the selected service with
// its last minutes, and the keys. Pure: rows and keys come in, lines come out. TerminalScreen draws them.
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
  // Replaces the rows and extends their history. Services that are gone lose theirs.
  void take(std::vector<ServiceRow> rows);

  // Changes the sort column (the same key again reverses it) or the selection. False for an unknown key.
  bool press(Key key);

  // At most `height` lines of at most `width` columns. `problem` says why the rows are out of date; empty if they are not.
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

// One block per value in eight heights from 0 to `most`; a space for a missing value: "▁▃█ ▂".
[[nodiscard]] std::string sparkline(const std::vector<std::optional<double>>& values, double most);

}  // namespace windlass::cli
