// Reads and writes INSTANCE files: an Instance as YAML (JSON is valid YAML), for people and for `windlass chain`.
//
//   model:   {blocks: 70, blockSizeGB: 1.32, cacheSizeGB: 0.11}
//   arrivalRate: 0.2          # requests per second
//   maxLoad: 0.7              # optional
//   servers:
//   - {name: s0, memoryGB: 40, communicationSeconds: 0.05, blockSeconds: 0.109}
//
// Instead of sizes and times, a file may say which model on which accelerators, and the mean lengths of its requests:
//
//   model:   {name: llama3-70b}                       # or config: {inline: {the fields of a config.json}}
//   workload: {inputTokens: 2048, outputTokens: 28}
//   servers:
//   - {name: s0, accelerator: l40s, gpus: 1, communicationSeconds: 0.05}
//
// A server may add loadGBPerSecond (default 1) and tokenTimes: {blockOverheadSeconds, blockPrefillSecondsPerToken,
// blockDecodeSecondsPerToken, communicationFirstSeconds, communicationSecondsPerToken}; prefill and decode are required. Input
// from outside: every mistake is an Error, never an exception. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/chain/instance.h"

namespace windlass::chain {

// Allowed numbers: wide enough for every real instance, and narrow enough that no sum or quotient overflows.
inline constexpr double kSmallestNumber = 1e-9;
inline constexpr double kLargestNumber = 1e9;
inline constexpr int kMaxBlocks = 10'000;
inline constexpr int kMaxServers = 100'000;
// Maximum of servers times blocks, so that algorithms that grow with both answer within seconds.
inline constexpr std::int64_t kMaxCells = 3'000'000;
inline constexpr double kMaxCachesOnAServer = 1e8;  // memory / cache size

// Errors are one line: "SOURCE:LINE: servers[3].memoryGB: must be a number from 1e-9 to 1e9 (got 'abc')". Keys must be
// known and unique; numbers are plain and finite; anchors, aliases and tags are refused.
[[nodiscard]] Result<Instance> instance_from_yaml(std::string_view text, const std::string& source,
                                                  const planner::KnownAccelerators& known = {});

// Writes a file that instance_from_yaml reads back as the same instance, to the last bit of every number.
[[nodiscard]] std::string to_yaml(const Instance& instance);

}  // namespace windlass::chain
