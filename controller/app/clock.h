// Clock: the only place from which the controller's core gets the time.
#pragma once

#include <chrono>

#include "planner/base/instant.h"

namespace windlass::controller {

[[nodiscard]] inline Instant now() {
  const auto seconds = [](auto since) { return std::chrono::duration<double>(since).count(); };
  return {seconds(std::chrono::system_clock::now().time_since_epoch()),
          seconds(std::chrono::steady_clock::now().time_since_epoch())};
}

}  // namespace windlass::controller
