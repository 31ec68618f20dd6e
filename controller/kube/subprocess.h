// Runs a program to its end and gives back what it wrote. For credential plugins; short-lived programs only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::kube {

struct ProgramRun {
  int exit_code = 0;  // 128 + signal when a signal ended it
  std::string out;    // may be a secret
  std::string err;
};

// `env` is added to our own environment. stdin is ours when `inherit_stdin`, else empty. kNotFound: no such program;
// kDeadlineExceeded: it was ended after `timeout_s` (its whole process group); kResourceExhausted: it wrote more than 1 MiB.
[[nodiscard]] Result<ProgramRun> run_program(const std::string& command, const std::vector<std::string>& args,
                                             const std::vector<std::pair<std::string, std::string>>& env, bool inherit_stdin,
                                             double timeout_s);

}  // namespace windlass::kube
