// Loads a model folder into a running engine, and changes its blocks.
#include "worker/serve/served_model.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "planner/base/fnv.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/processors.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/backend/cuda/memory_fit.h"
#include "worker/collective/rank_watch.h"
#include "worker/engine/self_measurement.h"
#include "worker/model/weights.h"
#include "worker/parallel/chain_backend.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/serve/host_memory.h"
#include "worker/serve/memory_fit.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kDefaultKvBytes = 2LL << 30U;
// Tokens per step without --max-batch-tokens: limits how long a piece of a prompt delays the other requests. A GPU needs many
// for efficient matrix products.
constexpr std::int64_t kStepTokens = 256;
constexpr std::int64_t kCudaStepTokens = 1024;
static_assert(std::max(kStepTokens, kCudaStepTokens) <= kChainMaxTokens);

// The result of flags and config.json, before any weight is read.
struct Shape {
  ModelConfig config;
  BlockRange blocks;
  EngineSizes sizes;
  CpuBackendOptions options;
};

Result<Shape> shape_of(const ServeFlags& flags, ModelConfig config, BlockRange blocks) {
  Shape shape;
  shape.config = std::move(config);
  shape.blocks = blocks;
  WINDLASS_ASSIGN_OR_RETURN(shape.sizes, engine_sizes(flags, shape.config, blocks));
  shape.options.kv_blocks = shape.sizes.kv_blocks;
  const std::int64_t usual = flags.backend == "cuda" ? kCudaStepTokens : kStepTokens;
  shape.options.max_batch_tokens = flags.max_batch_tokens > 0 ? flags.max_batch_tokens : std::max(usual, flags.max_concurrent);
  // A worker that is given blocks while it runs joins a chain, too.
  if (blocks != shape.config.all_blocks())
    shape.options.max_batch_tokens = std::min(shape.options.max_batch_tokens, kChainMaxTokens);
  shape.options.max_logit_rows = flags.max_concurrent;
  shape.options.max_context_tokens = shape.sizes.max_context_tokens;
  shape.options.threads = std::max(1, flags.threads / flags.tensor_parallel);
  shape.options.blocks = blocks;
  return shape;
}

// The processors to pin this rank's threads to; empty: not pinned.
Result<std::vector<int>> processors_of(const ServeFlags& flags, int threads) {
  if (!flags.pin_threads) return std::vector<int>();
  const auto pinned = [&]() -> Result<std::vector<int>> {
    WINDLASS_ASSIGN_OR_RETURN(std::vector<int> allowed, cpu::allowed_processors());
    const std::vector<int> in_turn = cpu::cores_first(std::move(allowed), cpu::core_of);
    WINDLASS_ASSIGN_OR_RETURN(std::vector<int> processors,
                              cpu::processors_of_rank(in_turn, threads, flags.tensor_rank, flags.tensor_parallel));
    if (cpu::StaysOn(processors.front()).stays()) return processors;
    return Error{ErrorCode::kFailedPrecondition, fmt::format("the system does not allow pinning a thread to processor {}: {}",
                                                             processors.front(), std::strerror(errno))};
  }();
  return pinned.ok() ? pinned : pinned.error().within("--pin-threads");
}

// The worker's initial shape.
Result<Shape> shape_of(const ServeFlags& flags) {
  if (flags.backend == "cuda") {
    const auto devices = cuda::usable_devices();
    if (!devices.ok()) {
      return Error{ErrorCode::kFailedPrecondition,
                   fmt::format("--backend: must be cpu here (got cuda): {}", devices.error().message)};
    }
    WINDLASS_RETURN_IF_ERROR(cuda::check_devices(flags.tensor_parallel, *devices));
  }
  WINDLASS_ASSIGN_OR_RETURN(ModelConfig config, load_model_config(flags.model_folder));
  WINDLASS_RETURN_IF_ERROR(check_tensor_parallel(config, flags.tensor_parallel));
  WINDLASS_ASSIGN_OR_RETURN(const BlockRange blocks, blocks_of(flags, config));
  WINDLASS_ASSIGN_OR_RETURN(Shape shape, shape_of(flags, std::move(config), blocks));
  WINDLASS_ASSIGN_OR_RETURN(shape.options.processors, processors_of(flags, shape.options.threads));
  return shape;
}

// Workers that compute in other formats have other keys and values, so the format is part of the fingerprint, as if it were
// another model.
std::uint64_t fingerprint_of(const TensorStore& store, WeightFormat format) {
  if (format == WeightFormat::kFp32) return store.fingerprint();
  Fnv1a hash;
  const std::uint64_t tensors = store.fingerprint();
  hash.mix(&tensors, sizeof(tensors));
  hash.mix(to_string(format));
  return hash.value();
}

cuda::CudaBackendOptions cuda_options(const Shape& shape, RankGroup* group, const ServeFlags& flags) {
  cuda::CudaBackendOptions options;
  options.kv_blocks = shape.options.kv_blocks;
  options.max_batch_tokens = shape.options.max_batch_tokens;
  options.max_logit_rows = shape.options.max_logit_rows;
  options.max_context_tokens = shape.options.max_context_tokens;
  options.blocks = shape.blocks;
  options.group = group;
  options.weights = flags.weights;
  options.fp8_activations = flags.fp8_activations;
  return options;
}

// Opens this rank's device once all ranks have theirs.
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

// What every kind of worker, and every rank, starts with.
struct Parts {
  Shape shape;
  std::uint64_t fingerprint = 0;  // of the whole model's weights, in the format used for computing
  WeightBytes bytes;
  std::unique_ptr<BlockWeights> weights;  // null if they are on the GPU
  std::unique_ptr<Backend> backend;
};

// Loads onto the GPU, with the requested KV cache or the largest that fits; the same size on all ranks. Reads parts.shape; sets
// its backend and bytes.
Result<void> load_on_cuda(const ServeFlags& flags, const TensorStore& store, const TensorRanks& ranks, LoadProgress& progress,
                          Parts& parts) {
  const Shape& shape = parts.shape;
  WINDLASS_RETURN_IF_ERROR(cuda::check_cuda_model(shape.config));
  WINDLASS_ASSIGN_OR_RETURN(auto device, open_rank_device(flags, ranks));
  cuda::CudaBackendOptions options = cuda_options(shape, ranks.group, flags);
  options.multiprocessors = device->multiprocessors();
  if (ranks.group != nullptr) {
    WINDLASS_ASSIGN_OR_RETURN(const std::int64_t least, least_of_ranks(*ranks.group, options.multiprocessors));
    options.multiprocessors = static_cast<int>(least);
  }
  const cuda::MemoryNeed need =
      cuda::memory_need(shape.config, options, options.slice(), flags.precision, options.multiprocessors);
  WINDLASS_ASSIGN_OR_RETURN(const cuda::DeviceMemory memory, device->memory());
  const std::int64_t least = flags.kv_cache_tokens > 0 ? options.kv_blocks : blocks_for(options.max_context_tokens);
  auto affordable = cuda::affordable_kv_blocks(need, memory, flags.gpu_memory_share, options.kv_blocks, least);
  if (!affordable.ok()) {
    Error error = affordable.error();
    error.message += "; " + cuda::what_would_fit(shape.config, options, flags.precision, options.multiprocessors,
                                                 cuda::budget_bytes(memory, flags.gpu_memory_share), flags.kv_cache_tokens > 0);
    return error;
  }
  options.kv_blocks = *affordable;
  if (ranks.group != nullptr) {
    WINDLASS_ASSIGN_OR_RETURN(options.kv_blocks, least_of_ranks(*ranks.group, options.kv_blocks));
  }
  parts.bytes = {need.weights_bytes, need.as_plain_bytes};
  const WeightFormat format = cuda::source_format(flags.weights, flags.precision);
  WeightSizes sizes;
  for (std::int64_t block = shape.blocks.first; block < shape.blocks.end; ++block) {  // streamed block by block
    WINDLASS_ASSIGN_OR_RETURN(const WeightSizes of_block,
                              check_weights(shape.config, store, {block, block + 1}, options.slice()));
    sizes += of_block;
  }
  progress.expect(sizes.file_bytes);
  progress.expect_kv_cache(options.kv_blocks * need.kv_block_bytes);
  progress.enter(LoadStage::kWeights);
  WINDLASS_ASSIGN_OR_RETURN(parts.backend,
                            cuda::make_cuda_backend(
                                shape.config,
                                [&](BlockRange blocks) {
                                  auto read = load_weights(shape.config, store, blocks, options.slice(), format, &progress);
                                  if (blocks.end == shape.blocks.end)
                                    progress.enter(LoadStage::kKvCache);  // when only these few remain to be uploaded
                                  return read;
                                },
                                std::move(device), options, ranks.lost));
  return {};
}

std::int64_t kv_cache_bytes(const Shape& shape) {
  return shape.options.kv_blocks * kKvBlockTokens * kv_bytes_per_token(shape.config, shape.blocks.size());
}

// Memory that all ranks of the CPU backend need. Errors: those of check_weights().
Result<HostMemoryNeed> host_memory_need(const ServeFlags& flags, const Shape& shape, const TensorStore& store) {
  HostMemoryNeed need;
  need.format = flags.weights;
  need.kv_bytes_per_token = kv_bytes_per_token(shape.config, shape.blocks.size());
  need.kv_tokens = shape.options.kv_blocks * kKvBlockTokens;
  need.max_context_tokens = shape.sizes.max_context_tokens;
  for (int rank = 0; rank < flags.tensor_parallel; ++rank) {
    WINDLASS_ASSIGN_OR_RETURN(const WeightSizes sizes,
                              check_weights(shape.config, store, shape.blocks, {rank, flags.tensor_parallel}));
    const std::int64_t step_bytes = cpu_step_bytes(shape.config, shape.options, {rank, flags.tensor_parallel});
    if (rank == 0) need.rank_weights = sizes;
    if (rank == 0) need.rank_step_bytes = step_bytes;
    need.weights += sizes;
    need.step_bytes += step_bytes;
  }
  return need;
}

// Loads weights and backend of this rank. If memory runs out despite the check, the error contains the calculation.
Result<void> load_on_cpu(const TensorStore& store, const HostMemoryNeed& need, TensorSlice slice, LoadProgress& progress,
                         Parts& parts) {
  const Shape& shape = parts.shape;
  const auto load = [&]() -> Result<void> {
    parts.weights = std::make_unique<BlockWeights>(shape.config, slice, need.format);
    WINDLASS_ASSIGN_OR_RETURN(const WeightSizes sizes, parts.weights->missing(store, shape.blocks));
    progress.expect(sizes.file_bytes);
    progress.expect_kv_cache(kv_cache_bytes(shape));
    progress.enter(LoadStage::kWeights);
    WINDLASS_ASSIGN_OR_RETURN(ModelWeights weights, parts.weights->read(store, shape.blocks, &progress));
    parts.weights->add(std::move(weights), shape.blocks);
    parts.bytes = bytes_of(*parts.weights->weights());
    progress.enter(LoadStage::kKvCache);
    WINDLASS_ASSIGN_OR_RETURN(parts.backend, make_cpu_backend(shape.config, parts.weights->weights(), shape.options));
    return {};
  };
  const Result<void> loaded = load();
  if (loaded.ok() || loaded.error().code != ErrorCode::kResourceExhausted) return loaded;
  return Error{loaded.error().code, fmt::format("{}: {}", loaded.error().message, to_text(need))};
}

Result<Parts> load_parts(const ServeFlags& flags, const TensorRanks& ranks, LoadProgress& progress) {
  RankGroup* const group = ranks.group;
  Parts parts;
  WINDLASS_ASSIGN_OR_RETURN(parts.shape, shape_of(flags));
  parts.shape.options.group = group;
  const Shape& shape = parts.shape;
  WINDLASS_ASSIGN_OR_RETURN(const TensorStore store, TensorStore::open(flags.model_folder));
  parts.fingerprint = fingerprint_of(store, flags.weights);
  if (flags.backend == "cuda") {
    WINDLASS_RETURN_IF_ERROR(load_on_cuda(flags, store, ranks, progress, parts));
  } else {
    const TensorSlice slice = group == nullptr ? TensorSlice{} : TensorSlice{group->rank(), group->ranks()};
    WINDLASS_ASSIGN_OR_RETURN(const HostMemoryNeed need, host_memory_need(flags, shape, store));
    // With several ranks, rank 0 has checked before any of them allocated memory.
    if (group == nullptr) WINDLASS_RETURN_IF_ERROR(check_memory(need, host_memory()));
    WINDLASS_RETURN_IF_ERROR(load_on_cpu(store, need, slice, progress, parts));
  }
  if (group != nullptr) {
    progress.enter(LoadStage::kRanks);
    WINDLASS_RETURN_IF_ERROR(meet_loaded(*group, parts.fingerprint));
  }
  return parts;
}

Result<std::shared_ptr<const ModelTexts>> load_texts(const ServeFlags& flags, const ModelConfig& config) {
  WINDLASS_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(flags.model_folder));
  if (tokenizer.size() > config.vocab_size) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}/tokenizer.json: largest token id: must be below config.json's vocab_size, which is {} (got {})",
                    flags.model_folder, config.vocab_size, tokenizer.size() - 1)};
  }
  auto texts = std::make_shared<ModelTexts>(std::move(tokenizer));
  WINDLASS_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::load(texts->tokenizer, flags.model_folder, flags.chat_template));
  texts->chat.emplace(std::move(chat));
  return std::shared_ptr<const ModelTexts>(std::move(texts));
}

EngineOptions engine_options(const ServeFlags& flags, const Shape& shape) {
  EngineOptions engine;
  engine.max_running = flags.max_concurrent;
  engine.max_waiting = 2 * flags.max_concurrent;
  engine.max_context_tokens = shape.sizes.max_context_tokens;
  engine.max_batch_tokens = shape.options.max_batch_tokens;
  engine.prefix_caching = flags.prefix_caching;
  engine.eos_token_ids = shape.config.eos_token_ids;
  return engine;
}

std::unique_ptr<ServedModel> serve_model(const ServeFlags& flags, Shape shape, std::uint64_t fingerprint,
                                         std::shared_ptr<const ModelTexts> texts, std::unique_ptr<Backend> backend,
                                         const Clock& clock, const metrics::WorkerMetrics& metrics,
                                         const OtherWorkers& others) {
  auto model = std::make_unique<ServedModel>();
  EngineOptions engine = engine_options(flags, shape);
  model->served_name = flags.served_name;
  model->config = std::move(shape.config);
  model->texts = std::move(texts);
  model->blocks = shape.blocks;
  model->next_hops = flags.next_hops;
  if (shape.blocks != model->config.all_blocks()) {
    const ChainModel chain = chain_model(model->config, fingerprint);
    // Requests beyond what the engine would accept need not take room at other workers first.
    const std::int64_t most = engine.max_running + engine.max_waiting;
    model->chains = std::make_unique<ChainSessions>(chain, shape.blocks.end, most, others.post, clock, metrics);
    backend = std::make_unique<ChainBackend>(std::move(backend), chain, *model->chains, clock, metrics);
  }
  const Tokenizer& tokens = model->texts->tokenizer;
  model->exports = std::make_unique<KvExports>(*backend, fingerprint, clock, metrics);
  model->imports = std::make_unique<KvImports>(
      *backend, fingerprint, others.ask,
      [&to = *model, failed = others.failed](RequestId request, const KvQuestion& last, const Result<Sampled>& first) {
        if (!first.ok()) failed(last, first.error());
        to.engine->received(request, first);
      },
      clock, metrics, others.stream);
  const KvTransfer transfer{model->exports.get(), model->imports.get()};
  model->engine = std::make_unique<EngineLoop>(
      std::move(engine), std::move(backend), [&tokens](std::int32_t id) { return tokens.token_bytes(id); }, clock, metrics,
      transfer);
  return model;
}

std::unique_ptr<ServedBlocks> serve_blocks(Shape shape, std::uint64_t fingerprint, std::unique_ptr<Backend> backend,
                                           const Clock& clock, const metrics::WorkerMetrics& metrics, ChainPost post) {
  const ChainStageOptions options{chain_model(shape.config, fingerprint), shape.blocks, shape.sizes.max_context_tokens,
                                  shape.options.max_batch_tokens, shape.options.max_logit_rows};
  auto stage = std::make_unique<ChainStage>(options, std::move(backend), std::move(post), clock, metrics);
  return std::make_unique<ServedBlocks>(ServedBlocks{std::move(shape.config), std::move(stage)});
}

}  // namespace

Result<BlockRange> blocks_of(const ServeFlags& flags, const ModelConfig& config) {
  const BlockRange blocks = flags.blocks.value_or(config.all_blocks());
  if (blocks.end > config.layers) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--blocks: must end at {} or before, the model's number of blocks (got {}:{})", config.layers,
                             blocks.first, blocks.end)};
  }
  if (!flags.next_hops.empty() && blocks == config.all_blocks()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--next: must not be given (got {}): --blocks {}:{} are all of the model's",
                             flags.next_hops.front(), blocks.first, blocks.end)};
  }
  return blocks;
}

Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config, BlockRange blocks) {
  EngineSizes sizes;
  sizes.max_context_tokens = flags.max_context_tokens > 0 ? flags.max_context_tokens : config.max_context_tokens;
  if (sizes.max_context_tokens > config.max_context_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-context-tokens: must be at most the model's max_position_embeddings, which is {} (got {})",
                             config.max_context_tokens, sizes.max_context_tokens)};
  }
  std::int64_t tokens = flags.kv_cache_tokens;
  if (tokens == 0) {
    tokens = flags.max_concurrent * sizes.max_context_tokens;
    if (flags.backend == "cpu") tokens = std::min(tokens, kDefaultKvBytes / kv_bytes_per_token(config, blocks.size()));
    tokens = std::max(sizes.max_context_tokens, tokens);
  }
  if (tokens < sizes.max_context_tokens) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--kv-cache-tokens: must be at least one whole context, which is {} (got {}); or lower --max-context-tokens",
            sizes.max_context_tokens, tokens)};
  }
  sizes.kv_blocks = blocks_for(tokens);
  return sizes;
}

std::optional<std::string> fixed_blocks(const ServeFlags& flags) {
  if (flags.backend != "cpu") {
    return fmt::format("--backend: must be cpu to change blocks (got {})", flags.backend);
  }
  if (flags.tensor_parallel > 1) {
    return fmt::format("--tensor-parallel: must be 1 to change blocks (got {})", flags.tensor_parallel);
  }
  return std::nullopt;
}

ModelHost::ModelHost(ServeFlags flags, const Clock& clock, const metrics::WorkerMetrics& metrics, OtherWorkers others,
                     TensorRanks ranks, LoadProgress* progress)
    : flags_(std::move(flags)),
      clock_(clock),
      metrics_(metrics),
      others_(std::move(others)),
      ranks_(std::move(ranks)),
      progress_(progress) {}

Result<Served> ModelHost::load() {
  const double started_s = clock_.now_s();
  LoadProgress untold;
  LoadProgress& progress = progress_ == nullptr ? untold : *progress_;
  WINDLASS_ASSIGN_OR_RETURN(Parts parts, load_parts(flags_, ranks_, progress));
  progress.enter(LoadStage::kTokenizer);
  if (ranks_.group != nullptr) {
    const ModelConfig& config = parts.shape.config;
    auto own = std::move(parts.backend);
    parts.backend = flags_.backend == "cuda"
                        ? make_tensor_parallel_backend(config, *ranks_.group, std::move(own), ranks_.lost)
                        : make_tensor_parallel_backend(config, parts.shape.options, std::move(own), ranks_.lost);
  }
  config_ = parts.shape.config;
  fingerprint_ = parts.fingerprint;
  processors_ = parts.shape.options.processors;
  if (!fixed_blocks(flags_)) weights_ = std::move(parts.weights);
  if (parts.shape.blocks.first == 0) WINDLASS_RETURN_IF_ERROR(need_texts());
  metrics_.model_load.set(clock_.now_s() - started_s);
  if (flags_.measure_time_s > 0 && parts.shape.blocks == config_.all_blocks()) {
    progress.enter(LoadStage::kMeasuring);
    measured_ = measure_iterations(engine_options(flags_, parts.shape), *parts.backend, clock_,
                                   {flags_.measure_time_s, flags_.role != Role::kPrefill});
  }
  WINDLASS_ASSIGN_OR_RETURN(Served served, serve(parts.shape.blocks, std::move(parts.backend)));
  served.weights = parts.bytes;
  served.processors = processors_;
  return served;
}

Result<Served> ModelHost::load_with(std::unique_ptr<Backend> backend) {
  WINDLASS_ASSIGN_OR_RETURN(config_, load_model_config(flags_.model_folder));
  return serve(config_.all_blocks(), std::move(backend));
}

Result<Served> ModelHost::serve(BlockRange blocks, std::unique_ptr<Backend> backend) {
  WINDLASS_ASSIGN_OR_RETURN(Shape shape, shape_of(flags_, config_, blocks));
  Served served;
  if (blocks.first > 0) {
    served.blocks = serve_blocks(std::move(shape), fingerprint_, std::move(backend), clock_, metrics_, others_.post);
  } else {
    WINDLASS_RETURN_IF_ERROR(need_texts());
    served.model = serve_model(flags_, std::move(shape), fingerprint_, texts_, std::move(backend), clock_, metrics_, others_);
  }
  blocks_ = blocks;
  metrics_.model_blocks_first.set(static_cast<double>(blocks.first));
  metrics_.model_blocks_end.set(static_cast<double>(blocks.end));
  show_measured(blocks == config_.all_blocks());
  return served;
}

Result<void> ModelHost::need_texts() {
  if (texts_ != nullptr) return {};
  WINDLASS_ASSIGN_OR_RETURN(texts_, load_texts(flags_, config_));
  return {};
}

void ModelHost::show_measured(bool whole_model) const {
  if (!measured_.ok()) return;
  for (const metrics::MeasuredIteration& iteration : *measured_) {
    const bool prefill = iteration.batch == 0;
    const metrics::GaugeFamily& family = prefill ? metrics_.measured_prefill : metrics_.measured_decode;
    metrics::Labels labels = {{"model", flags_.served_name}};
    if (prefill) {
      labels["tokens"] = std::to_string(iteration.prompt_tokens);
    } else {
      labels["batch"] = std::to_string(iteration.batch);
      labels["context"] = std::to_string(iteration.context_tokens);
    }
    if (whole_model) {
      family.with(labels).set(iteration.seconds);
    } else {
      family.remove(labels);
    }
  }
}

Result<ModelHost::Change> ModelHost::prepare(BlockRange blocks) {
  WINDLASS_ASSIGN_OR_RETURN(TensorStore store, TensorStore::open(flags_.model_folder));
  if (const std::uint64_t found = fingerprint_of(store, flags_.weights); found != fingerprint_) {
    return Error{ErrorCode::kFailedPrecondition,
                 fmt::format("{}: must have the weights that this worker started with, fingerprint {:016x} (got {:016x})",
                             store.file(), fingerprint_, found)};
  }
  WINDLASS_ASSIGN_OR_RETURN(const WeightSizes whole, check_weights(config_, store, blocks, {}));
  WINDLASS_ASSIGN_OR_RETURN(const WeightSizes missing, weights_->missing(store, blocks));
  WINDLASS_ASSIGN_OR_RETURN(const Shape now, shape_of(flags_, config_, blocks_));
  WINDLASS_ASSIGN_OR_RETURN(const Shape then, shape_of(flags_, config_, blocks));
  const bool only_more = blocks.first <= blocks_.first && blocks.end >= blocks_.end;
  const std::int64_t cache_bytes = kv_cache_bytes(then) - kv_cache_bytes(now);
  // Dropped blocks are freed before anything new is read. If none is dropped, the current cache still exists.
  const std::int64_t growth = only_more ? missing.bytes(flags_.weights) + std::max<std::int64_t>(0, cache_bytes)
                                        : whole.bytes(flags_.weights) - bytes_of(*weights_->weights()).held + cache_bytes;
  WINDLASS_RETURN_IF_ERROR(check_growth(growth, host_memory()));
  if (blocks.first == 0) WINDLASS_RETURN_IF_ERROR(need_texts());
  Change change{blocks, std::move(store), std::nullopt};
  if (only_more) {
    WINDLASS_ASSIGN_OR_RETURN(change.read, weights_->read(change.store, blocks));
  }
  return change;
}

Result<ModelHost::Changed> ModelHost::change(Change change) {
  const BlockRange before = blocks_;
  Result<Served> served = take_up(change.store, change.blocks, std::move(change.read));
  if (served.ok()) return Changed{std::move(served).value(), std::nullopt};
  // What both ranges share is still in memory, and the rest could be read before.
  Result<Served> again = take_up(change.store, before, std::nullopt);
  if (again.ok()) return Changed{std::move(again).value(), served.error()};
  return Error{again.error().code, fmt::format("blocks {}: {}; and the previous ones, {}: {}", to_string(change.blocks),
                                               served.error().message, to_string(before), again.error().message)};
}

Result<Served> ModelHost::take_up(const TensorStore& store, BlockRange blocks, std::optional<ModelWeights> read) {
  const double started_s = clock_.now_s();
  weights_->keep(blocks);
  if (!read) {
    WINDLASS_ASSIGN_OR_RETURN(read, weights_->read(store, blocks));
  }
  weights_->add(std::move(*read), blocks);
  WINDLASS_ASSIGN_OR_RETURN(Shape shape, shape_of(flags_, config_, blocks));
  shape.options.processors = processors_;
  WINDLASS_ASSIGN_OR_RETURN(auto backend, make_cpu_backend(config_, weights_->weights(), shape.options));
  WINDLASS_ASSIGN_OR_RETURN(Served served, serve(blocks, std::move(backend)));
  served.weights = bytes_of(*weights_->weights());
  served.processors = processors_;
  metrics_.model_load.set(clock_.now_s() - started_s);
  return served;
}

Result<std::shared_ptr<RankGroup>> open_rank_group(const ServeFlags& flags) {
  WINDLASS_ASSIGN_OR_RETURN(const Shape shape, shape_of(flags));
  const RankGroupSizes sizes =
      flags.backend == "cuda" ? tensor_parallel_sizes(shape.config, cuda_options(shape, nullptr, flags), flags.tensor_parallel)
                              : tensor_parallel_sizes(shape.config, shape.options, flags.tensor_parallel);
  if (flags.tensor_rank != 0) return RankGroup::join(flags.tensor_memory, flags.tensor_rank, sizes);
  if (flags.backend == "cpu") {
    WINDLASS_ASSIGN_OR_RETURN(const TensorStore store, TensorStore::open(flags.model_folder));
    WINDLASS_ASSIGN_OR_RETURN(const HostMemoryNeed need, host_memory_need(flags, shape, store));
    WINDLASS_RETURN_IF_ERROR(check_memory(need, host_memory()));
  }
  return RankGroup::create(sizes);
}

Result<void> serve_rank_part(const ServeFlags& flags, TensorRanks ranks) {
  LoadProgress untold;
  WINDLASS_ASSIGN_OR_RETURN(const Parts parts, load_parts(flags, ranks, untold));
  return flags.backend == "cuda" ? serve_device_rank(*ranks.group, *parts.backend)
                                 : serve_tensor_rank(*ranks.group, *parts.backend);
}

}  // namespace windlass::worker
