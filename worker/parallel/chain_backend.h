// ChainBackend: the Backend of the first worker of chains. It computes its own blocks here and sends the rest to other workers.
//
// forward() computes the batch's chunks, sends each chain's chunks to its next worker, and returns when all chains have
// answered or are lost. Chunks fail per chain: trouble in one chain does not affect sequences of another. If a worker answers
// that it no longer has some sessions, only those fail, and the chain's other chunks are sent again. A chain returns a summary
// of a row of logits if that suffices; the last worker keeps the row. Owned by the engine, like every backend.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/parallel/chain_sessions.h"

namespace windlass::worker {

class ChainBackend final : public Backend {
 public:
  // REQUIRES: `local` starts at block 0 and does not have all blocks; sessions, clock and metrics outlive this; every chunk
  // names a session.
  ChainBackend(std::unique_ptr<Backend> local, const ChainModel& model, ChainSessions& sessions, const Clock& clock,
               const metrics::WorkerMetrics& metrics);

  [[nodiscard]] std::int64_t vocab_size() const override { return model_.vocab_size; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return local_->kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return local_->kv_shape(); }
  [[nodiscard]] bool kv_is_bf16() const override { return local_->kv_is_bf16(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    local_->read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    local_->write_kv(range, blocks, in);
  }
  // kUnavailable: a later worker did not answer, or no longer knows the session.
  [[nodiscard]] const Error* failure(std::size_t chunk) const override {
    return failures_[chunk] ? &*failures_[chunk] : nullptr;
  }
  [[nodiscard]] const LogitSummary* summary(std::size_t row) const override {
    return row < rows_.size() && rows_[row].summary ? &*rows_[row].summary : nullptr;
  }
  // REQUIRES: the chunk had row_may_follow. Errors: those of failure().
  [[nodiscard]] Result<std::span<const float>> row(std::size_t row) override;

 private:
  // The chunks of one chain in this step.
  struct Group {
    ChainPtr chain;
    std::vector<std::size_t> chunks;  // indices in the batch
    std::vector<ChainChunk> heads;    // their heads, in the same order
    std::size_t logit_bytes = 0;      // expected in the answer
  };
  // Where a row of logits is.
  struct Row {
    ChainPtr chain;
    std::string session;
    std::optional<LogitSummary> summary;
  };
  struct Answers;

  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override;
  [[nodiscard]] std::vector<Group> groups_of(std::span<const SequenceChunk> chunks);
  [[nodiscard]] std::string step_of(const Group& group, std::span<const SequenceChunk> chunks, const float* hidden) const;
  [[nodiscard]] std::vector<std::optional<ChainAnswer>> wait(const std::vector<Group>& groups, ChainVerb verb,
                                                             Answers& answers) const;
  [[nodiscard]] bool over(const Group& group) const;
  void ask(const std::vector<Group>& groups, std::span<const SequenceChunk> chunks, const float* hidden);
  void take(const Group& group, const std::optional<ChainAnswer>& answer);
  [[nodiscard]] std::string why_not(const Group& group, const std::optional<ChainAnswer>& answer) const;
  [[nodiscard]] Result<void> take_logits(const Group& group, std::string_view logits);
  void fail(const ChainPtr& chain, std::size_t chunk, std::string_view why);

  const std::unique_ptr<Backend> local_;
  const ChainModel model_;
  ChainSessions& sessions_;
  const Clock& clock_;
  const metrics::WorkerMetrics& metrics_;
  std::vector<float> logits_;
  std::vector<std::optional<Error>> failures_;  // by chunk
  std::vector<bool> open_;                      // by chunk: neither answered nor failed
  std::vector<Row> rows_;
  std::vector<std::size_t> row_of_;  // by chunk, if it wants a row
  std::vector<float> fetched_;
};

}  // namespace windlass::worker
