// A PerformanceProfile as a file has it, for tests of what reads one.
#pragma once

#include <string>

#include <fmt/format.h>

namespace windlass {

// With the same of Aladdin's lines for every batch, and with `transfer`, in YAML, where it is not empty.
inline std::string profile_text(const std::string& model, const std::string& accelerator, int gpus,
                                const std::string& transfer) {
  const std::string line = R"(
        constantSeconds: "0.01"
        secondsPerToken: "0.0001"
        range: {sequences: {from: "1", to: "100000"}, meanTokens: {from: "1", to: "100000"}, tokens: {from: "1", to: "100000"}})";
  return fmt::format(R"(apiVersion: windlass.dev/v1alpha1
kind: PerformanceProfile
metadata: {{name: p}}
spec:
  model: {{name: {}}}
  accelerator: {}
  gpusPerWorker: {}
{}  fit:
    type: Linear
    linear:
      form: Aladdin
      prefill:{}
      decode:{}
)",
                     model, accelerator, gpus, transfer.empty() ? "" : "  transfer: " + transfer + "\n", line, line);
}

}  // namespace windlass
