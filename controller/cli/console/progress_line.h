// ProgressLine: one line on stderr that redraws itself while a command works. Draws nothing if stderr is not a terminal.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "controller/cli/console/console.h"

namespace windlass::cli {

class ProgressLine {
 public:
  explicit ProgressLine(Console& console);
  // Erases the line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws the text that `line` returns for the elapsed seconds: not in the first second, then at most five times per second.
  // Any thread; does nothing while another thread draws.
  void tell(const std::function<std::string(double elapsed_s)>& line);

 private:
  Console& console_;
  const double begin_s_;
  std::mutex mutex_;
  double last_s_ = 0;
  bool drawn_ = false;
};

}  // namespace windlass::cli
