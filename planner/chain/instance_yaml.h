// INSTANCE files: an Instance as YAML (JSON is YAML too), for people and for `windlass chain`.
//
//   model:   {blocks: 70, blockSizeGB: 1.32, cacheSizeGB: 0.11}
//   arrivalRate: 0.2          # requests per second
//   maxLoad: 0.7              # may be left out
//   servers:
//   - {name: s0, memoryGB: 40, communicationSeconds: 0.05, blockSeconds: 0.109}
//
// A server may add loadGBPerSecond (1) and tokenTimes: {blockOverheadSeconds, blockPrefillSecondsPerToken,
// blockDecodeSecondsPerToken, communicationFirstSeconds, communicationSecondsPerToken}, of which prefill and decode must be
// there. Foreign bytes: whatever is wrong is an Error, never an exception. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/chain/instance.h"

namespace windlass::chain {

// What a number in an instance may be: wide enough for every real one, and narrow enough that no sum or quotient overflows.
inline constexpr double kSmallestNumber = 1e-9;
inline constexpr double kLargestNumber = 1e9;
inline constexpr int kMaxBlocks = 10'000;
inline constexpr int kMaxServers = 100'000;
// Servers times blocks: what grows with both still answers within seconds.
inline constexpr std::int64_t kMaxCells = 3'000'000;
inline constexpr double kMaxCachesOnAServer = 1e8;  // memory / cache size

// The error is one line, "SOURCE:LINE: servers[3].memoryGB: found 'abc', allowed is a number from 1e-9 to 1e9". Every key must
// be known and stand once; numbers are plain and finite; anchors, aliases and tags are refused.
[[nodiscard]] Result<Instance> instance_from_yaml(std::string_view text, const std::string& source);

// A file that instance_from_yaml reads back as the same instance, to the last bit of every number.
[[nodiscard]] std::string to_yaml(const Instance& instance);

}  // namespace windlass::chain
