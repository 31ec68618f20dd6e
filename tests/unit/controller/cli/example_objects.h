// A ModelService and its AcceleratorClass as YAML, and a folder for them, for the tests of the commands.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace windlass::cli {

inline constexpr const char* kTinyYaml = R"(apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {name: local-cpu}
spec:
  resourceName: windlass.dev/cpu-slice
  memory: 1Gi
  memoryBandwidthBytesPerSecond: 1G
  peakFlopsPerSecond: {fp32: 40M}
  gpusPerNode: 4
  pricePerHour: "0.25"
---
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: tiny}
spec:
  model:
    uri: file:///nonexistent/windlass-model
    config:
      inline: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
               num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 512, max_position_embeddings: 512, torch_dtype: float32,
               rms_norm_eps: 0.00001, tie_word_embeddings: false}
  slo: {timeToFirstToken: 2s, timePerOutputToken: 200ms}
  workload: {requestsPerSecond: 1, inputTokens: 32, outputTokens: 16}
  accelerators: [{class: local-cpu}]
)";

// A temporary folder, deleted at the end.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> next{0};
    path_ = std::filesystem::temp_directory_path() /
            ("windlass-cli-" + std::to_string(getpid()) + "-" + std::to_string(next.fetch_add(1)));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& text) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

// The text with the first `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace windlass::cli
