// ServedModel: everything that exists once a model is loaded: tokenizer, chat template and the running engine. ServedBlocks:
// the equivalent for a worker whose blocks do not start with the model's first. ModelHost: creates both, and keeps the parts of
// a model that survive a change of blocks (docs/decisions/2026-11-23-block-range-changes.md).
//
// A ModelHost may create them on any thread; afterwards they are immutable except for the engine loop and the stage, which are
// thread-safe.
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

// The tokenizer and chat template. Must not be moved: its parts refer to each other.
struct ModelTexts {
  explicit ModelTexts(Tokenizer model_tokenizer) : tokenizer(std::move(model_tokenizer)) {}

  const Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // always set once loaded
};

struct ServedModel {
  std::string served_name;
  ModelConfig config;
  std::shared_ptr<const ModelTexts> texts;
  std::unique_ptr<KvExports> exports;  // always set once loaded, like the following
  std::unique_ptr<KvImports> imports;
  BlockRange blocks;                      // blocks of this worker; with all of them there are no chains
  std::unique_ptr<ChainSessions> chains;  // null if all blocks are here
  std::vector<std::string> next_hops;     // for requests that name no chain; may be empty
  std::unique_ptr<EngineLoop> engine;     // last member: destroyed first
};

struct ServedBlocks {
  ModelConfig config;
  std::unique_ptr<ChainStage> stage;
};

// Exactly one of the two is set.
struct Served {
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<ServedBlocks> blocks;
  WeightBytes weights;          // of this rank
  std::vector<int> processors;  // where its threads are pinned; empty: not pinned

  [[nodiscard]] BlockRange range() const { return model ? model->blocks : blocks->stage->options().blocks; }
  [[nodiscard]] std::int64_t layers() const { return model ? model->config.layers : blocks->config.layers; }
  // Requests in progress, or sessions of other workers.
  [[nodiscard]] std::int64_t in_flight() const { return model ? model->engine->in_flight() : blocks->stage->sessions(); }
  // Refuses new work from now on.
  void drain() const {
    if (!model) return blocks->stage->drain();
    model->engine->drain();
    model->exports->drain();
  }
};

// The range of blocks given by the flags. Error: kInvalidArgument naming the flag.
[[nodiscard]] Result<BlockRange> blocks_of(const ServeFlags& flags, const ModelConfig& config);

// Sizes derived from the flags, the model and the number of blocks served here. Error: kInvalidArgument naming the flag.
struct EngineSizes {
  std::int64_t max_context_tokens = 0;
  std::int64_t kv_blocks = 0;
};
// On a GPU, kv_blocks is the target; the memory may allow fewer.
[[nodiscard]] Result<EngineSizes> engine_sizes(const ServeFlags& flags, const ModelConfig& config, BlockRange blocks);

// How this worker calls others, and whom it notifies of a failure.
struct OtherWorkers {
  KvImports::Ask ask;
  std::function<void(const KvQuestion& last, const Error& why)> failed;
  ChainPost post;
  KvImports::Stream stream = {};
};

// Creates (rank 0) or joins (other ranks) the group of --tensor-parallel. Errors: those of check_tensor_parallel(), RankGroup
// and the model's config; on CPUs, at rank 0, also those of check_memory() and check_weights().
[[nodiscard]] Result<std::shared_ptr<RankGroup>> open_rank_group(const ServeFlags& flags);

// The other ranks, if any, and a callback for the loss of a rank or the GPU, called on any thread.
struct TensorRanks {
  RankGroup* group = nullptr;
  std::function<void(const Error&)> lost;
};

// Why a worker with these flags cannot change its blocks while it runs; nothing if it can.
[[nodiscard]] std::optional<std::string> fixed_blocks(const ServeFlags& flags);

// Used by one thread at a time.
class ModelHost {
 public:
  // `progress` receives the progress of load(). REQUIRES: clock, metrics, ranks.group and progress outlive this object and what
  // it creates.
  ModelHost(ServeFlags flags, const Clock& clock, const metrics::WorkerMetrics& metrics, OtherWorkers others,
            TensorRanks ranks = {}, LoadProgress* progress = nullptr);

  // Loads the blocks given by the flags; called once. With ranks, waits until all have loaded their part. If all blocks are
  // here, also measures iterations. Errors name the file or flag, the field, the rule and the value.
  [[nodiscard]] Result<Served> load();
  // Results of load()'s measurement, or why it failed; nothing if it did not measure. The metrics show them while all blocks
  // are served.
  using Measured = std::vector<metrics::MeasuredIteration>;
  [[nodiscard]] const Result<Measured>& measured() const { return measured_; }
  // Like load(), but with a backend for all blocks instead of the folder's weights. Errors: those of load().
  [[nodiscard]] Result<Served> load_with(std::unique_ptr<Backend> backend);

  // Input of change(), made by prepare().
  struct Change {
    BlockRange blocks;
    TensorStore store;
    std::optional<ModelWeights> read;  // the missing weights, if they could be read ahead
  };
  // Validates the change while the current blocks are still served. If no block is dropped, also reads the missing weights,
  // which then take no more memory than the new blocks need. Errors: those of load(), and kInvalidArgument if the folder's
  // weights are no longer those loaded; nothing has changed then. REQUIRES: load() succeeded, fixed_blocks() is nothing, and
  // the model has the blocks.
  [[nodiscard]] Result<Change> prepare(BlockRange blocks);

  struct Changed {
    Served served;                 // serves the new blocks; or, after a failure, the previous ones
    std::optional<Error> failure;  // why the new blocks are not served
  };
  // Switches the blocks. Weights that both ranges have are not read again. Error: neither the new nor the previous blocks could
  // be served. REQUIRES: the previous Served object is destroyed.
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
  ModelConfig config_;                       // set by load(), like the following
  std::uint64_t fingerprint_ = 0;            // of the whole model's weights, in the format used for computing
  std::vector<int> processors_;              // of this rank's threads; may be empty
  std::shared_ptr<const ModelTexts> texts_;  // set once this worker has had the first block
  std::unique_ptr<BlockWeights> weights_;    // null if blocks are fixed
  BlockRange blocks_;                        // currently served
  Result<Measured> measured_ = Measured();
};

// The main function of ranks other than 0: loads their part and computes it until rank 0 ends them. Errors: as above, or that a
// rank is lost. REQUIRES: ranks.group is set.
[[nodiscard]] Result<void> serve_rank_part(const ServeFlags& flags, TensorRanks ranks);

}  // namespace windlass::worker
