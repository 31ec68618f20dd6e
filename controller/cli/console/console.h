// Console: the streams that a command prints to and whether they are terminals. Injected, so that tests can read the output.
#pragma once

#include <iosfwd>

namespace windlass::cli {

struct Console {
  std::ostream& out;          // results
  std::ostream& err;          // errors and progress
  bool terminal = false;      // out is a terminal that can draw: tables may redraw themselves
  bool err_terminal = false;  // err is such a terminal: a progress line may redraw itself
};

// Exit codes of every command.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;      // the command could not do its work
inline constexpr int kUsage = 2;       // the command line is wrong; nothing was changed
inline constexpr int kInfeasible = 3;  // no plan meets the objectives or serves the rate

}  // namespace windlass::cli
