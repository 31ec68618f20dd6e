// Outcome: how one step of the loop ended, and when the next should come. The core never waits; waiting is this data.
#pragma once

#include <string>
#include <variant>

namespace windlass::controller {

struct Done {};  // nothing is under way; the usual tick is soon enough

struct RequeueAfter {  // something is expected: look again after so long
  double seconds = 0;
};

struct Retry {  // something failed that may work next time
  std::string reason;
};

struct Terminal {  // going on makes no sense; the process should say so and end
  std::string reason;
};

using Outcome = std::variant<Done, RequeueAfter, Retry, Terminal>;

}  // namespace windlass::controller
