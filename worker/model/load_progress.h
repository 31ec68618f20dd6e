// LoadProgress: how far the loading of a model is, for /ready and the log.
//
// Written by the loading thread, read by any. Plain atomics: a reader may see a stage together with slightly older numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace windlass::worker {

enum class LoadStage { kFiles, kWeights, kKvCache, kRanks, kTokenizer, kMeasuring };
// As in /ready: "files", "weights", "kv_cache", "ranks", "tokenizer", "measuring".
[[nodiscard]] const char* to_string(LoadStage stage);

// A snapshot.
struct LoadProgressNow {
  LoadStage stage = LoadStage::kFiles;
  std::int64_t read_bytes = 0;      // of the tensors that this worker, or this rank, needs
  std::int64_t total_bytes = 0;     // 0 until known
  std::int64_t kv_cache_bytes = 0;  // 0 until known

  bool operator==(const LoadProgressNow&) const = default;
};
// For people: "read 1.20 of 5.50 GB of weights (21%)".
[[nodiscard]] std::string to_text(const LoadProgressNow& progress);

class LoadProgress {
 public:
  void enter(LoadStage stage) { stage_ = stage; }
  void expect(std::int64_t bytes) { total_bytes_ = bytes; }
  void read(std::int64_t bytes) { read_bytes_ += bytes; }
  void expect_kv_cache(std::int64_t bytes) { kv_cache_bytes_ = bytes; }

  [[nodiscard]] LoadProgressNow now() const { return {stage_, read_bytes_, total_bytes_, kv_cache_bytes_}; }

 private:
  std::atomic<LoadStage> stage_{LoadStage::kFiles};
  std::atomic<std::int64_t> read_bytes_{0}, total_bytes_{0}, kv_cache_bytes_{0};
};

}  // namespace windlass::worker
