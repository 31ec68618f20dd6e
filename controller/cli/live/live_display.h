// LiveDisplay: shows rows as they change. On a terminal one table that redraws itself; elsewhere a line per service when its
// workers or its trouble change, and now and then in between, so that a log tells the story.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/cli/console/console.h"
#include "controller/cli/live/live_view.h"

namespace windlass::cli {

class LiveDisplay {
 public:
  // quiet_period_s: where there is no terminal, the longest time without a line.
  explicit LiveDisplay(Console& console, double quiet_period_s = 10) : console_(console), quiet_period_s_(quiet_period_s) {}

  // `note` stands below the table ("Ctrl-C stops everything"); only on a terminal.
  void show(double elapsed_s, const std::vector<ServiceRow>& rows, const std::string& note = {});

  // Lines that stay, above the table on a terminal.
  void announce(const std::string& lines);

  // Instead of rows: why there are none. Printed when it changes.
  void say(const std::string& message);

 private:
  struct Shown {
    std::string state;
    double at_s = 0;
    std::string trouble;
  };

  void redraw(const std::string& text);

  Console& console_;
  double quiet_period_s_;
  int drawn_lines_ = 0;
  std::string said_;
  std::map<std::string, Shown> shown_;
};

}  // namespace windlass::cli
