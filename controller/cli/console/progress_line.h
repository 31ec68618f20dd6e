// A line on stderr that renews itself, for a person who waits; nothing where none watches.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "controller/cli/console/console.h"

namespace windlass::cli {

class ProgressLine {
 public:
  explicit ProgressLine(Console& console);
  // The line goes.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws what `line` says after so many seconds, when that is due: not within the first second, and five times a second at
  // most. Any thread; passed over while another draws.
  void tell(const std::function<std::string(double elapsed_s)>& line);

 private:
  Console& console_;
  const double begin_s_;
  std::mutex mutex_;
  double last_s_ = 0;
  bool drawn_ = false;
};

}  // namespace windlass::cli
