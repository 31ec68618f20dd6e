// ServedModel: everything that exists once a model is loaded: tokenizer, chat template and the running engine. ServedBlocks:
// what a worker has instead whose blocks do not begin with the model's first. ModelHost: what makes them, and keeps of the
// model what stays when the blocks change (docs/decisions/2026-11-23-block-range-changes.md).
//
// Made by a ModelHost on any thread; afterwards immutable but for engine loop and stage, which are thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "metrics/bundles.h"
#include "metrics/engine_metrics.h"
#include "worker/collective/rank_group.h"
#include "worker/engine/engine_loop.h"
#include "worker/model/block_weights.h"
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

// What a model's texts are made with. Whole where it stands: its parts refer to each other.
struct ModelTexts {
  explicit ModelTexts(Tokenizer model_tokenizer) : tokenizer(std::move(model_tokenizer)) {}

  const Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // always there once loaded
};

struct ServedModel {
  std::string served_name;
  ModelConfig config;
  std::shared_ptr<const ModelTexts> texts;
  std::unique_ptr<KvExports> exports;  // always there once loaded, like the following
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
  WeightBytes weights;          // of this rank
  std::vector<int> processors;  // where its threads stay; none: wherever the system puts them

  [[nodiscard]] BlockRange range() const { return model ? model->blocks : blocks->stage->options().blocks; }
  [[nodiscard]] std::int64_t layers() const { return model ? model->config.layers : blocks->config.layers; }
  // Requests, or sessions of other workers', that are here.
  [[nodiscard]] std::int64_t in_flight() const { return model ? model->engine->in_flight() : blocks->stage->sessions(); }
  // Takes nothing new from now on.
  void drain() const {
    if (!model) return blocks->stage->drain();
    model->engine->drain();
    model->exports->drain();
  }
};

// The blocks that the flags ask for, of the model's. Error: kInvalidArgument naming the flag.
[[nodiscard]] Result<BlockRange> blocks_of(const ServeFlags& flags, const ModelConfig& config);

// Sizes that follow from the flags, the model, and how many of its blocks are here. Error: kInvalidArgument naming the flag.
struct EngineSizes {
  std::int64_t max_context_tokens = 0;
  std::int64_t kv_blocks = 0;
};
// On a GPU kv_blocks are those to be wanted: what its memory has left may be less.
[[nodiscard]] Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config, BlockRange blocks);

// How this worker reaches others, and whom it tells when that failed.
struct OtherWorkers {
  KvImports::Ask ask;
  std::function<void(const KvQuestion& last, const Error& why)> failed;
  ChainPost post;
  KvImports::Stream stream = {};
};

// What the ranks of --tensor-parallel share: made by rank 0, joined by the others. Error: as check_tensor_parallel() and
// RankGroup; those of the model's config; on CPUs, at rank 0, as check_memory() and check_weights().
[[nodiscard]] Result<std::shared_ptr<RankGroup>> open_rank_group(const ServeFlags& flags);

// The other ranks, where there are any, and who is told that one of them, or the GPU, is lost; on any thread.
struct TensorRanks {
  RankGroup* group = nullptr;
  std::function<void(const Error&)> lost;
};

// Why the blocks of a worker with these flags cannot change while it runs; nothing where they can.
[[nodiscard]] std::optional<std::string> fixed_blocks(const ServeFlags& flags);

// One thread at a time.
class ModelHost {
 public:
  // `progress` is told how far load() is. REQUIRES: clock, metrics, ranks.group and progress outlive this and what it gives.
  ModelHost(ServeFlags flags, const Clock& clock, const metrics::WorkerMetrics& metrics, OtherWorkers others,
            TensorRanks ranks = {}, LoadProgress* progress = nullptr);

  // The blocks that the flags ask for; once. Errors name the file or flag, the field, found and allowed. With ranks it waits
  // until all have loaded their part. Where all blocks are here, it measures iterations, too.
  [[nodiscard]] Result<Served> load();
  // What load() measured, or why that failed; nothing where it did not measure. The metrics show it while all blocks are
  // served.
  using Measured = std::vector<metrics::MeasuredIteration>;
  [[nodiscard]] const Result<Measured>& measured() const { return measured_; }
  // Instead, with a backend of all blocks that takes the place of the folder's weights. Errors as of load().
  [[nodiscard]] Result<Served> load_with(std::unique_ptr<Backend> backend);

  // What a change begins with.
  struct Change {
    BlockRange blocks;
    TensorStore store;
    std::optional<ModelWeights> read;  // what is missing, where it could be read ahead
  };
  // Looks at all that the change needs, while what is served goes on. Where nothing is to be dropped it also reads what is
  // missing: then that is no more memory than the new blocks take. Errors as of load(), and where the folder's weights are not
  // those that were loaded: nothing has changed then. REQUIRES: load() was, fixed_blocks() is nothing, and the model has these.
  [[nodiscard]] Result<Change> prepare(BlockRange blocks);

  struct Changed {
    Served served;                 // of the new blocks; or, with a failure, of those before
    std::optional<Error> failure;  // why it is not the new ones
  };
  // What is in both ranges is not read again. Error: neither the new blocks nor those before could be served.
  // REQUIRES: what was served is gone.
  [[nodiscard]] Result<Changed> change(Change change);

 private:
  [[nodiscard]] Result<Served> take_up(const TensorStore& store, BlockRange blocks, std::optional<ModelWeights> read);
  [[nodiscard]] Result<Served> serve(BlockRange blocks, std::unique_ptr<Backend> backend);
  [[nodiscard]] Result<void> need_texts();
  void show_measured(bool whole_model) const;

  const ServeFlags flags_;
  const Clock& clock_;
  const metrics::WorkerMetrics& metrics_;
  const OtherWorkers others_;
  const TensorRanks ranks_;
  LoadProgress* const progress_;             // may be null
  ModelConfig config_;                       // from load() on, like the following
  std::uint64_t fingerprint_ = 0;            // of the whole model's weights, as they are computed with
  std::vector<int> processors_;              // of this rank's threads; or none
  std::shared_ptr<const ModelTexts> texts_;  // once the first block has been here
  std::unique_ptr<BlockWeights> weights_;    // null where blocks are fixed
  BlockRange blocks_;                        // that are served
  Result<Measured> measured_ = Measured();
};

// What ranks other than 0 do instead: load their part and compute it until rank 0 ends them. Errors as above, or of a rank that
// is lost. REQUIRES: ranks.group.
[[nodiscard]] Result<void> serve_rank_part(const ServeFlags& flags, TensorRanks ranks);

}  // namespace windlass::worker
