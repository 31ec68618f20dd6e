// Waiting for conditions: tests never rely on sleeping; they poll until a condition holds or a deadline passes.
//
// eventually() polls every `interval` on the caller's thread. Use kPatience as the deadline (the machine may be slow); the
// condition is what the test checks. Conditions may log what they saw last, so that a failure says what was missing.
#pragma once

#include <chrono>
#include <functional>

namespace windlass::testing {

// Only ends tests that hang: no test may depend on how long something takes.
inline constexpr std::chrono::seconds kPatience{240};

// Returns true once `condition` returns true; false if it did not within `deadline`.
[[nodiscard]] bool eventually(std::chrono::milliseconds deadline, const std::function<bool()>& condition,
                              std::chrono::milliseconds interval = std::chrono::milliseconds(100));

// True if `condition` held at every check during `span`; false as soon as it does not.
[[nodiscard]] bool throughout(std::chrono::milliseconds span, const std::function<bool()>& condition,
                              std::chrono::milliseconds interval = std::chrono::milliseconds(100));

}  // namespace windlass::testing
