// Runs a short-lived program to completion and returns its output. For credential plugins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::kube {

struct ProgramRun {
  int exit_code = 0;  // 128 + signal if a signal ended it
  std::string out;    // may be a secret
  std::string err;
};

// `env` is added to our own environment. stdin is ours if `inherit_stdin`, otherwise empty. kNotFound: no such program.
// kDeadlineExceeded: its process group was killed after `timeout_s`. kResourceExhausted: it wrote more than 1 MiB.
[[nodiscard]] Result<ProgramRun> run_program(const std::string& command, const std::vector<std::string>& args,
                                             const std::vector<std::pair<std::string, std::string>>& env, bool inherit_stdin,
                                             double timeout_s);

}  // namespace windlass::kube
