// Ports for programs that tests start.
#pragma once

#include <deque>

#include "metrics/host/held_port.h"

namespace windlass {

// A TCP port of 127.0.0.1 that belongs to this process until it ends.
[[nodiscard]] inline int free_port() {
  static std::deque<HeldPort> held;
  held.push_back(HeldPort::take().value());
  return held.back().number();
}

}  // namespace windlass
