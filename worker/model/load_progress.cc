// Text for people and for /ready.
#include "worker/model/load_progress.h"

#include <algorithm>

#include <fmt/core.h>

namespace windlass::worker {

const char* to_string(LoadStage stage) {
  switch (stage) {
    case LoadStage::kFiles: return "files";
    case LoadStage::kWeights: return "weights";
    case LoadStage::kKvCache: return "kv_cache";
    case LoadStage::kRanks: return "ranks";
    case LoadStage::kTokenizer: return "tokenizer";
    case LoadStage::kMeasuring: return "measuring";
  }
  return "";
}

std::string to_text(const LoadProgressNow& progress) {
  const auto gb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  switch (progress.stage) {
    case LoadStage::kFiles: return "checking the files";
    case LoadStage::kWeights:
      return fmt::format("read {:.2f} of {:.2f} GB of weights ({}%)", gb(progress.read_bytes), gb(progress.total_bytes),
                         100 * progress.read_bytes / std::max<std::int64_t>(1, progress.total_bytes));
    case LoadStage::kKvCache: return fmt::format("allocating a KV cache of {:.2f} GB", gb(progress.kv_cache_bytes));
    case LoadStage::kRanks: return "waiting for the other ranks";
    case LoadStage::kTokenizer: return "reading the tokenizer";
    case LoadStage::kMeasuring: return "measuring prefill and decode";
  }
  return "";
}

}  // namespace windlass::worker
