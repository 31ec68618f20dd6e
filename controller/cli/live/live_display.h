// LiveDisplay: prints the state of running services as it changes. On a terminal it draws one table again and again. Other
// outputs get a line for a service when its workers or its trouble change, or when it has had no line for a while.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/cli/console/console.h"
#include "controller/cli/live/live_view.h"

namespace windlass::cli {

class LiveDisplay {
 public:
  // quiet_period_s: the longest time without a line if the output is not a terminal.
  explicit LiveDisplay(Console& console, double quiet_period_s = 10) : console_(console), quiet_period_s_(quiet_period_s) {}

  // `note` is printed below the table ("Ctrl-C stops everything"), on a terminal only.
  void show(double elapsed_s, const std::vector<ServiceRow>& rows, const std::string& note = {});

  // Prints lines that stay: on a terminal they scroll above the table.
  void announce(const std::string& lines);

  // Prints why there are no rows, whenever that changes.
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
