// How long a chain's step takes from one worker to the next and back, beside what an exchange of as many bytes over a plain TCP
// connection takes between two processes on the same link, which is this machine's loopback. Linux alone.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/base/result.h"

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
  ~ChainLink();
  ChainLink(const ChainLink&) = delete;
  ChainLink& operator=(const ChainLink&) = delete;

  // `sequences` that bring `tokens` each, in as many steps as that takes and `repeats` times, one after the other; each draws a
  // token at the end. Error: kInternal saying what did not come.
  [[nodiscard]] Result<ChainLinkTimes> measure(std::int64_t sequences, std::int64_t tokens, int repeats);

 private:
  ChainLink(int child, int http_port, int plain_port) : child_(child), http_port_(http_port), plain_port_(plain_port) {}

  const int child_;
  const int http_port_, plain_port_;
};

}  // namespace windlass::worker
