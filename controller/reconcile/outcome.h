// Outcome: how one step of the loop ended, and when the next is due. The core never waits; it returns this instead.
#pragma once

#include <string>
#include <variant>

namespace windlass::controller {

struct Done {};  // nothing is under way; the usual tick is soon enough

struct RequeueAfter {  // something is expected; step again after this time
  double seconds = 0;
};

struct Retry {  // something failed that may succeed next time
  std::string reason;
};

struct Terminal {  // the loop cannot go on; the process should report it and end
  std::string reason;
};

using Outcome = std::variant<Done, RequeueAfter, Retry, Terminal>;

}  // namespace windlass::controller
