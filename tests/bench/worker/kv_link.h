// Measures how fast one worker's keys and values reach another's cache, and for comparison a plain stream of bytes between two
// processes. Both use this machine's loopback. Linux only.
#pragma once

#include <memory>
#include <utility>

#include "planner/base/result.h"
#include "tests/bench/worker/child.h"

namespace windlass::worker {

struct KvLinkRates {
  double seconds = 0;        // median time for a prompt's keys and values
  double http_seconds = 0;   // the same if only requests over HTTP are possible
  double plain_seconds = 0;  // of as many bytes in a plain stream
  double bytes = 0;          // of all keys and values, as FP32
};

// The sending worker: a child process.
class KvLink {
 public:
  // Call this before starting any thread.
  [[nodiscard]] static Result<std::unique_ptr<KvLink>> start();
  // Measures each `repeats` times in a row. Error: kInternal, naming what is missing.
  [[nodiscard]] Result<KvLinkRates> measure(int repeats);

 private:
  KvLink(StartedChild sender, int http_port) : sender_(std::move(sender)), http_port_(http_port) {}

  const StartedChild sender_;  // and the port of plain streams
  const int http_port_;
};

}  // namespace windlass::worker
