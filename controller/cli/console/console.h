// Console: where a command prints and whether a person watches. Injected, so that a test reads what a person would.
#pragma once

#include <iosfwd>

namespace windlass::cli {

struct Console {
  std::ostream& out;          // results
  std::ostream& err;          // errors and progress
  bool terminal = false;      // out is a terminal that can draw: tables may redraw themselves
  bool err_terminal = false;  // err is one: a line of progress may renew itself
};

// Exit codes of every command.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;      // what was asked for did not happen
inline constexpr int kUsage = 2;       // the command line is wrong; nothing was touched
inline constexpr int kInfeasible = 3;  // an objective that nothing meets, or a rate that nothing serves

}  // namespace windlass::cli
