// From a folder to a running engine.
#include "worker/serve/served_model.h"

#include <algorithm>

#include <fmt/core.h>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/ops.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kDefaultKvBytes = 2LL << 30U;
constexpr std::int64_t kStepTokens = 256;  // bounds how long a prompt's piece holds up the others

}  // namespace

Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config) {
  EngineSizes sizes;
  sizes.max_context_tokens = flags.max_context_tokens > 0 ? flags.max_context_tokens : config.max_context_tokens;
  if (sizes.max_context_tokens > config.max_context_tokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-context-tokens: found {}, allowed is at most the model's max_position_embeddings ({})",
                             sizes.max_context_tokens, config.max_context_tokens)};
  }
  std::int64_t tokens = flags.kv_cache_tokens;
  if (tokens == 0) {
    const std::int64_t affordable = kDefaultKvBytes / kv_bytes_per_token(config);
    tokens = std::max(sizes.max_context_tokens, std::min(flags.max_concurrent * sizes.max_context_tokens, affordable));
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

Result<std::unique_ptr<ServedModel>> load_served_model(const ServeFlags& flags, const Clock& clock,
                                                       const metrics::WorkerMetrics& metrics, OtherWorkers others) {
  if (flags.backend == "cuda") {
    return Error{
        ErrorCode::kFailedPrecondition,
        fmt::format("--backend: found cuda, allowed is cpu: on CUDA this worker has matmul and rms_norm alone, not a whole "
                    "model ({})",
                    cuda::describe())};
  }
  const double started_s = clock.now_s();
  WINDLASS_ASSIGN_OR_RETURN(ModelConfig config, load_model_config(flags.model_folder));
  WINDLASS_ASSIGN_OR_RETURN(const EngineSizes sizes, engine_sizes(flags, config));
  WINDLASS_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(flags.model_folder));
  if (tokenizer.size() > config.vocab_size) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}/tokenizer.json: largest token id: found {}, allowed is below config.json's vocab_size ({})",
                             flags.model_folder, tokenizer.size() - 1, config.vocab_size)};
  }
  // What it holds refers to one another, so it stays where it is from here on.
  auto model = std::make_unique<ServedModel>(flags.served_name, std::move(config), std::move(tokenizer));
  WINDLASS_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::load(model->tokenizer, flags.model_folder, flags.chat_template));
  model->chat.emplace(std::move(chat));
  WINDLASS_ASSIGN_OR_RETURN(const TensorStore store, TensorStore::open(flags.model_folder));
  WINDLASS_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(model->config, store));
  const std::uint64_t fingerprint = store.fingerprint();

  EngineOptions engine;
  engine.max_running = flags.max_concurrent;
  engine.max_waiting = 2 * flags.max_concurrent;
  engine.max_context_tokens = sizes.max_context_tokens;
  engine.max_batch_tokens = std::max(kStepTokens, flags.max_concurrent);
  engine.eos_token_ids = model->config.eos_token_ids;
  CpuBackendOptions backend;
  backend.kv_blocks = sizes.kv_blocks;
  backend.max_batch_tokens = engine.max_batch_tokens;
  backend.max_logit_rows = engine.max_running;
  backend.max_context_tokens = sizes.max_context_tokens;
  backend.threads = flags.threads;
  WINDLASS_ASSIGN_OR_RETURN(auto cpu, make_cpu_backend(model->config, std::move(weights), backend));

  const Tokenizer& tokens = model->tokenizer;
  model->exports = std::make_unique<KvExports>(*cpu, fingerprint, clock, metrics);
  model->imports = std::make_unique<KvImports>(
      *cpu, fingerprint, std::move(others.ask),
      [&to = *model, failed = std::move(others.failed)](RequestId request, const KvQuestion& last,
                                                        const Result<Sampled>& first) {
        if (!first.ok()) failed(last, first.error());
        to.engine->received(request, first);
      },
      clock, metrics);
  const KvTransfer transfer{model->exports.get(), model->imports.get()};
  model->engine = std::make_unique<EngineLoop>(
      std::move(engine), std::move(cpu), [&tokens](std::int32_t id) { return tokens.token_bytes(id); }, clock, metrics,
      transfer);
  metrics.model_load.set(clock.now_s() - started_s);
  return model;
}

}  // namespace windlass::worker
