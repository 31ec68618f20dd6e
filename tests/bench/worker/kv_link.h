// How fast one worker's keys and values come into another's cache, beside what a plain stream of bytes between two processes
// reaches on the same link, which is this machine's loopback. Linux alone.
#pragma once

#include <memory>
#include <utility>

#include "planner/base/result.h"
#include "tests/bench/worker/child.h"

namespace windlass::worker {

struct KvLinkRates {
  double seconds = 0;        // of a prompt's keys and values: medians
  double http_seconds = 0;   // where only questions over HTTP are possible
  double plain_seconds = 0;  // of as many bytes in a plain stream
  double bytes = 0;          // of all keys and values, as FP32
};

// The sending worker: a child process.
class KvLink {
 public:
  // Call it before any thread is started.
  [[nodiscard]] static Result<std::unique_ptr<KvLink>> start();
  // `repeats` times each, one after the other. Error: kInternal saying what did not come.
  [[nodiscard]] Result<KvLinkRates> measure(int repeats);

 private:
  KvLink(StartedChild sender, int http_port) : sender_(std::move(sender)), http_port_(http_port) {}

  const StartedChild sender_;  // and the port of plain streams
  const int http_port_;
};

}  // namespace windlass::worker
