// The worker's CUDA backend on this machine's GPU: decode, prefill and the copies of keys and values, as shares of what the
// GPU's memory, tensor cores and link reach (gpu_rates.h). The model has the shape of Llama 3.1 8B and random weights, in BF16.
// Prints a table; exits 3, saying what is missing, where there is no GPU.
#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <vector>

#include <fmt/core.h>

#include "tests/bench/gpu/gpu_rates.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_device.h"

namespace windlass::bench {
namespace {

using worker::Backend;
using worker::BlockRange;
using worker::LayerWeights;
using worker::ModelConfig;
using worker::ModelWeights;
using worker::SequenceChunk;

constexpr std::int64_t kPromptTokens = 2048;
constexpr std::int64_t kMostSequences = 64;
constexpr std::int64_t kContext = 4096;

ModelConfig llama_8b() {
  ModelConfig config;
  config.hidden_size = 4096;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 14336;
  config.vocab_size = 128256;
  config.max_context_tokens = kContext;
  config.rope_theta = 500000;
  return config;
}

// Numbers in (-scale, scale): fast ones, since there are billions.
std::vector<float> numbers(std::int64_t count, float scale) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::uint32_t state = 0x9E3779B9U;
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;
    value = (static_cast<float>(state >> 8U) * 0x1p-23F - 1) * scale;
  }
  return out;
}

// Every block has the same weights.
Result<ModelWeights> weights_of(const ModelConfig& config, const LayerWeights& layer, BlockRange blocks) {
  ModelWeights weights;
  weights.layers.push_back(layer);
  if (blocks.first == 0) weights.embedding = numbers(config.vocab_size * config.hidden_size, 1);
  if (blocks.end == config.layers) {
    weights.final_norm.weight.assign(static_cast<std::size_t>(config.hidden_size), 1);
    weights.lm_head = numbers(config.vocab_size * config.hidden_size, 0.02F);
  }
  return weights;
}

Result<std::unique_ptr<Backend>> make_backend(const ModelConfig& config) {
  LayerWeights layer;
  const std::int64_t hidden = config.hidden_size;
  layer.attention_norm.weight.assign(static_cast<std::size_t>(hidden), 1);
  layer.mlp_norm = layer.attention_norm;
  layer.qkv.values = numbers((config.q_size() + 2 * config.kv_size()) * hidden, 0.02F);
  layer.attention_out.values = numbers(hidden * config.q_size(), 0.02F);
  layer.mlp.in.values = numbers(2 * config.intermediate_size * hidden, 0.02F);
  layer.mlp.out.values = numbers(hidden * config.intermediate_size, 0.02F);
  worker::cuda::CudaBackendOptions options;
  options.kv_blocks = worker::blocks_for(kContext) * kMostSequences;
  options.max_batch_tokens = kPromptTokens;
  options.max_logit_rows = kMostSequences;
  options.max_context_tokens = kContext;
  WINDLASS_ASSIGN_OR_RETURN(auto device, worker::cuda::open_device(worker::cuda::Precision::kBf16));
  return worker::cuda::make_cuda_backend(
      config, [&](BlockRange blocks) { return weights_of(config, layer, blocks); }, std::move(device), options);
}

// The median of `times` runs after three, in seconds.
Result<double> seconds_of(int times, const std::function<Result<void>()>& run) {
  std::vector<double> seconds;
  for (int i = -3; i < times; ++i) {
    const auto before = std::chrono::steady_clock::now();
    WINDLASS_RETURN_IF_ERROR(run());
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[static_cast<std::size_t>(times / 2)];
}

class Bench {
 public:
  Bench(const ModelConfig& config, Backend& backend, const GpuRates& rates)
      : config_(config),
        backend_(backend),
        rates_(rates),
        tokens_(kPromptTokens),
        blocks_(static_cast<std::size_t>(backend.kv_blocks())) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<std::int32_t>(i * 7919 % 128256);
  }

  Result<void> run() {
    fmt::print("| what | time | share of what was measured |\n|---|---|---|\n");
    for (const std::int64_t context : {std::int64_t{512}, kContext - 1}) WINDLASS_RETURN_IF_ERROR(decode(1, context));
    for (const std::int64_t sequences : {std::int64_t{8}, kMostSequences}) WINDLASS_RETURN_IF_ERROR(decode(sequences, 1024));
    WINDLASS_RETURN_IF_ERROR(prefill());
    return copies();
  }

 private:
  [[nodiscard]] std::span<const std::int32_t> blocks_of(std::int64_t sequence) const {
    const auto each = static_cast<std::size_t>(worker::blocks_for(kContext));
    return std::span(blocks_).subspan(static_cast<std::size_t>(sequence) * each, each);
  }
  // Of products with a token, without the embedding.
  [[nodiscard]] double weights() const {
    const std::int64_t layer =
        config_.hidden_size * (2 * config_.q_size() + 2 * config_.kv_size() + 3 * config_.intermediate_size);
    return static_cast<double>(config_.layers * layer + config_.vocab_size * config_.hidden_size);
  }

  // The least that must be read: all weights once, and each sequence's keys and values.
  Result<void> decode(std::int64_t sequences, std::int64_t context) {
    std::vector<SequenceChunk> chunks;
    for (std::int64_t s = 0; s < sequences; ++s) chunks.push_back({std::span(tokens_).first(1), context, blocks_of(s), true});
    WINDLASS_ASSIGN_OR_RETURN(const double seconds, seconds_of(50, [&]() -> Result<void> {
                                WINDLASS_RETURN_IF_ERROR(backend_.forward(chunks));
                                return {};
                              }));
    const auto kv = static_cast<double>(sequences * (context + 1) * config_.layers * 2 * config_.kv_size());
    const double share = 2 * (weights() + kv) / seconds / rates_.memory_bytes_per_s;
    fmt::print("| decode, {} sequence{} at {} tokens | {:.2f} ms a token, {:.0f} tokens/s | {:.0f} % of memory bandwidth |\n",
               sequences, sequences == 1 ? "" : "s", context + 1, seconds * 1e3, static_cast<double>(sequences) / seconds,
               share * 100);
    return {};
  }

  Result<void> prefill() {
    const SequenceChunk chunk{tokens_, 0, blocks_of(0), true};
    WINDLASS_ASSIGN_OR_RETURN(const double seconds, seconds_of(10, [&]() -> Result<void> {
                                WINDLASS_RETURN_IF_ERROR(backend_.forward(std::span(&chunk, 1)));
                                return {};
                              }));
    const auto tokens = static_cast<double>(kPromptTokens);
    const double in_layers = weights() - static_cast<double>(config_.vocab_size * config_.hidden_size);
    // Each token attends to half of the prompt on average: scores, and the mixing of values.
    const double attention = 2 * tokens * tokens * static_cast<double>(config_.q_size() * config_.layers);
    const double share = (2 * in_layers * tokens + attention) / seconds / rates_.bf16_flop_per_s;
    fmt::print("| prefill of {} tokens | {:.1f} ms, {:.0f} tokens/s | {:.0f} % of the dense BF16 rate |\n", kPromptTokens,
               seconds * 1e3, tokens / seconds, share * 100);
    return {};
  }

  // One layer's keys and values of a prompt, as floats, to and from the caller's memory.
  Result<void> copies() {
    std::vector<float> values(static_cast<std::size_t>(kPromptTokens * backend_.kv_shape().values));
    const auto bytes = static_cast<double>(values.size() * sizeof(float));
    WINDLASS_ASSIGN_OR_RETURN(const double out, seconds_of(10, [&]() -> Result<void> {
                                backend_.read_kv({0, 0, kPromptTokens}, blocks_of(0), values.data());
                                return {};
                              }));
    WINDLASS_ASSIGN_OR_RETURN(const double in, seconds_of(10, [&]() -> Result<void> {
                                backend_.write_kv({0, 0, kPromptTokens}, blocks_of(0), values.data());
                                return {};
                              }));
    fmt::print("| keys and values of {} tokens in one layer, out | {:.2f} ms | {:.0f} % of the link |\n", kPromptTokens,
               out * 1e3, bytes / out / rates_.download_bytes_per_s * 100);
    fmt::print("| the same, in | {:.2f} ms | {:.0f} % of the link |\n", in * 1e3, bytes / in / rates_.upload_bytes_per_s * 100);
    return {};
  }

  const ModelConfig& config_;
  Backend& backend_;
  const GpuRates rates_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> blocks_;
};

Result<void> run_bench() {
  WINDLASS_ASSIGN_OR_RETURN(const GpuRates rates, measure_gpu());
  WINDLASS_ASSIGN_OR_RETURN(const auto device, worker::cuda::open_device(worker::cuda::Precision::kBf16));
  fmt::print(
      "{}, {}. Measured in this run: memory {:.0f} GB/s (a copy, bytes read and written), dense BF16 {:.0f} TFLOP/s, link "
      "{:.1f} GB/s in and {:.1f} GB/s out.\n\n",
      device->name(), worker::cuda::describe(), rates.memory_bytes_per_s / 1e9, rates.bf16_flop_per_s / 1e12,
      rates.upload_bytes_per_s / 1e9, rates.download_bytes_per_s / 1e9);
  const ModelConfig config = llama_8b();
  WINDLASS_ASSIGN_OR_RETURN(const auto backend, make_backend(config));
  return Bench(config, *backend, rates).run();
}

}  // namespace
}  // namespace windlass::bench

// With any argument it only says whether there is a GPU.
int main(int argc, char**) {
  using namespace windlass;
  if (const auto usable = worker::cuda::usable_devices(); !usable.ok()) {
    fmt::print(stderr, "worker_gpu_benchmark: {}\n", usable.error().message);
    return 3;
  }
  if (argc > 1) {
    fmt::print("{}\n", worker::cuda::describe());
    return 0;
  }
  const auto outcome = bench::run_bench();
  if (outcome.ok()) return 0;
  fmt::print(stderr, "worker_gpu_benchmark: {}\n", outcome.error().message);
  return 1;
}
