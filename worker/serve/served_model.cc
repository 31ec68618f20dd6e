// From a folder to a running engine.
#include "worker/serve/served_model.h"

#include <algorithm>

#include <fmt/core.h>

#include "planner/base/fnv.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/collective/rank_watch.h"
#include "worker/model/weights.h"
#include "worker/parallel/chain_backend.h"
#include "worker/parallel/tensor_parallel.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kDefaultKvBytes = 2LL << 30U;
// Tokens of a step: they bound how long a prompt's piece holds up the others. A GPU needs many to be worth its matrix products.
constexpr std::int64_t kStepTokens = 256;
constexpr std::int64_t kCudaStepTokens = 1024;
static_assert(std::max(kStepTokens, kCudaStepTokens) <= kChainMostTokens);

// What flags and config.json say, before any weight is read.
struct Shape {
  ModelConfig config;
  BlockRange blocks;
  EngineSizes sizes;
  CpuBackendOptions options;
};

Result<Shape> shape_of(const ServeFlags& flags) {
  const bool on_cuda = flags.backend == "cuda";
  if (on_cuda) {
    const auto devices = cuda::usable_devices();
    if (!devices.ok()) {
      return Error{ErrorCode::kFailedPrecondition,
                   fmt::format("--backend: found cuda, allowed is cpu here: {}", devices.error().message)};
    }
    WINDLASS_RETURN_IF_ERROR(cuda::check_devices(flags.tensor_parallel, *devices));
  }
  Shape shape;
  WINDLASS_ASSIGN_OR_RETURN(shape.config, load_model_config(flags.model_folder));
  WINDLASS_RETURN_IF_ERROR(check_tensor_parallel(shape.config, flags.tensor_parallel));
  WINDLASS_ASSIGN_OR_RETURN(shape.blocks, blocks_of(flags, shape.config));
  WINDLASS_ASSIGN_OR_RETURN(shape.sizes, engine_sizes(flags, shape.config));
  shape.options.kv_blocks = shape.sizes.kv_blocks;
  shape.options.max_batch_tokens = std::max(on_cuda ? kCudaStepTokens : kStepTokens, flags.max_concurrent);
  shape.options.max_logit_rows = flags.max_concurrent;
  shape.options.max_context_tokens = shape.sizes.max_context_tokens;
  shape.options.threads = std::max(1, flags.threads / flags.tensor_parallel);
  shape.options.blocks = shape.blocks;
  return shape;
}

// What all kinds of worker, and all ranks, begin with.
struct Parts {
  Shape shape;
  std::uint64_t fingerprint = 0;  // of the whole model's weights, as they are computed with
  WeightBytes weights;
  std::unique_ptr<Backend> backend;
};

// Workers that compute with other formats have other keys and values; they are told apart as those of other models are.
std::uint64_t fingerprint_of(const TensorStore& store, WeightFormat format) {
  if (format == WeightFormat::kFp32) return store.fingerprint();
  Fnv1a hash;
  const std::uint64_t tensors = store.fingerprint();
  hash.mix(&tensors, sizeof(tensors));
  hash.mix(to_string(format));
  return hash.value();
}

cuda::CudaBackendOptions cuda_options(const Shape& shape, RankGroup* group) {
  cuda::CudaBackendOptions options;
  options.kv_blocks = shape.options.kv_blocks;
  options.max_batch_tokens = shape.options.max_batch_tokens;
  options.max_logit_rows = shape.options.max_logit_rows;
  options.max_context_tokens = shape.options.max_context_tokens;
  options.blocks = shape.blocks;
  options.group = group;
  return options;
}

// This rank's device, once all ranks have theirs.
Result<std::unique_ptr<cuda::Device>> open_rank_device(const ServeFlags& flags, const TensorRanks& ranks) {
  if (ranks.group == nullptr) return cuda::open_device(flags.precision);
  RankGroup& group = *ranks.group;
  cuda::DeviceRank rank{group.rank(), group.ranks(), {}};
  if (group.rank() == 0) {
    WINDLASS_ASSIGN_OR_RETURN(rank.network, cuda::new_network_id());
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto told, told_by_rank_0(group, rank.network));
  std::copy(told.begin(), told.end(), rank.network.begin());
  RankWatch watch(group, RankGroup::kNoLimit, nullptr, ranks.lost);
  const RankWatch::Step opening(watch);
  return cuda::open_device(flags.precision, rank);
}

// On the GPU, with as large a KV cache as was asked for, or as fits; the same at all ranks.
Result<std::unique_ptr<Backend>> load_on_cuda(const ServeFlags& flags, const Shape& shape, const TensorStore& store,
                                              const TensorRanks& ranks) {
  WINDLASS_RETURN_IF_ERROR(cuda::check_cuda_model(shape.config));
  WINDLASS_ASSIGN_OR_RETURN(auto device, open_rank_device(flags, ranks));
  cuda::CudaBackendOptions options = cuda_options(shape, ranks.group);
  options.multiprocessors = device->multiprocessors();
  if (ranks.group != nullptr) {
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t least, least_of_ranks(*ranks.group, options.multiprocessors));
    options.multiprocessors = static_cast<int>(least);
  }
  const cuda::MemoryNeed need = cuda::memory_need(shape.config, options, flags.precision, options.multiprocessors);
  WINDLASS_ASSIGN_OR_RETURN(const cuda::DeviceMemory memory, device->memory());
  const std::int64_t least = flags.kv_cache_tokens > 0 ? options.kv_blocks : blocks_for(options.max_context_tokens);
  WINDLASS_ASSIGN_OR_RETURN(options.kv_blocks,
                            cuda::affordable_kv_blocks(need, memory, flags.gpu_memory_share, options.kv_blocks, least));
  if (ranks.group != nullptr) {
    WINDLASS_ASSIGN_OR_RETURN(options.kv_blocks, least_of_ranks(*ranks.group, options.kv_blocks));
  }
  return cuda::make_cuda_backend(
      shape.config, [&](BlockRange blocks) { return load_weights(shape.config, store, blocks, options.slice()); },
      std::move(device), options, ranks.lost);
}

Result<Parts> load_parts(const ServeFlags& flags, const TensorRanks& ranks) {
  RankGroup* const group = ranks.group;
  Parts parts;
  WINDLASS_ASSIGN_OR_RETURN(parts.shape, shape_of(flags));
  parts.shape.options.group = group;
  const Shape& shape = parts.shape;
  WINDLASS_ASSIGN_OR_RETURN(const TensorStore store, TensorStore::open(flags.model_folder));
  parts.fingerprint = fingerprint_of(store, flags.weights);
  if (flags.backend == "cuda") {
    WINDLASS_ASSIGN_OR_RETURN(parts.backend, load_on_cuda(flags, shape, store, ranks));
  } else {
    const TensorSlice slice = group == nullptr ? TensorSlice{} : TensorSlice{group->rank(), group->ranks()};
    WINDLASS_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(shape.config, store, shape.blocks, slice, flags.weights));
    parts.weights = bytes_of(weights);
    WINDLASS_ASSIGN_OR_RETURN(parts.backend, make_cpu_backend(shape.config, std::move(weights), shape.options));
  }
  if (group != nullptr) WINDLASS_RETURN_IF_ERROR(meet_loaded(*group, parts.fingerprint));
  return parts;
}

// The tokenizer and what goes with it. What the model holds refers to one another, so it stays where it is from here on.
Result<std::unique_ptr<ServedModel>> load_texts(const ServeFlags& flags, ModelConfig config) {
  WINDLASS_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(flags.model_folder));
  if (tokenizer.size() > config.vocab_size) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}/tokenizer.json: largest token id: found {}, allowed is below config.json's vocab_size ({})",
                             flags.model_folder, tokenizer.size() - 1, config.vocab_size)};
  }
  auto model = std::make_unique<ServedModel>(flags.served_name, std::move(config), std::move(tokenizer));
  WINDLASS_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::load(model->tokenizer, flags.model_folder, flags.chat_template));
  model->chat.emplace(std::move(chat));
  return model;
}

Result<std::unique_ptr<ServedModel>> load_model(const ServeFlags& flags, Parts parts, const Clock& clock,
                                                const metrics::WorkerMetrics& metrics, OtherWorkers others) {
  WINDLASS_ASSIGN_OR_RETURN(auto model, load_texts(flags, std::move(parts.shape.config)));
  model->blocks = parts.shape.blocks;
  model->next_hops = flags.next_hops;
  if (parts.shape.blocks != model->config.all_blocks()) {
    const ChainModel chain = chain_model(model->config, parts.fingerprint);
    model->chains = std::make_unique<ChainSessions>(chain, parts.shape.blocks.end, std::move(others.post), clock, metrics);
    parts.backend = std::make_unique<ChainBackend>(std::move(parts.backend), chain, *model->chains, clock, metrics);
  }
  EngineOptions engine;
  engine.max_running = flags.max_concurrent;
  engine.max_waiting = 2 * flags.max_concurrent;
  engine.max_context_tokens = parts.shape.sizes.max_context_tokens;
  engine.max_batch_tokens = parts.shape.options.max_batch_tokens;
  engine.prefix_caching = flags.prefix_caching;
  engine.eos_token_ids = model->config.eos_token_ids;
  const Tokenizer& tokens = model->tokenizer;
  model->exports = std::make_unique<KvExports>(*parts.backend, parts.fingerprint, clock, metrics);
  model->imports = std::make_unique<KvImports>(
      *parts.backend, parts.fingerprint, std::move(others.ask),
      [&to = *model, failed = std::move(others.failed)](RequestId request, const KvQuestion& last,
                                                        const Result<Sampled>& first) {
        if (!first.ok()) failed(last, first.error());
        to.engine->received(request, first);
      },
      clock, metrics);
  const KvTransfer transfer{model->exports.get(), model->imports.get()};
  model->engine = std::make_unique<EngineLoop>(
      std::move(engine), std::move(parts.backend), [&tokens](std::int32_t id) { return tokens.token_bytes(id); }, clock,
      metrics, transfer);
  return model;
}

std::unique_ptr<ServedBlocks> serve_blocks(Parts parts, const Clock& clock, const metrics::WorkerMetrics& metrics,
                                           ChainPost post) {
  Shape& shape = parts.shape;
  const ChainStageOptions options{chain_model(shape.config, parts.fingerprint), shape.blocks, shape.sizes.max_context_tokens,
                                  shape.options.max_batch_tokens, shape.options.max_logit_rows};
  auto stage = std::make_unique<ChainStage>(options, std::move(parts.backend), std::move(post), clock, metrics);
  return std::make_unique<ServedBlocks>(ServedBlocks{std::move(shape.config), std::move(stage)});
}

}  // namespace

Result<BlockRange> blocks_of(const ServeFlags& flags, const ModelConfig& config) {
  const BlockRange blocks = flags.blocks.value_or(config.all_blocks());
  if (blocks.end > config.layers) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--blocks: found {}:{}, allowed is up to {}: the model has so many",
                                                          blocks.first, blocks.end, config.layers)};
  }
  if (!flags.next_hops.empty() && blocks == config.all_blocks()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--next: found {}, allowed is nothing: --blocks {}:{} are all of them", flags.next_hops.front(),
                             blocks.first, blocks.end)};
  }
  return blocks;
}

Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config) {
  WINDLASS_ASSIGN_OR_RETURN(const BlockRange blocks, blocks_of(flags, config));
  EngineSizes sizes;
  sizes.max_context_tokens = flags.max_context_tokens > 0 ? flags.max_context_tokens : config.max_context_tokens;
  if (sizes.max_context_tokens > config.max_context_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-context-tokens: found {}, allowed is at most the model's max_position_embeddings ({})",
                             sizes.max_context_tokens, config.max_context_tokens)};
  }
  std::int64_t tokens = flags.kv_cache_tokens;
  if (tokens == 0) {
    tokens = flags.max_concurrent * sizes.max_context_tokens;
    if (flags.backend == "cpu") tokens = std::min(tokens, kDefaultKvBytes / kv_bytes_per_token(config, blocks.size()));
    tokens = std::max(sizes.max_context_tokens, tokens);
  }
  if (tokens < sizes.max_context_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--kv-cache-tokens: found {}, allowed is at least one whole context ({}); or lower "
                             "--max-context-tokens",
                             tokens, sizes.max_context_tokens)};
  }
  sizes.kv_blocks = blocks_for(tokens);
  return sizes;
}

Result<Served> load_served(const ServeFlags& flags, const Clock& clock, const metrics::WorkerMetrics& metrics,
                           OtherWorkers others, TensorRanks ranks) {
  const double started_s = clock.now_s();
  WINDLASS_ASSIGN_OR_RETURN(Parts parts, load_parts(flags, ranks));
  if (ranks.group != nullptr) {
    const ModelConfig& config = parts.shape.config;
    auto own = std::move(parts.backend);
    parts.backend = flags.backend == "cuda"
                        ? make_tensor_parallel_backend(config, *ranks.group, std::move(own), std::move(ranks.lost))
                        : make_tensor_parallel_backend(config, parts.shape.options, std::move(own), std::move(ranks.lost));
  }
  Served served;
  served.weights = parts.weights;
  if (parts.shape.blocks.first > 0) {
    served.blocks = serve_blocks(std::move(parts), clock, metrics, std::move(others.post));
  } else {
    WINDLASS_ASSIGN_OR_RETURN(served.model, load_model(flags, std::move(parts), clock, metrics, std::move(others)));
  }
  metrics.model_load.set(clock.now_s() - started_s);
  return served;
}

Result<std::shared_ptr<RankGroup>> open_rank_group(const ServeFlags& flags) {
  WINDLASS_ASSIGN_OR_RETURN(const Shape shape, shape_of(flags));
  const RankGroupSizes sizes = flags.backend == "cuda"
                                   ? tensor_parallel_sizes(shape.config, cuda_options(shape, nullptr), flags.tensor_parallel)
                                   : tensor_parallel_sizes(shape.config, shape.options, flags.tensor_parallel);
  return flags.tensor_rank == 0 ? RankGroup::create(sizes) : RankGroup::join(flags.tensor_memory, flags.tensor_rank, sizes);
}

Result<void> serve_rank_part(const ServeFlags& flags, TensorRanks ranks) {
  WINDLASS_ASSIGN_OR_RETURN(const Parts parts, load_parts(flags, ranks));
  return flags.backend == "cuda" ? serve_device_rank(*ranks.group, *parts.backend)
                                 : serve_tensor_rank(*ranks.group, *parts.backend);
}

}  // namespace windlass::worker
