// How long a chain's step takes from one worker to the next and back, beside what an exchange of as many bytes over a plain TCP
// connection takes between two processes on the same link, which is this machine's loopback. Linux alone.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/base/result.h"
#include "tests/bench/worker/child.h"

namespace windlass::worker {

struct ChainLinkTimes {
  double seconds = 0;        // of the hidden states of so many tokens: medians
  double http_seconds = 0;   // where steps go over HTTP
  double plain_seconds = 0;  // of an exchange of as many bytes
  double bytes = 0;          // of hidden states
};

// The later worker, whose blocks take no time: a child process.
class ChainLink {
 public:
  static constexpr std::int64_t kHiddenSize = 4096;

  // Call it before any thread is started.
  [[nodiscard]] static Result<std::unique_ptr<ChainLink>> start();

  // `sequences` that bring `tokens` each, in as many steps as that takes and `repeats` times, one after the other; each draws a
  // token at the end. Error: kInternal saying what did not come.
  [[nodiscard]] Result<ChainLinkTimes> measure(std::int64_t sequences, std::int64_t tokens, int repeats);

 private:
  ChainLink(StartedChild later, int http_port) : later_(std::move(later)), http_port_(http_port) {}

  const StartedChild later_;  // and the port of plain exchanges
  const int http_port_;
};

}  // namespace windlass::worker
