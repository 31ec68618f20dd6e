// Defines the AcceleratorClass `this-machine`: one core of the local machine. Its figures are measured when the command starts,
// so that a laptop needs no data sheet. If a file defines a class of that name, that one is used.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/load.h"
#include "planner/base/result.h"

namespace windlass::cli {

inline constexpr std::string_view kThisMachine = "this-machine";

// Adds the class if a service names it and the objects lack it. Measuring takes a second or two; `notes` gets one line about
// the result. Returns the class as YAML, empty if it was not needed. Error: windlass-worker, which measures, failed.
[[nodiscard]] Result<std::string> add_this_machine(std::vector<api::Object>& objects, std::ostream& notes);

// Builds the class from `figures`, the output of `windlass-worker measure`. A core gets its share of the figures measured with
// all cores busy, and an equal part of 80 % of the free memory. Error: malformed figures.
[[nodiscard]] Result<std::string> this_machine_yaml(const std::string& figures);

}  // namespace windlass::cli
