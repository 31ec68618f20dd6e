// One forward pass: all tokens of all chunks go through each matrix together; only attention looks at single sequences.
#include "worker/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <vector>

#include <fmt/core.h>

#include "worker/backend/cpu/ops.h"

namespace windlass::worker {
namespace {

std::vector<float> floats(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); }

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelConfig& config, ModelWeights weights, const CpuBackendOptions& options)
      : config_(config),
        weights_(std::move(weights)),
        options_(options),
        blocks_(options.blocks.value_or(config.all_blocks())),
        rope_(cpu::make_rope_table(config, options.max_context_tokens)),
        keys_(floats(blocks_.size() * layer_cache_size())),
        values_(floats(blocks_.size() * layer_cache_size())),
        residual_(floats(options.max_batch_tokens * config.hidden_size)),
        normed_(floats(options.max_batch_tokens * config.hidden_size)),
        qkv_(floats(options.max_batch_tokens * qkv_width())),
        mixed_(floats(options.max_batch_tokens * config.q_size())),
        gate_up_(floats(options.max_batch_tokens * 2 * config.intermediate_size)),
        activated_(floats(options.max_batch_tokens * config.intermediate_size)),
        last_(floats(ends() ? options.max_logit_rows * config.hidden_size : 0)),
        logits_(floats(ends() ? options.max_logit_rows * config.vocab_size : 0)) {
    assert(blocks_.first >= 0 && blocks_.size() >= 1 && blocks_.end <= config.layers);
    assert(static_cast<std::int64_t>(weights_.layers.size()) == blocks_.size());
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return config_.vocab_size; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return options_.kv_blocks; }

  [[nodiscard]] KvShape kv_shape() const override { return {blocks_.size(), 2 * config_.kv_size()}; }

  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    const std::int64_t first = range.layer * layer_cache_size();
    for (std::int64_t position = range.start; position < range.start + range.tokens; ++position) {
      cpu::load_kv(config_, keys_.data() + first, values_.data() + first,
                   blocks[static_cast<std::size_t>(position / kKvBlockTokens)], position % kKvBlockTokens, out,
                   out + config_.kv_size());
      out += 2 * config_.kv_size();
    }
  }

  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    const std::int64_t first = range.layer * layer_cache_size();
    for (std::int64_t position = range.start; position < range.start + range.tokens; ++position) {
      cpu::store_kv(config_, in, in + config_.kv_size(), blocks[static_cast<std::size_t>(position / kKvBlockTokens)],
                    position % kKvBlockTokens, keys_.data() + first, values_.data() + first);
      in += 2 * config_.kv_size();
    }
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    for (const SequenceChunk& chunk : chunks) {
      tokens += tokens_of(chunk);
      rows += chunk.wants_logits && ends() ? 1 : 0;
    }
    if (tokens > options_.max_batch_tokens || rows > options_.max_logit_rows) {
      return Error{ErrorCode::kInternal, fmt::format("forward: found {} tokens and {} logit rows, allowed are {} and {}",
                                                     tokens, rows, options_.max_batch_tokens, options_.max_logit_rows)};
    }
    const std::int64_t hidden = config_.hidden_size;
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    if (begins()) {
      embed(chunks);
    } else {
      take(chunks);
    }
    for (std::int64_t i = skip; i < blocks_.size(); ++i) {
      const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
      cpu::rms_norm(residual_.data(), layer.attention_norm.data(), normed_.data(), tokens, hidden, eps);
      if (config_.qkv_bias) cpu::set_bias(layer.qkv_bias.data(), qkv_.data(), tokens, qkv_width());
      cpu::matmul(normed_.data(), layer.qkv.data(), qkv_.data(), tokens, hidden, qkv_width(), config_.qkv_bias);
      attend(chunks, i);
      if (layer_done) layer_done(i);
      if (config_.attention_out_bias) cpu::add_bias(layer.out_bias.data(), residual_.data(), tokens, hidden);
      cpu::matmul(mixed_.data(), layer.attention_out.data(), residual_.data(), tokens, config_.q_size(), hidden, true);
      cpu::rms_norm(residual_.data(), layer.mlp_norm.data(), normed_.data(), tokens, hidden, eps);
      cpu::matmul(normed_.data(), layer.gate_up.data(), gate_up_.data(), tokens, hidden, 2 * config_.intermediate_size);
      cpu::swiglu(gate_up_.data(), activated_.data(), tokens, config_.intermediate_size);
      cpu::matmul(activated_.data(), layer.down.data(), residual_.data(), tokens, config_.intermediate_size, hidden, true);
    }
    if (!ends()) return std::span<const float>(residual_.data(), static_cast<std::size_t>(tokens * hidden));
    std::int64_t row = 0;
    std::int64_t end = 0;
    for (const SequenceChunk& chunk : chunks) {
      end += tokens_of(chunk);
      if (chunk.wants_logits) std::copy_n(residual_.data() + (end - 1) * hidden, hidden, last_.data() + hidden * row++);
    }
    if (rows > 0) {
      cpu::rms_norm(last_.data(), weights_.final_norm.data(), last_.data(), rows, hidden, eps);
      cpu::matmul(last_.data(), weights_.output_matrix().data(), logits_.data(), rows, hidden, config_.vocab_size);
    }
    return std::span<const float>(logits_.data(), static_cast<std::size_t>(rows * config_.vocab_size));
  }

  [[nodiscard]] std::int64_t layer_cache_size() const { return options_.kv_blocks * kKvBlockTokens * config_.kv_size(); }
  [[nodiscard]] std::int64_t qkv_width() const { return config_.q_size() + 2 * config_.kv_size(); }

  [[nodiscard]] bool begins() const { return blocks_.first == 0; }
  [[nodiscard]] bool ends() const { return blocks_.end == config_.layers; }
  [[nodiscard]] std::int64_t tokens_of(const SequenceChunk& chunk) const {
    if (begins()) return static_cast<std::int64_t>(chunk.tokens.size());
    return static_cast<std::int64_t>(chunk.hidden.size()) / config_.hidden_size;
  }

  void take(std::span<const SequenceChunk> chunks) {
    float* to = residual_.data();
    for (const SequenceChunk& chunk : chunks) to = std::copy(chunk.hidden.begin(), chunk.hidden.end(), to);
  }

  void embed(std::span<const SequenceChunk> chunks) {
    float* to = residual_.data();
    for (const SequenceChunk& chunk : chunks) {
      for (const std::int32_t token : chunk.tokens) {
        assert(token >= 0 && token < config_.vocab_size);
        std::copy_n(weights_.embedding.data() + token * config_.hidden_size, config_.hidden_size, to);
        to += config_.hidden_size;
      }
    }
  }

  // Norms (where there are any) and rotates queries and keys, stores keys and values in the cache, then mixes: qkv_ -> mixed_.
  // `layer`: counted from this backend's first block.
  void attend(std::span<const SequenceChunk> chunks, std::int64_t layer) {
    const std::int64_t kv_size = config_.kv_size();
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    const auto eps = static_cast<float>(config_.rms_norm_eps);
    float* keys = keys_.data() + layer * layer_cache_size();
    float* values = values_.data() + layer * layer_cache_size();
    std::int64_t first = 0;
    for (const SequenceChunk& chunk : chunks) {
      const std::int64_t count = tokens_of(chunk);
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t position = chunk.start + t;
        float* row = qkv_.data() + (first + t) * qkv_width();
        if (config_.qk_norm) {
          float* key = row + config_.q_size();
          cpu::rms_norm(row, weights.q_norm.data(), row, config_.heads, config_.head_dim, eps);
          cpu::rms_norm(key, weights.k_norm.data(), key, config_.kv_heads, config_.head_dim, eps);
        }
        // Query and key heads stand side by side, so one rotation takes both.
        cpu::rope(row, config_.heads + config_.kv_heads, rope_, position);
        cpu::store_kv(config_, row + config_.q_size(), row + config_.q_size() + kv_size,
                      chunk.blocks[static_cast<std::size_t>(position / kKvBlockTokens)], position % kKvBlockTokens, keys,
                      values);
      }
      cpu::attention(config_, config_.window_of(blocks_.first + layer), qkv_.data() + first * qkv_width(), qkv_width(), count,
                     chunk.start, {keys, values, chunk.blocks}, mixed_.data() + first * config_.q_size(), scratch_);
      first += count;
    }
  }

  ModelConfig config_;
  ModelWeights weights_;
  CpuBackendOptions options_;
  BlockRange blocks_;
  cpu::RopeTable rope_;
  std::vector<float> keys_;    // (blocks_.size(), kv_blocks) of the tiles that ops.h describes
  std::vector<float> values_;  // the same
  std::vector<float> residual_, normed_, qkv_, mixed_, gate_up_, activated_, last_, logits_;
  cpu::AttentionScratch scratch_;
};

}  // namespace

std::int64_t kv_bytes_per_token(const ModelConfig& config, std::int64_t layers) {
  return 2 * layers * config.kv_size() * static_cast<std::int64_t>(sizeof(float));
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config, ModelWeights weights,
                                                  const CpuBackendOptions& options) {
  try {
    cpu::set_blas_threads(options.threads);
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(config, std::move(weights), options));
  } catch (const std::exception&) {
    const auto cache_bytes = static_cast<double>(
        options.kv_blocks * kKvBlockTokens * kv_bytes_per_token(config, options.blocks.value_or(config.all_blocks()).size()));
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("a KV cache of {} tokens ({:.1f} GiB) does not fit into this machine's memory; lower --kv-cache-tokens or "
                    "--max-context-tokens",
                    options.kv_blocks * kKvBlockTokens, cache_bytes / (1ULL << 30U))};
  }
}

}  // namespace windlass::worker
