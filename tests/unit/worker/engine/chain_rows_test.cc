// Logits of chains: summaries where they suffice, full rows otherwise. The tokens must equal those of an engine that sees the
// rows, or the same summaries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/worker/chain_mesh.h"
#include "tests/unit/worker/cuda_summaries.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/engine/row_summariser.h"

namespace windlass::worker {
namespace {

using testing::config_with_layers;
using testing::First;
using testing::greedy;
using ::testing::HasSubstr;
using testing::Mesh;
using testing::random_logits;
using testing::random_tokens;
using testing::token_text;
using Fault = Mesh::Fault;

// Returns rows of `own` as a GPU does: as summaries where they suffice.
class Summarising final : public Backend {
 public:
  explicit Summarising(std::unique_ptr<Backend> own) : own_(std::move(own)) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return own_->vocab_size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return own_->kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return own_->kv_shape(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    own_->read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    own_->write_kv(range, blocks, in);
  }
  [[nodiscard]] const LogitSummary* summary(std::size_t row) const override {
    return row < summaries_.size() && summaries_[row] ? &*summaries_[row] : nullptr;
  }
  [[nodiscard]] Result<std::span<const float>> row(std::size_t row) override {
    ++fetched;
    EXPECT_TRUE(may_follow_[row]);
    const auto vocab = static_cast<std::size_t>(vocab_size());
    return rows_.subspan(row * vocab, vocab);
  }

  int fetched = 0;

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    WINDLASS_ASSIGN_OR_RETURN(rows_, own_->forward(chunks, layer_done, skip));
    summaries_.clear();
    may_follow_.clear();
    const auto vocab = static_cast<std::size_t>(vocab_size());
    for (const SequenceChunk& chunk : chunks) {
      if (!chunk.wants_logits) continue;
      const auto row = rows_.subspan(summaries_.size() * vocab, vocab);
      summaries_.emplace_back();
      if (chunk.need.likeliest > 0) summaries_.back() = summariser_.summary_of(row, chunk.need);
      may_follow_.push_back(chunk.row_may_follow);
    }
    return rows_;
  }

  std::unique_ptr<Backend> own_;
  RowSummariser summariser_;
  std::span<const float> rows_;
  std::vector<std::optional<LogitSummary>> summaries_;
  std::vector<bool> may_follow_;
};

// A vocabulary larger than a summary.
ModelConfig config_of_rows(Rng& rng, std::int64_t layers) {
  ModelConfig config = config_with_layers(rng, layers);
  config.vocab_size = 100;
  return config;
}

EngineOptions few_at_once() {
  EngineOptions options;
  options.max_running = 4;
  options.max_waiting = 100;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 24;
  options.prefix_caching = false;
  return options;
}

SamplingParams random_sampling(Rng& rng, std::uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.temperature = rng.uniform() < 0.3 ? 0 : rng.uniform(0.3, 2);
  if (rng.uniform() < 0.3) params.top_k = rng.integer(1, 80);
  if (rng.uniform() < 0.3) params.top_p = rng.uniform(0.1, 1);
  if (rng.uniform() < 0.2) params.min_p = rng.uniform(0, 0.2);
  if (rng.uniform() < 0.3) params.logprobs = static_cast<int>(rng.integer(0, 70));
  if (rng.uniform() < 0.2) params.frequency_penalty = 0.5;
  if (rng.uniform() < 0.1) params.logit_bias = {{3, 4.0F}};
  return params;
}

void expect_told(const TokenEvent& found, const TokenEvent& expected, double tolerance) {
  ASSERT_EQ(found.logprobs.has_value(), expected.logprobs.has_value());
  if (!found.logprobs) return;
  EXPECT_NEAR(found.logprobs->token.logprob, expected.logprobs->token.logprob, tolerance);
  ASSERT_EQ(found.logprobs->top.size(), expected.logprobs->top.size());
  for (std::size_t i = 0; i < found.logprobs->top.size(); ++i) {
    EXPECT_EQ(found.logprobs->top[i].bytes, expected.logprobs->top[i].bytes);
    EXPECT_NEAR(found.logprobs->top[i].logprob, expected.logprobs->top[i].logprob, tolerance);
  }
}

class ChainRows : public testing::BothWays {};
INSTANTIATE_TEST_SUITE_P(Steps, ChainRows, ::testing::Bool(), testing::name_of_way);

// Given rows with many equal and some infinite logits; expects the host's summaries to equal those computed by sorting.
TEST_P(ChainRows, SummariesOfRows) {
  Rng rng(1, "summaries");
  RowSummariser summariser;
  for (int i = 0; i < effort(200, 2000); ++i) {
    auto logits = random_logits(rng, rng.integer(1, i % 50 == 0 ? 40000 : 900));
    if (i % 20 == 0) std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
    const RowNeed need{static_cast<std::int32_t>(rng.integer(1, kMaxLikeliest)), i % 3 == 0 ? 1.0F : 0.6F};
    testing::expect_summary(summariser.summary_of(logits, need), testing::summary_of(logits, need));
  }
}

// Given requests with all kinds of sampling; expects a chain of three workers to give exactly the tokens of an engine over the
// whole model that sees the same summaries, and to fetch as many rows. With greedy sampling and top-k, expects also the tokens
// of an engine that sees rows. Nothing is left behind.
TEST_P(ChainRows, DrawAsFromTheWholeModel) {
  int fetched = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Rng rng(seed, "rows");
    Mesh mesh(config_of_rows(rng, 3), seed);
    mesh.add("b:1", {1, 2}, 700);
    mesh.add("c:1", {2, 3}, 700);
    std::atomic<int> rows = 0;
    mesh.faults = [&](const ChainCall& call) {
      rows += call.verb == ChainVerb::kRow && call.address == "c:1" ? 1 : 0;
      return Fault::kNone;
    };
    const EngineOptions options = few_at_once();
    First chain(mesh, 1, options, 40);
    const auto backend = [&] {
      return mesh.backend(mesh.config.all_blocks(), 40, options.max_batch_tokens, options.max_running);
    };
    Summarising summarising(backend());
    Engine by_summary(options, summarising, token_text, mesh.clock);
    const auto whole = backend();
    Engine by_row(options, *whole, token_text, mesh.clock);
    std::vector<GenerationRequest> requests;
    for (std::uint64_t i = 0; i < 10; ++i) {
      requests.push_back(greedy(random_tokens(rng, mesh.config, rng.integer(1, 30)), rng.integer(5, 30)));
      requests.back().sampling = random_sampling(rng, seed * 100 + i);
      ASSERT_TRUE(chain.submit(i, requests.back(), {"b:1", "c:1"}).ok());
      ASSERT_TRUE(by_summary.submit(i, requests.back(), 0).ok());
      ASSERT_TRUE(by_row.submit(i, requests.back(), 0).ok());
    }
    while (!by_summary.idle()) {
      const auto expected = by_summary.step();
      const auto found = chain.step();
      const auto of_rows = by_row.step();
      ASSERT_EQ(found.size(), expected.size()) << "seed " << seed;
      ASSERT_EQ(found.size(), of_rows.size()) << "seed " << seed;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].request, expected[i].request);
        EXPECT_EQ(found[i].text, expected[i].text) << "seed " << seed << ", request " << found[i].request;
        EXPECT_EQ(found[i].finish, expected[i].finish) << found[i].error;
        expect_told(found[i], expected[i], 0);
        const SamplingParams& params = requests[found[i].request].sampling;
        if (params.temperature > 0 && params.top_k == 0) continue;
        EXPECT_EQ(found[i].text, of_rows[i].text) << "seed " << seed << ", request " << found[i].request;
        expect_told(found[i], of_rows[i], 1e-5);
      }
    }
    EXPECT_EQ(rows, summarising.fetched);
    fetched += rows;
    mesh.expect_empty();
  }
  EXPECT_GT(fetched, 50);
}

// Given a row that is requested and does not arrive; expects the request to end as with a lost worker, and others to go on.
TEST_P(ChainRows, LostRowEndsItsRequest) {
  for (const Fault fault : {Fault::kNotSent, Fault::kNotHeard}) {
    Rng rng(3, "lost rows");
    Mesh mesh(config_of_rows(rng, 3), 3);
    mesh.add("b:1", {1, 2}, 100);
    mesh.add("c:1", {2, 3}, 100);
    mesh.faults = [&](const ChainCall& call) { return call.verb == ChainVerb::kRow ? fault : Fault::kNone; };
    First chain(mesh, 1, few_at_once(), 40);
    GenerationRequest flat = greedy({1, 2, 3}, 60);
    flat.sampling.temperature = 2;
    ASSERT_TRUE(chain.submit(1, flat, {"b:1", "c:1"}).ok());
    ASSERT_TRUE(chain.submit(2, greedy({4, 5}, 60), {"b:1", "c:1"}).ok());
    std::map<RequestId, TokenEvent> ends;
    while (!chain.engine.idle()) {
      for (const TokenEvent& event : chain.step()) {
        if (event.finish) ends[event.request] = event;
      }
    }
    EXPECT_EQ(ends[1].finish, FinishReason::kError);
    EXPECT_TRUE(ends[1].chain_lost);
    EXPECT_THAT(ends[1].error, HasSubstr("a later worker of the request's chain is lost"));
    EXPECT_EQ(ends[2].finish, FinishReason::kLength);
    mesh.expect_empty();
  }
}

// Given calls for rows of unknown sessions, or of sessions without a kept row; expects answers that say so.
TEST_P(ChainRows, MissingRowsAreErrors) {
  Rng rng(4, "no rows");
  Mesh mesh(config_of_rows(rng, 2), 4);
  ChainStage& stage = mesh.add("b:1", {1, 2}, 24);
  First chain(mesh, 1, few_at_once(), 20);
  ASSERT_TRUE(chain.submit(1, greedy({1, 2, 3}, 5), {"b:1"}).ok());
  static_cast<void>(chain.step());
  const auto row = [&](const std::string& name) {
    ChainAnswer answer{0, "", ""};
    stage.call(ChainVerb::kRow, name, [&](ChainAnswer found) { answer = std::move(found); });
    return answer;
  };
  EXPECT_EQ(row(testing::session_of(1)).status, 409) << "greedy asks for none";
  EXPECT_EQ(row(testing::session_of(2)).status, 404);
  EXPECT_EQ(row("x").status, 400);
}

// Given vocabularies of 32,000 and 150,000 tokens; expects the documented bytes per token of an answer: for a full row, and for
// summaries with greedy sampling, with a draw and with five log probabilities. Figures:
// docs/decisions/2026-11-22-chains-of-workers.md.
TEST_P(ChainRows, BytesOfAToken) {
  for (const std::int64_t vocab : {32000, 150000}) {
    const auto bytes = [&](const SamplingParams& params) {
      return logit_bytes({{}, 0, 1, true, Sampler(params).need()}, vocab);
    };
    EXPECT_EQ(bytes({.temperature = 0}), 24U);
    EXPECT_EQ(bytes({.temperature = 0, .logprobs = 5}), 56U);
    EXPECT_EQ(bytes({.temperature = 0.7, .top_k = 20}), 176U);
    EXPECT_EQ(bytes({.temperature = 0.7}), 528U);
    EXPECT_EQ(bytes({.logit_bias = {{1, 1.0F}}}), vocab == 32000 ? 128000U : 600000U);
  }
}

}  // namespace
}  // namespace windlass::worker
