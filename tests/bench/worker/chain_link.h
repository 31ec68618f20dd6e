// Measures a chain's step from one worker to the next and back, and for comparison an exchange of as many bytes over a plain
// TCP connection between two processes. Both use this machine's loopback. Linux only.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/base/result.h"
#include "tests/bench/worker/child.h"

namespace windlass::worker {

struct ChainLinkTimes {
  double seconds = 0;        // median time for the hidden states of these tokens
  double http_seconds = 0;   // the same with steps over HTTP
  double plain_seconds = 0;  // of a plain exchange of as many bytes
  double bytes = 0;          // of hidden states
};

// The later worker, whose blocks take no time: a child process.
class ChainLink {
 public:
  static constexpr std::int64_t kHiddenSize = 4096;

  // Call this before starting any thread.
  [[nodiscard]] static Result<std::unique_ptr<ChainLink>> start();

  // Sends `tokens` for each of `sequences`, in as many steps as needed, `repeats` times in a row; each sequence samples a token
  // at the end. Error: kInternal, naming what is missing.
  [[nodiscard]] Result<ChainLinkTimes> measure(std::int64_t sequences, std::int64_t tokens, int repeats);

 private:
  ChainLink(StartedChild later, int http_port) : later_(std::move(later)), http_port_(http_port) {}

  const StartedChild later_;  // and the port of plain exchanges
  const int http_port_;
};

}  // namespace windlass::worker
