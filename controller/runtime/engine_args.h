// How each engine is told what to serve: its program, its own names for model, address, tensor parallelism, context and batch,
// and what the user adds to them. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/runtime/engine_drain.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

// The largest --tensor-parallel of our own engine.
inline constexpr int kMaxWindlassRanks = 64;

struct EngineModel {
  std::string path;         // a folder or file in the container, or a repository's name on the Hub
  std::string revision;     // of a repository; empty: its default
  bool on_the_hub = false;  // the engine fetches it by itself
};

// Where it listens.
struct EngineAddress {
  std::string host;
  int port = 0;
};
// A pod's own, which the kubelet fills in.
[[nodiscard]] EngineAddress pod_address();

struct EngineCommand {
  std::vector<std::string> program;  // empty: the image's entry point
  std::vector<std::string> args;
};

// spec.extra_args win over ours, whichever of an option's names they use, and nothing stands twice. Refused: what the gateway
// and the probes rely on (address, served name), and what the engine cannot be told.
[[nodiscard]] Result<EngineCommand> engine_command(const Launch& spec, const EngineModel& model, const EngineAddress& address,
                                                   EngineVersion version = {});

// The arguments of `theirs` that do not name an option which `ours` already says, under any of the engine's names.
[[nodiscard]] std::vector<std::string> other_args(const Launch& spec, const std::vector<std::string>& ours,
                                                  const std::vector<std::string>& theirs);

}  // namespace windlass::controller
