// Builds each engine's command line: the program, the engine's own names for model, address, tensor parallelism, context, batch
// size and the settings that a strategy chose, and the user's extra arguments. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/runtime/engine_drain.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// The largest --tensor-parallel of windlass-worker.
inline constexpr int kMaxWindlassRanks = 64;

struct EngineModel {
  std::string path;         // a folder or file in the container, or the name of a Hub repository
  std::string revision;     // of a repository; empty: the default
  bool on_the_hub = false;  // the engine downloads it itself
};

// The address that an engine listens on.
struct EngineAddress {
  std::string host;
  int port = 0;
};
// A pod's own address, which the kubelet fills in.
[[nodiscard]] EngineAddress pod_address();

// Where pods of trtllm-serve find kTensorRtOptions, unless the user names a file of their own.
inline constexpr const char* kTensorRtOptionsFile = "/etc/windlass/engine/options.yaml";
// /prometheus/metrics, with the running and waiting requests that say when a worker has drained.
inline constexpr const char* kTensorRtOptions = "return_perf_metrics: true\nenable_iter_perf_stats: true\n";

struct EngineCommand {
  std::vector<std::string> program;  // empty: the image's entry point
  std::vector<std::string> args;
};

// spec.extra_args override our arguments, under any of an option's names, and no option appears twice. Error: they set an
// argument that the gateway and the probes rely on (address, served name), or the engine has no option for a requested setting.
[[nodiscard]] Result<EngineCommand> engine_command(const Launch& spec, const EngineModel& model, const EngineAddress& address,
                                                   EngineVersion version = {});

// The arguments of `theirs` without options that `ours` already has, under any of the engine's names.
[[nodiscard]] std::vector<std::string> other_args(const Launch& spec, const std::vector<std::string>& ours,
                                                  const std::vector<std::string>& theirs);

}  // namespace windlass::controller
