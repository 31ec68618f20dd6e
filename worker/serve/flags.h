// The flags of windlass-worker: parsing and checking, nothing else. Pure; called once by main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"
#include "worker/model/config.h"
#include "worker/model/model_init.h"
#include "worker/model/weight_matrix.h"
#include "worker/serve/role.h"

namespace windlass::worker {

struct ServeFlags {
  std::string model_folder;
  std::string host = "127.0.0.1";
  int port = 0;
  std::string served_name;  // default: the folder's last component
  std::string backend = "cpu";
  cuda::Precision precision = cuda::Precision::kBf16;  // of backend cuda; the other's is FP32
  bool fp8_activations = false;                        // of products of more than 64 tokens, with weights as FP8
  double gpu_memory_share = 0.9;                       // of the device's memory, that this worker may take
  std::string chat_template;                           // a file; empty: the model's own
  std::int64_t max_concurrent = 8;
  std::int64_t kv_cache_tokens = 0;     // 0: enough for max_concurrent whole contexts, within 2 GiB or the device's memory
  std::int64_t max_context_tokens = 0;  // 0: the model's own
  bool prefix_caching = true;
  double drain_timeout_s = 1800;
  double request_timeout_s = 0;  // 0: none
  double measure_time_s = 2;     // of iterations before the worker is ready (engine/self_measurement.h); 0: none
  int threads = 1;               // of all ranks together
  bool pin_threads = false;      // each onto a processor of its own
  WeightFormat weights = WeightFormat::kFp32;
  int tensor_parallel = 1;             // ranks
  int tensor_rank = 0;                 // of this process; others than 0 are started by that one alone
  int tensor_memory = -1;              // descriptor of what the ranks share; for ranks other than 0
  Role role = Role::kUnified;          // at the start
  std::optional<BlockRange> blocks;    // at the start; nullopt: all of the model's
  std::vector<std::string> next_hops;  // of requests that name no chain: the workers after this one
  std::string token_file;              // of the installation's token, which may change role and blocks; empty: nobody may
};

struct ModelInitFlags {
  ModelShape shape;
  std::string folder;
  bool overwrite = false;  // a model that is there already
};

// Print the model's config.json, or what a GGUF file says in its words.
struct ModelConfigFlags {
  std::string model;
};

// Measure what this machine can do.
struct MeasureFlags {
  int threads = 0;  // 0: as many as there are processors
};

// --help or --version: text for stdout, exit 0.
struct PrintAndExit {
  std::string text;
};

using Command = std::variant<ServeFlags, ModelInitFlags, ModelConfigFlags, MeasureFlags, PrintAndExit>;

// arguments: without the program's name. Error: kInvalidArgument, one line that names flag, found and allowed.
[[nodiscard]] Result<Command> parse_flags(const std::vector<std::string>& arguments, const std::string& version_text);

// "A:B": blocks A to B - 1. Error: kInvalidArgument.
[[nodiscard]] Result<BlockRange> parse_blocks(std::string_view text);

}  // namespace windlass::worker
