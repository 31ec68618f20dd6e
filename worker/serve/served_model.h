// ServedModel: everything that exists once a model is loaded: tokenizer, chat template and the running engine. ServedBlocks:
// what a worker has instead whose blocks do not begin with the model's first.
//
// Made by load_served() on any thread; afterwards immutable but for engine loop and stage, which are thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "metrics/bundles.h"
#include "worker/collective/rank_group.h"
#include "worker/engine/engine_loop.h"
#include "worker/model/chat_template.h"
#include "worker/model/config.h"
#include "worker/model/tokenizer.h"
#include "worker/model/weights.h"
#include "worker/parallel/chain_sessions.h"
#include "worker/parallel/chain_stage.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/serve/flags.h"

namespace windlass::worker {

struct ServedModel {
  ServedModel(std::string name, ModelConfig model_config, Tokenizer model_tokenizer)
      : served_name(std::move(name)), config(std::move(model_config)), tokenizer(std::move(model_tokenizer)) {}

  const std::string served_name;
  const ModelConfig config;
  const Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // always there once loaded, like the following
  std::unique_ptr<KvExports> exports;
  std::unique_ptr<KvImports> imports;
  BlockRange blocks;                      // those that are here; with all of them there are no chains
  std::unique_ptr<ChainSessions> chains;  // null where all blocks are here
  std::vector<std::string> next_hops;     // of requests that name no chain; may be empty
  std::unique_ptr<EngineLoop> engine;     // last: ends first
};

struct ServedBlocks {
  ModelConfig config;
  std::unique_ptr<ChainStage> stage;
};

// One of the two.
struct Served {
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<ServedBlocks> blocks;
  WeightBytes weights;  // of this rank

  // Requests, or sessions of other workers', that are here.
  [[nodiscard]] std::int64_t in_flight() const { return model ? model->engine->in_flight() : blocks->stage->sessions(); }
  // Takes nothing new from now on.
  void drain() const { model ? model->engine->drain() : blocks->stage->drain(); }
};

// The blocks that the flags ask for, of the model's. Error: kInvalidArgument naming the flag.
[[nodiscard]] Result<BlockRange> blocks_of(const ServeFlags& flags, const ModelConfig& config);

// Sizes that follow from the flags and the model. Error: kInvalidArgument naming the flag.
struct EngineSizes {
  std::int64_t max_context_tokens = 0;
  std::int64_t kv_blocks = 0;
};
// On a GPU kv_blocks are those to be wanted: what its memory has left may be less.
[[nodiscard]] Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config);

// How this worker reaches others, and whom it tells when that failed.
struct OtherWorkers {
  KvImports::Ask ask;
  std::function<void(const KvQuestion& last, const Error& why)> failed;
  ChainPost post;
};

// What the ranks of --tensor-parallel share: made by rank 0, joined by the others. Error: as check_tensor_parallel() and
// RankGroup; those of the model's config.
[[nodiscard]] Result<std::shared_ptr<RankGroup>> open_rank_group(const ServeFlags& flags);

// The other ranks, where there are any, and who is told that one of them, or the GPU, is lost; on any thread.
struct TensorRanks {
  RankGroup* group = nullptr;
  std::function<void(const Error&)> lost;
};

// REQUIRES: clock, metrics and ranks.group outlive what is returned. Errors name the file or flag, the field, found and
// allowed. With ranks it waits until all have loaded their part.
[[nodiscard]] Result<Served> load_served(const ServeFlags& flags, const Clock& clock, const metrics::WorkerMetrics& metrics,
                                         OtherWorkers others, TensorRanks ranks = {});

// What ranks other than 0 do instead: load their part and compute it until rank 0 ends them. Errors as above, or of a rank that
// is lost. REQUIRES: ranks.group.
[[nodiscard]] Result<void> serve_rank_part(const ServeFlags& flags, TensorRanks ranks);

}  // namespace windlass::worker
