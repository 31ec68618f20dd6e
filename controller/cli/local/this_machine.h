// The AcceleratorClass `this-machine`: one core of the machine that a command runs on, with figures measured just now, so that
// what runs on a laptop needs no data sheet. A class of that name in a file counts instead.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/load.h"
#include "planner/base/result.h"

namespace windlass::cli {

inline constexpr std::string_view kThisMachine = "this-machine";

// Adds the class to the objects where a service names it and they lack it; measuring takes a second or two, and `notes` gets a
// line of what was found. Returns the class as YAML; empty: it was not needed. Error: windlass-worker, which measures, failed.
[[nodiscard]] Result<std::string> add_this_machine(std::vector<api::Object>& objects, std::ostream& notes);

// The class of `figures`, what `windlass-worker measure` prints: a core's share while all are busy, with four fifths of the
// free memory divided among them. Error: no such figures.
[[nodiscard]] Result<std::string> this_machine_yaml(const std::string& figures);

}  // namespace windlass::cli
