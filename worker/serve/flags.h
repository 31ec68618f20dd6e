// The flags of windlass-worker: parsing and validation only. Pure; called once by main.
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

inline constexpr std::int64_t kMaxBatchTokens = 65536;  // the largest --max-batch-tokens

struct ServeFlags {
  std::string model_folder;
  std::string host = "127.0.0.1";
  int port = 0;
  std::string served_name;  // default: the folder's last component
  std::string backend = "cpu";
  cuda::Precision precision = cuda::Precision::kBf16;  // for backend cuda; cpu uses FP32
  bool fp8_activations = false;                        // for products of more than 64 tokens, with FP8 weights
  double gpu_memory_share = 0.9;                       // fraction of the device's memory that this worker may use
  std::string chat_template;                           // a file; empty: the model's own
  std::int64_t max_concurrent = 8;
  std::int64_t max_batch_tokens = 0;    // 0: 256, on GPUs 1024, and at least max_concurrent
  std::int64_t kv_cache_tokens = 0;     // 0: enough for max_concurrent full contexts, within 2 GiB or the device's memory
  std::int64_t max_context_tokens = 0;  // 0: the model's own
  bool prefix_caching = true;
  double drain_timeout_s = 1800;
  double request_timeout_s = 0;  // 0: none
  double measure_time_s = 2;     // for iterations, before the worker is ready (engine/self_measurement.h); 0: none
  int threads = 1;               // of all ranks together
  bool pin_threads = false;      // each to its own processor
  WeightFormat weights = WeightFormat::kFp32;
  int tensor_parallel = 1;             // number of ranks
  int tensor_rank = 0;                 // rank of this process; rank 0 starts the others
  int tensor_memory = -1;              // file descriptor of the ranks' shared memory; only for ranks other than 0
  Role role = Role::kUnified;          // initial role
  std::optional<BlockRange> blocks;    // initial blocks; nullopt: all of the model
  std::vector<std::string> next_hops;  // for requests that name no chain: the workers after this one
  std::string token_file;              // the installation's token, which may change role and blocks; empty: nobody may
};

struct ModelInitFlags {
  ModelShape shape;
  std::string folder;
  bool overwrite = false;  // replace an existing model
};

// Prints the model's config.json, or the equivalent for a GGUF file.
struct ModelConfigFlags {
  std::string model;
};

// Measures the speed of this machine.
struct MeasureFlags {
  int threads = 0;  // 0: one per processor
};

// --help or --version: prints `text` to stdout and exits with 0.
struct PrintAndExit {
  std::string text;
};

using Command = std::variant<ServeFlags, ModelInitFlags, ModelConfigFlags, MeasureFlags, PrintAndExit>;

// `arguments`: without the program's name. Error: kInvalidArgument, one line naming the flag, the rule and the value.
[[nodiscard]] Result<Command> parse_flags(const std::vector<std::string>& arguments, const std::string& version_text);

// Parses "A:B" as blocks A to B - 1. Error: kInvalidArgument.
[[nodiscard]] Result<BlockRange> parse_blocks(std::string_view text);

}  // namespace windlass::worker
