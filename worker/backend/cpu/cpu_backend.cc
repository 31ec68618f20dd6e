// One forward pass: all tokens of all chunks go through each matrix together; only attention works on single sequences. config_
// has this rank's heads and width; tensors of the whole hidden size are complete, with the same bits, on every rank.
#include "worker/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <system_error>
#include <vector>

#include <fmt/core.h>

#include "worker/backend/cpu/experts.h"
#include "worker/backend/cpu/matrix_product.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/thread_team.h"
#include "worker/model/large_memory.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kSwiGluOperations = 16;  // approximate, per number

std::vector<float> floats(std::int64_t count) {
  std::vector<float> zeros;
  reserve_large(zeros, static_cast<std::size_t>(count));
  zeros.resize(static_cast<std::size_t>(count));
  return zeros;
}

TensorSlice slice_of(const CpuBackendOptions& options) {
  return options.group == nullptr ? TensorSlice{} : TensorSlice{options.group->rank(), options.group->ranks()};
}

BlockRange blocks_of(const ModelConfig& config, const CpuBackendOptions& options) {
  return options.blocks.value_or(config.all_blocks());
}

std::int64_t widest_mlp(const ModelConfig& config) {
  return std::max(config.has_mlp() ? config.intermediate_size : 0, config.experts > 0 ? config.expert_intermediate_size : 0);
}

// Number of floats in a step's buffers and the rope tables.
struct StepSizes {
  std::int64_t hidden, qkv, mixed, mlp_in, narrow, activated, expert_rows, last, logits, rope;

  [[nodiscard]] std::int64_t all() const {
    return 2 * hidden + qkv + mixed + mlp_in + narrow + activated + expert_rows + last + logits + rope;
  }
};

// `config` is the rank's, `vocab` its share.
StepSizes step_sizes(const ModelConfig& config, const CpuBackendOptions& options, std::int64_t vocab) {
  const std::int64_t tokens = options.max_batch_tokens;
  const std::int64_t rows = blocks_of(config, options).end == config.layers ? options.max_logit_rows : 0;
  const std::int64_t width = widest_mlp(config);
  StepSizes sizes{};
  sizes.hidden = tokens * config.hidden_size;
  sizes.qkv = tokens * (config.q_size() + 2 * config.kv_size());
  sizes.mixed = tokens * config.q_size();
  sizes.mlp_in = tokens * config.mlp_in_size(width);
  sizes.narrow = config.embedding_size * std::max(tokens, options.max_logit_rows);
  sizes.activated = config.activation == Activation::kSwiGlu ? tokens * width : 0;
  sizes.expert_rows = config.experts > 0 ? tokens * config.hidden_size : 0;
  sizes.last = rows * config.hidden_size;
  sizes.logits = rows * vocab;
  sizes.rope = config.positions == Positions::kRotary ? options.max_context_tokens * 2 * (config.head_dim / 2) : 0;
  return sizes;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelConfig& config, std::shared_ptr<const ModelWeights> weights, const CpuBackendOptions& options)
      : slice_(slice_of(options)),
        config_(config_of_rank(config, slice_.ranks)),
        shared_weights_(std::move(weights)),
        weights_(*shared_weights_),
        options_(options),
        blocks_(blocks_of(config, options)),
        rope_(config.positions == Positions::kRotary ? cpu::make_rope_table(config, options.max_context_tokens)
                                                     : cpu::RopeTable{}),
        own_cache_(floats(options.group == nullptr ? cpu::KvCache::size(config_, blocks_.size(), options.kv_blocks) : 0)),
        cache_(options.group == nullptr ? cpu::KvCache(config_, blocks_.size(), options.kv_blocks, own_cache_)
                                        : kv_cache_of_rank(config, options, *options.group, slice_.rank)),
        team_(options.threads, options.processors) {
    const StepSizes sizes = step_sizes(config_, options, slice_.size(config.vocab_size));
    residual_ = floats(sizes.hidden);
    normed_ = floats(sizes.hidden);
    qkv_ = floats(sizes.qkv);
    mixed_ = floats(sizes.mixed);
    mlp_in_ = floats(sizes.mlp_in);
    narrow_ = floats(sizes.narrow);
    activated_ = floats(sizes.activated);
    expert_rows_ = floats(sizes.expert_rows);
    last_ = floats(sizes.last);
    logits_ = floats(sizes.logits);
    assert(blocks_.first >= 0 && blocks_.size() >= 1 && blocks_.end <= config.layers);
    assert(static_cast<std::int64_t>(weights_.layers.size()) == blocks_.size());
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return config_.vocab_size; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return options_.kv_blocks; }

  [[nodiscard]] KvShape kv_shape() const override { return {blocks_.size(), 2 * config_.kv_size()}; }

  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    cache_.read(range, blocks, out, out + config_.kv_size(), 2 * config_.kv_size());
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    cache_.write(range, blocks, in, in + config_.kv_size(), 2 * config_.kv_size());
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    const cpu::StaysOn here = team_.enter();
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    for (const SequenceChunk& chunk : chunks) {
      tokens += tokens_of(chunk, config_.hidden_size);
      rows += chunk.wants_logits && ends() ? 1 : 0;
    }
    if (tokens > options_.max_batch_tokens || rows > options_.max_logit_rows) {
      if (options_.group != nullptr)
        WINDLASS_RETURN_IF_ERROR(options_.group->barrier());  // on this path all ranks return the same error
      return Error{ErrorCode::kInternal, fmt::format("forward: must have at most {} tokens and {} logit rows (got {} and {})",
                                                     options_.max_batch_tokens, options_.max_logit_rows, tokens, rows)};
    }
    const std::int64_t hidden = config_.hidden_size;
    if (begins()) {
      WINDLASS_RETURN_IF_ERROR(embed(chunks, tokens));
      if (config_.positions == Positions::kLearned) add_positions(chunks);
    } else {
      take(chunks);
    }
    for (std::int64_t i = skip; i < blocks_.size(); ++i) {
      const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
      project(norm_before(layer.attention_norm, tokens), layer.qkv, layer.qkv_bias, qkv_, tokens, qkv_width());
      attend(chunks, i);
      WINDLASS_RETURN_IF_ERROR(add_product(mixed_, layer.attention_out, layer.out_bias, tokens, config_.q_size()));
      norm_after(layer.attention_norm, tokens);
      if (layer_done) layer_done(i);  // only now have all ranks written theirs
      const std::vector<float>& in = norm_before(layer.mlp_norm, tokens);
      WINDLASS_RETURN_IF_ERROR(layer.experts.empty() ? add_mlp(layer.mlp, in, tokens) : add_experts(layer, in, tokens));
      norm_after(layer.mlp_norm, tokens);
    }
    if (!ends()) return std::span<const float>(residual_.data(), static_cast<std::size_t>(tokens * hidden));
    std::int64_t row = 0;
    std::int64_t end = 0;
    for (const SequenceChunk& chunk : chunks) {
      end += tokens_of(chunk, config_.hidden_size);
      if (chunk.wants_logits) std::copy_n(residual_.data() + (end - 1) * hidden, hidden, last_.data() + hidden * row++);
    }
    if (rows > 0) {
      if (!config_.norm_after) norm(weights_.final_norm, last_, last_, rows);
      const bool projects = config_.embedding_size > 0;
      if (projects)
        product_.multiply(last_.data(), weights_.project_out.data(), narrow_.data(), rows, hidden, config_.embedding_size);
      product_.multiply(projects ? narrow_.data() : last_.data(), weights_.output_matrix(), logits_.data(), rows,
                        config_.embedding_width(), slice_.size(config_.vocab_size));
    }
    if (options_.group != nullptr) return gathered(rows);
    return std::span<const float>(logits_.data(), static_cast<std::size_t>(rows * config_.vocab_size));
  }

  // y = norm(x), for rows of the hidden size. y may be x.
  void norm(const NormWeights& weights, const std::vector<float>& x, std::vector<float>& y, std::int64_t rows) const {
    const auto eps = static_cast<float>(config_.norm_eps);
    const std::int64_t hidden = config_.hidden_size;
    if (config_.norm == Norm::kLayer) {
      cpu::layer_norm(x.data(), weights.weight.data(), weights.bias.data(), y.data(), rows, hidden, eps);
    } else {
      cpu::rms_norm(x.data(), weights.weight.data(), y.data(), rows, hidden, eps);
    }
  }

  // The input of attention or an MLP: residual_ if the norm comes after it.
  const std::vector<float>& norm_before(const NormWeights& weights, std::int64_t tokens) {
    if (config_.norm_after) return residual_;
    norm(weights, residual_, normed_, tokens);
    return normed_;
  }
  void norm_after(const NormWeights& weights, std::int64_t tokens) {
    if (config_.norm_after) norm(weights, residual_, residual_, tokens);
  }

  // y (tokens, out) = x (tokens, hidden) * w (out, hidden)^T + bias, if any.
  void project(const std::vector<float>& x, const WeightMatrix& w, const std::vector<float>& bias, std::vector<float>& y,
               std::int64_t tokens, std::int64_t out) {
    if (!bias.empty()) cpu::set_bias(bias.data(), y.data(), tokens, out);
    product_.multiply(x.data(), w, y.data(), tokens, config_.hidden_size, out, !bias.empty());
  }

  // An MLP of this width up to its second matrix: x (tokens, hidden) to (tokens, width).
  const std::vector<float>& widen(const MlpWeights& mlp, const std::vector<float>& x, std::int64_t tokens, std::int64_t width) {
    project(x, mlp.in, mlp.in_bias, mlp_in_, tokens, config_.mlp_in_size(width));
    if (config_.activation == Activation::kRelu) {
      cpu::relu(mlp_in_.data(), tokens, width);
      return mlp_in_;
    }
    if (tokens * width * kSwiGluOperations < cpu::kWorthSharing) {
      cpu::swiglu(mlp_in_.data(), activated_.data(), tokens, width);
    } else {
      team_.run(tokens, [&](std::int64_t t, int /*member*/) {
        cpu::swiglu(mlp_in_.data() + t * 2 * width, activated_.data() + t * width, 1, width);
      });
    }
    return activated_;
  }

  // residual_ += mlp(in); `in` may be residual_
  [[nodiscard]] Result<void> add_mlp(const MlpWeights& mlp, const std::vector<float>& in, std::int64_t tokens) {
    const std::vector<float>& wide = widen(mlp, in, tokens, config_.intermediate_size);
    return add_product(wide, mlp.out, mlp.out_bias, tokens, config_.intermediate_size);
  }

  // residual_ += the weighted sum of each token's experts applied to `in`, summed over all ranks. A token's experts are added
  // in the order of their numbers, whatever the batch is. REQUIRES: `in` is not residual_.
  [[nodiscard]] Result<void> add_experts(const LayerWeights& layer, const std::vector<float>& in, std::int64_t tokens) {
    assert(&in != &residual_);
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.expert_intermediate_size;
    float* to = residual_.data();
    if (options_.group != nullptr) {
      to = options_.group->addend(tokens * hidden).data();
      std::fill_n(to, tokens * hidden, 0.0F);
    }
    routing_.route(config_, in.data(), layer.router.data(), tokens);
    for (std::int64_t expert = 0; expert < config_.experts; ++expert) {
      const auto routed = routing_.of(expert);
      const auto count = static_cast<std::int64_t>(routed.size());
      if (count == 0) continue;
      float* row = expert_rows_.data();
      for (const auto& [token, weight] : routed) row = std::copy_n(in.data() + token * hidden, hidden, row);
      const MlpWeights& mlp = layer.experts[static_cast<std::size_t>(expert)];
      const std::vector<float>& wide = widen(mlp, expert_rows_, count, width);
      product_.multiply(wide.data(), mlp.out, expert_rows_.data(), count, width, hidden);
      row = expert_rows_.data();
      for (const auto& [token, weight] : routed) {
        for (std::int64_t i = 0; i < hidden; ++i) to[token * hidden + i] += weight * row[i];
        row += hidden;
      }
    }
    return options_.group == nullptr ? Result<void>() : options_.group->add_sum(residual_.data(), tokens * hidden);
  }

  // residual_ += x (tokens, in) * w (hidden, in)^T, summed over all ranks, plus the bias once.
  [[nodiscard]] Result<void> add_product(const std::vector<float>& x, const WeightMatrix& w, const std::vector<float>& bias,
                                         std::int64_t tokens, std::int64_t in) {
    const std::int64_t hidden = config_.hidden_size;
    if (!bias.empty()) cpu::add_bias(bias.data(), residual_.data(), tokens, hidden);
    if (options_.group == nullptr) {
      product_.multiply(x.data(), w, residual_.data(), tokens, in, hidden, true);
      return {};
    }
    product_.multiply(x.data(), w, options_.group->addend(tokens * hidden).data(), tokens, in, hidden);
    return options_.group->add_sum(residual_.data(), tokens * hidden);
  }

  // At rank 0, the rows with each rank's part of the vocabulary in place.
  [[nodiscard]] Result<std::span<const float>> gathered(std::int64_t rows) {
    if (rows == 0) return std::span<const float>();
    RankGroup& group = *options_.group;
    const std::int64_t part = slice_.size(config_.vocab_size);
    float* to = group.gather().data() + slice_.first(config_.vocab_size);
    for (std::int64_t row = 0; row < rows; ++row) std::copy_n(logits_.data() + row * part, part, to + row * config_.vocab_size);
    WINDLASS_RETURN_IF_ERROR(group.barrier());
    if (slice_.rank != 0) return std::span<const float>();
    return std::span<const float>(group.gather().first(static_cast<std::size_t>(rows * config_.vocab_size)));
  }

  [[nodiscard]] std::int64_t qkv_width() const { return config_.q_size() + 2 * config_.kv_size(); }

  [[nodiscard]] bool begins() const { return blocks_.first == 0; }
  [[nodiscard]] bool ends() const { return blocks_.end == config_.layers; }

  void take(std::span<const SequenceChunk> chunks) {
    float* to = residual_.data();
    for (const SequenceChunk& chunk : chunks) to = std::copy(chunk.hidden.begin(), chunk.hidden.end(), to);
  }

  // Only the rank that has a token's id has its row; the others add nothing.
  [[nodiscard]] Result<void> embed(std::span<const SequenceChunk> chunks, std::int64_t tokens) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t width = config_.embedding_width();
    const bool projects = config_.embedding_size > 0;
    const std::int64_t first = slice_.first(config_.vocab_size);
    const std::int64_t end = slice_.end(config_.vocab_size);
    RankGroup* group = options_.group;
    assert(group == nullptr || !projects);  // guaranteed by check_tensor_parallel()
    float* to = projects ? narrow_.data() : group == nullptr ? residual_.data() : group->addend(tokens * hidden).data();
    for (const SequenceChunk& chunk : chunks) {
      for (const std::int32_t token : chunk.tokens) {
        assert(token >= 0 && token < config_.vocab_size);
        if (token >= first && token < end) {
          floats_of_row(weights_.embedding, token - first, width, to);
        } else {
          std::fill_n(to, width, 0.0F);
        }
        to += width;
      }
    }
    if (projects) product_.multiply(narrow_.data(), weights_.project_in.data(), residual_.data(), tokens, width, hidden);
    if (group == nullptr) return {};
    std::fill_n(residual_.data(), tokens * hidden, 0.0F);
    return group->add_sum(residual_.data(), tokens * hidden);
  }

  void add_positions(std::span<const SequenceChunk> chunks) {
    const std::int64_t hidden = config_.hidden_size;
    float* to = residual_.data();
    for (const SequenceChunk& chunk : chunks) {
      const auto floats_of_chunk = static_cast<std::int64_t>(chunk.tokens.size()) * hidden;
      const float* from = weights_.positions.data() + (chunk.start + kLearnedPositionsOffset) * hidden;
      for (std::int64_t i = 0; i < floats_of_chunk; ++i) to[i] += from[i];
      to += floats_of_chunk;
    }
  }

  // Normalises and rotates queries and keys (if the model does), stores keys and values in the cache, then mixes: qkv_ ->
  // mixed_. `layer`: counted from this backend's first block.
  void attend(std::span<const SequenceChunk> chunks, std::int64_t layer) {
    const std::int64_t kv_size = config_.kv_size();
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    const auto eps = static_cast<float>(config_.norm_eps);
    float* keys = cache_.keys(layer);
    float* values = cache_.values(layer);
    rows_.clear();
    std::int64_t first = 0;
    for (const SequenceChunk& chunk : chunks) {
      const std::int64_t count = tokens_of(chunk, config_.hidden_size);
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t position = chunk.start + t;
        float* row = qkv_.data() + (first + t) * qkv_width();
        if (config_.qk_norm) {
          float* key = row + config_.q_size();
          cpu::rms_norm(row, weights.q_norm.data(), row, config_.heads, config_.head_dim, eps);
          cpu::rms_norm(key, weights.k_norm.data(), key, config_.kv_heads, config_.head_dim, eps);
        }
        // Query and key heads are adjacent, so one call rotates both.
        if (config_.positions == Positions::kRotary) cpu::rope(row, config_.heads + config_.kv_heads, rope_, position);
        cpu::store_kv(config_, row + config_.q_size(), row + config_.q_size() + kv_size,
                      chunk.blocks[static_cast<std::size_t>(position / kKvBlockTokens)], position % kKvBlockTokens, keys,
                      values);
      }
      rows_.push_back({qkv_.data() + first * qkv_width(),
                       count,
                       chunk.start,
                       {keys, values, chunk.blocks},
                       mixed_.data() + first * config_.q_size()});
      first += count;
    }
    cpu::attention(config_, config_.window_of(blocks_.first + layer), rows_, qkv_width(), team_, scratch_);
  }

  TensorSlice slice_;
  ModelConfig config_;
  const std::shared_ptr<const ModelWeights> shared_weights_;
  const ModelWeights& weights_;
  CpuBackendOptions options_;
  BlockRange blocks_;
  cpu::RopeTable rope_;
  std::vector<float> own_cache_;  // empty if the cache is in the group's memory
  cpu::KvCache cache_;
  std::vector<float> residual_, normed_, qkv_, mixed_, mlp_in_, narrow_, activated_, expert_rows_, last_, logits_;
  cpu::ThreadTeam team_;
  cpu::MatrixProduct product_{team_};
  cpu::ExpertRouting routing_;
  cpu::AttentionScratch scratch_;
  std::vector<cpu::AttentionRows> rows_;
};

}  // namespace

std::int64_t kv_bytes_per_token(const ModelConfig& config, std::int64_t layers) {
  return 2 * layers * config.kv_size() * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t cpu_step_bytes(const ModelConfig& config, const CpuBackendOptions& options, TensorSlice slice) {
  const StepSizes sizes = step_sizes(config_of_rank(config, slice.ranks), options, slice.size(config.vocab_size));
  return sizes.all() * static_cast<std::int64_t>(sizeof(float));
}

RankGroupSizes rank_group_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks) {
  const BlockRange blocks = blocks_of(config, options);
  RankGroupSizes sizes;
  sizes.ranks = ranks;
  sizes.sum_floats = options.max_batch_tokens * config.hidden_size;
  sizes.gather_floats = blocks.end == config.layers ? options.max_logit_rows * config.vocab_size : 0;
  sizes.own_floats = cpu::KvCache::size(config_of_rank(config, ranks), blocks.size(), options.kv_blocks);
  return sizes;
}

cpu::KvCache kv_cache_of_rank(const ModelConfig& config, const CpuBackendOptions& options, const RankGroup& group, int rank) {
  return {config_of_rank(config, group.ranks()), blocks_of(config, options).size(), options.kv_blocks, group.own(rank)};
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelConfig& config, std::shared_ptr<const ModelWeights> weights,
                                                  const CpuBackendOptions& options) {
  try {
    cpu::set_blas_threads(options.threads);
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(config, std::move(weights), options));
  } catch (const std::system_error& error) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("--threads: must be a number of threads that the system can start (got {}): {}", options.threads,
                             error.what())};
  } catch (const std::exception&) {
    const auto cache_bytes = static_cast<double>(
        options.kv_blocks * kKvBlockTokens * kv_bytes_per_token(config, options.blocks.value_or(config.all_blocks()).size()));
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("a KV cache of {} tokens ({:.1f} GiB) does not fit in this machine's memory; lower --kv-cache-tokens or "
                    "--max-context-tokens",
                    options.kv_blocks * kKvBlockTokens, cache_bytes / (1ULL << 30U))};
  }
}

}  // namespace windlass::worker
