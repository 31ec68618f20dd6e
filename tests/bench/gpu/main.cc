// Benchmarks the worker's CUDA backend on this machine's GPU: decode, prefill and copies of keys and values, as shares of what
// the GPU's memory, tensor cores and link reach (gpu_rates.h). Models have random weights. Shapes: Llama 3.1 8B in BF16 and
// with 8-bit weights, and a quarter of the layers of Qwen3 30B-A3B (a mixture of experts). Decode is greedy. Prints a table;
// without a GPU, exits 3 and says what is missing.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/core.h>

#include "tests/bench/gpu/gpu_rates.h"
#include "tests/bench/median.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_device.h"

namespace windlass::bench {
namespace {

using worker::Backend;
using worker::BlockRange;
using worker::LayerWeights;
using worker::MlpWeights;
using worker::ModelConfig;
using worker::ModelWeights;
using worker::SequenceChunk;
using worker::WeightFormat;
using worker::WeightMatrix;

constexpr std::int64_t kPromptTokens = 2048;
constexpr std::int64_t kMaxSequences = 64;
constexpr std::int64_t kContext = 4096;
constexpr int kBefore = 3;  // warm-up runs

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

ModelConfig qwen3_30b_a3b_quarter() {
  ModelConfig config;
  config.hidden_size = 2048;
  config.layers = 12;  // of 48
  config.heads = 32;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.experts = 128;
  config.experts_per_token = 8;
  config.expert_intermediate_size = 768;
  config.normalise_expert_weights = true;
  config.vocab_size = 151936;
  config.max_context_tokens = kContext;
  config.rope_theta = 1000000;
  return config;
}

struct Model {
  const char* name;
  ModelConfig config;
  WeightFormat weights;
  bool fp8_activations = false;
};

// Numbers in (-scale, scale), from a fast generator, since there are billions.
std::vector<float> numbers(std::int64_t count, float scale) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::uint32_t state = 0x9E3779B9U;
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;
    value = (static_cast<float>(state >> 8U) * 0x1p-23F - 1) * scale;
  }
  return out;
}

// All blocks share the same weights.
Result<ModelWeights> weights_of(const ModelConfig& config, const LayerWeights& layer, BlockRange blocks) {
  ModelWeights weights;
  weights.layers.push_back(layer);
  if (blocks.first == 0) weights.embedding.values = numbers(config.vocab_size * config.hidden_size, 1);
  if (blocks.end == config.layers) {
    weights.final_norm.weight.assign(static_cast<std::size_t>(config.hidden_size), 1);
    weights.lm_head.values = numbers(config.vocab_size * config.hidden_size, 0.02F);
  }
  return weights;
}

WeightMatrix matrix(std::int64_t out, std::int64_t in, WeightFormat format) {
  WeightMatrix matrix{format};
  const std::vector<float> values = numbers(out * in, 0.02F);
  for (std::int64_t row = 0; row < out; ++row) {
    const auto of_row = std::span(values).subspan(static_cast<std::size_t>(row * in), static_cast<std::size_t>(in));
    static_cast<void>(worker::append_row(matrix, of_row, 0, in));  // whose numbers are finite
  }
  return matrix;
}

Result<std::unique_ptr<Backend>> make_backend(const Model& model) {
  const ModelConfig& config = model.config;
  LayerWeights layer;
  const std::int64_t hidden = config.hidden_size;
  layer.attention_norm.weight.assign(static_cast<std::size_t>(hidden), 1);
  layer.mlp_norm = layer.attention_norm;
  layer.qkv = matrix(config.q_size() + 2 * config.kv_size(), hidden, model.weights);
  layer.attention_out = matrix(hidden, config.q_size(), model.weights);
  const auto mlp = [&](std::int64_t width) {
    MlpWeights made;
    made.in = matrix(2 * width, hidden, model.weights);
    made.out = matrix(hidden, width, model.weights);
    return made;
  };
  if (config.experts > 0) {
    layer.router = numbers(config.experts * hidden, 0.02F);
    layer.experts.assign(static_cast<std::size_t>(config.experts), mlp(config.expert_intermediate_size));
  } else {
    layer.mlp = mlp(config.intermediate_size);
  }
  worker::cuda::CudaBackendOptions options;
  options.kv_blocks = worker::blocks_for(kContext) * kMaxSequences;
  options.max_batch_tokens = kPromptTokens;
  options.max_logit_rows = kMaxSequences;
  options.max_context_tokens = kContext;
  options.weights = model.weights;
  options.fp8_activations = model.fp8_activations;
  WINDLASS_ASSIGN_OR_RETURN(auto device, worker::cuda::open_device(worker::cuda::Precision::kBf16));
  return worker::cuda::make_cuda_backend(
      config, [&](BlockRange blocks) { return weights_of(config, layer, blocks); }, std::move(device), options);
}

class Bench {
 public:
  Bench(const Model& model, Backend& backend, const GpuRates& rates)
      : model_(model),
        config_(model.config),
        backend_(backend),
        rates_(rates),
        tokens_(kPromptTokens),
        blocks_(static_cast<std::size_t>(backend.kv_blocks())) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<std::int32_t>(i * 7919 % 128000);
  }

  Result<void> run() {
    fmt::print("\n{}:\n\n| what | time | share of what was measured |\n|---|---|---|\n", model_.name);
    for (const std::int64_t context : {std::int64_t{512}, kContext - 1}) WINDLASS_RETURN_IF_ERROR(decode(1, context));
    for (const std::int64_t sequences : {std::int64_t{8}, kMaxSequences}) WINDLASS_RETURN_IF_ERROR(decode(sequences, 1024));
    WINDLASS_RETURN_IF_ERROR(prefill());
    return copies();
  }

 private:
  [[nodiscard]] std::span<const std::int32_t> blocks_of(std::int64_t sequence) const {
    const auto each = static_cast<std::size_t>(worker::blocks_for(kContext));
    return std::span(blocks_).subspan(static_cast<std::size_t>(sequence) * each, each);
  }
  // Numbers in the matrices of all layers, with `mlps` MLPs per layer.
  [[nodiscard]] double in_layers(double mlps) const {
    const std::int64_t width = config_.experts > 0 ? config_.expert_intermediate_size : config_.intermediate_size;
    const auto attention = static_cast<double>(2 * config_.q_size() + 2 * config_.kv_size());
    return static_cast<double>(config_.layers * config_.hidden_size) * (attention + mlps * static_cast<double>(3 * width));
  }
  // Expected number of a layer's MLPs that `tokens` tokens use, if routers are even.
  [[nodiscard]] double mlps_of(std::int64_t tokens) const {
    if (config_.experts == 0) return 1;
    const auto all = static_cast<double>(config_.experts);
    const double idle = 1 - static_cast<double>(config_.experts_per_token) / all;
    return all * (1 - std::pow(idle, static_cast<double>(tokens)));
  }

  // The minimum to read: the used weights once, and each sequence's keys and values.
  Result<void> decode(std::int64_t sequences, std::int64_t context) {
    std::vector<SequenceChunk> chunks;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const auto token = std::span(tokens_).subspan(static_cast<std::size_t>(s), 1);
      chunks.push_back({token, context, blocks_of(s), true, {}, {}, {1, 1}});
    }
    WINDLASS_ASSIGN_OR_RETURN(const double seconds, median_s(50, kBefore, [&]() -> Result<void> {
                                WINDLASS_RETURN_IF_ERROR(backend_.forward(chunks));
                                return {};
                              }));
    const auto kv = static_cast<double>(sequences * (context + 1) * config_.layers * 2 * config_.kv_size());
    const int bytes = model_.weights == WeightFormat::kFp32 ? 2 : 1;  // per number in layers
    const auto output = static_cast<double>(config_.vocab_size * config_.hidden_size);
    const double share = (bytes * in_layers(mlps_of(sequences)) + 2 * (output + kv)) / seconds / rates_.memory_bytes_per_s;
    fmt::print("| decode, {} sequence{} at {} tokens | {:.2f} ms a token, {:.0f} tokens/s | {:.0f} % of memory bandwidth |\n",
               sequences, sequences == 1 ? "" : "s", context + 1, seconds * 1e3, static_cast<double>(sequences) / seconds,
               share * 100);
    return {};
  }

  Result<void> prefill() {
    const SequenceChunk chunk{tokens_, 0, blocks_of(0), true};
    WINDLASS_ASSIGN_OR_RETURN(const double seconds, median_s(10, kBefore, [&]() -> Result<void> {
                                WINDLASS_RETURN_IF_ERROR(backend_.forward(std::span(&chunk, 1)));
                                return {};
                              }));
    const auto tokens = static_cast<double>(kPromptTokens);
    const double mlps = config_.experts > 0 ? static_cast<double>(config_.experts_per_token) : 1;
    // Each token attends to half of the prompt on average: scores, and mixing of values.
    const double attention = 2 * tokens * tokens * static_cast<double>(config_.q_size() * config_.layers);
    const double share = (2 * in_layers(mlps) * tokens + attention) / seconds / rates_.bf16_flop_per_s;
    fmt::print("| prefill of {} tokens | {:.1f} ms, {:.0f} tokens/s | {:.0f} % of the dense BF16 rate |\n", kPromptTokens,
               seconds * 1e3, tokens / seconds, share * 100);
    return {};
  }

  // One layer's keys and values of a prompt, as floats, to and from the caller's memory.
  Result<void> copies() {
    std::vector<float> values(static_cast<std::size_t>(kPromptTokens * backend_.kv_shape().values));
    const auto bytes = static_cast<double>(values.size() * sizeof(float));
    WINDLASS_ASSIGN_OR_RETURN(const double out, median_s(10, kBefore, [&]() -> Result<void> {
                                backend_.read_kv({0, 0, kPromptTokens}, blocks_of(0), values.data());
                                return {};
                              }));
    WINDLASS_ASSIGN_OR_RETURN(const double in, median_s(10, kBefore, [&]() -> Result<void> {
                                backend_.write_kv({0, 0, kPromptTokens}, blocks_of(0), values.data());
                                return {};
                              }));
    fmt::print("| keys and values of {} tokens in one layer, out | {:.2f} ms | {:.0f} % of the link |\n", kPromptTokens,
               out * 1e3, bytes / out / rates_.download_bytes_per_s * 100);
    fmt::print("| the same, in | {:.2f} ms | {:.0f} % of the link |\n", in * 1e3, bytes / in / rates_.upload_bytes_per_s * 100);
    return {};
  }

  const Model& model_;
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
      "{:.1f} GB/s in and {:.1f} GB/s out.\n",
      device->name(), worker::cuda::describe(), rates.memory_bytes_per_s / 1e9, rates.bf16_flop_per_s / 1e12,
      rates.upload_bytes_per_s / 1e9, rates.download_bytes_per_s / 1e9);
  for (const Model& model : {Model{"Llama 3.1 8B, BF16", llama_8b(), WeightFormat::kFp32},
                             Model{"Llama 3.1 8B, FP8 weights", llama_8b(), WeightFormat::kFp8},
                             Model{"Llama 3.1 8B, FP8 weights and activations", llama_8b(), WeightFormat::kFp8, true},
                             Model{"Qwen3 30B-A3B, 12 of 48 layers, BF16", qwen3_30b_a3b_quarter(), WeightFormat::kFp32}}) {
    if (model.fp8_activations && !device->multiplies_fp8()) {
      fmt::print("\n{}: skipped, this GPU's tensor cores do not support FP8.\n", model.name);
      continue;
    }
    WINDLASS_ASSIGN_OR_RETURN(const auto backend, make_backend(model));
    WINDLASS_RETURN_IF_ERROR(Bench(model, *backend, rates).run());
  }
  return {};
}

}  // namespace
}  // namespace windlass::bench

// With any argument, only reports whether there is a GPU.
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
