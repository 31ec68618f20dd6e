// Waiting on conditions: a test never sleeps to be right, it asks until something holds or a deadline passes.
//
// eventually() asks every `interval` on the caller's thread; the deadline is kPatience (the machine may be slow), the condition
// is what the test is about. Conditions may log what they saw last, so that a failure says what was missing.
#pragma once

#include <chrono>
#include <functional>

namespace windlass::testing {

// Ends a test that hangs, and nothing else: no test may depend on how long something takes.
inline constexpr std::chrono::seconds kPatience{240};

// True as soon as `condition` returns true; false when it has not within `deadline`.
[[nodiscard]] bool eventually(std::chrono::milliseconds deadline, const std::function<bool()>& condition,
                              std::chrono::milliseconds interval = std::chrono::milliseconds(100));

// True when `condition` held at every look during `span`; false as soon as it does not.
[[nodiscard]] bool throughout(std::chrono::milliseconds span, const std::function<bool()>& condition,
                              std::chrono::milliseconds interval = std::chrono::milliseconds(100));

}  // namespace windlass::testing
