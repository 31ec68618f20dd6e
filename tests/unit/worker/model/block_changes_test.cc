// Workers that change their blocks while they run (docs/decisions/2026-11-23-block-range-changes.md): afterwards they equal
// workers that started with these blocks, no weights they keep are read again, and a failure leaves them unchanged.
#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "metrics/engine_metrics.h"
#include "metrics/exposition_parser.h"
#include "tests/unit/worker/chain_mesh.h"
#include "tests/unit/worker/model_files.h"
#include "worker/model/block_weights.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;
using testing::Measured;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr WeightFormat kBlockFormats[] = {WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8};

BlockRange random_range(Rng& rng, std::int64_t layers) {
  const std::int64_t first = rng.integer(0, layers - 1);
  return {first, rng.integer(first + 1, layers)};
}

bool has(BlockRange range, std::int64_t block) { return block >= range.first && block < range.end; }

// A folder with a model of that many blocks; `tied`: its output matrix is the embedding.
void make_folder(const TemporaryFolder& folder, Architecture architecture, std::int64_t layers, bool tied, std::uint64_t seed) {
  ModelShape shape = testing::tiny_shape(architecture);
  shape.layers = layers;
  shape.seed = seed;
  ASSERT_TRUE(init_model(shape, folder.path()).ok());
  auto config = nlohmann::json::parse(read_bytes(folder.path() / "config.json"));
  if (tied) config["tie_word_embeddings"] = true;
  write_bytes(folder.path() / "config.json", config.dump());
}

// Addresses of a layer's numbers.
std::set<const void*> places_of(const LayerWeights& layer) {
  std::set<const void*> places;
  const auto add = [&](const WeightMatrix& matrix) {
    if (!matrix.values.empty()) places.insert(matrix.values.data());
    if (!matrix.halves.empty()) places.insert(matrix.halves.data());
    if (!matrix.codes.empty()) places.insert(matrix.codes.data());
  };
  add(layer.qkv);
  add(layer.attention_out);
  add(layer.mlp.in);
  add(layer.mlp.out);
  for (const MlpWeights& expert : layer.experts) {
    add(expert.in);
    add(expert.out);
  }
  places.insert(layer.attention_norm.weight.data());
  return places;
}

// Given random models of every architecture and weights in every format; expects weights after each change of range to equal
// those of a fresh load. What both ranges have stays in place and is not read again.
TEST(BlockWeights, AnyChangeEqualsAFreshLoad) {
  std::int64_t kept = 0;
  std::int64_t read = 0;
  for (std::uint64_t round = 0; round < 28; ++round) {
    Rng rng(round, "ranges");
    const TemporaryFolder folder;
    const std::int64_t layers = rng.integer(1, 6);
    make_folder(folder, testing::kEveryArchitecture[round % 7], layers, rng.uniform() < 0.4, round);
    const auto config = load_model_config(folder.path());
    const auto store = TensorStore::open(folder.path());
    ASSERT_TRUE(config.ok() && store.ok());
    const WeightFormat format = kBlockFormats[round / 7];
    const TensorSlice slice = rng.uniform() < 0.3 ? TensorSlice{1, 2} : TensorSlice{};
    BlockWeights weights(*config, slice, format);
    for (int change = 0; change < 10; ++change) {
      const BlockRange before = weights.blocks();
      const BlockRange to = random_range(rng, layers);
      std::map<std::int64_t, std::set<const void*>> places;
      for (std::int64_t i = before.first; i < before.end; ++i)
        places[i] = places_of(weights.weights()->layers[static_cast<std::size_t>(i - before.first)]);
      const float* embedding = weights.weights()->embedding.values.data();
      const bool had_embedding = !weights.weights()->embedding.empty();

      std::optional<ModelWeights> missing;
      const bool grows = to.first <= before.first && to.end >= before.end;
      if (grows && rng.uniform() < 0.5) missing = *weights.read(*store, to);
      weights.keep(to);
      if (!missing) {
        auto found = weights.read(*store, to);
        ASSERT_TRUE(found.ok()) << found.error().message;
        missing = std::move(found).value();
      }
      std::int64_t common = 0;
      for (std::int64_t i = to.first; i < to.end; ++i) common += has(before, i) ? 1 : 0;
      EXPECT_EQ(static_cast<std::int64_t>(missing->layers.size()), to.size() - common);
      EXPECT_TRUE(!had_embedding || missing->embedding.empty());
      kept += common;
      read += to.size() - common;
      weights.add(std::move(*missing), to);

      const auto fresh = load_weights(*config, *store, to, slice, format);
      ASSERT_TRUE(fresh.ok()) << fresh.error().message;
      EXPECT_EQ(*weights.weights(), *fresh) << to_string(before) << " to " << to_string(to);
      EXPECT_EQ(weights.blocks(), to);
      for (std::int64_t i = to.first; i < to.end; ++i) {
        if (!has(before, i)) continue;
        EXPECT_EQ(places_of(weights.weights()->layers[static_cast<std::size_t>(i - to.first)]), places[i]) << i;
      }
      if (had_embedding && !weights.weights()->embedding.empty()) {
        EXPECT_EQ(weights.weights()->embedding.values.data(), embedding);
      }
    }
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(read, 50);
}

// Given weights of all blocks reduced to one block; expects no more memory than a fresh load of that block.
TEST(BlockWeights, FreesDroppedBlocks) {
  const TemporaryFolder folder;
  make_folder(folder, Architecture::kLlama, 4, false, 1);
  const auto config = load_model_config(folder.path());
  const auto store = TensorStore::open(folder.path());
  BlockWeights weights(*config, {}, WeightFormat::kFp32);
  weights.add(*weights.read(*store, {0, 4}), {0, 4});
  weights.keep({1, 2});
  EXPECT_EQ(weights.weights()->embedding.values.capacity() + weights.weights()->lm_head.values.capacity() +
                weights.weights()->final_norm.weight.capacity(),
            0U);
  EXPECT_EQ(weights.weights()->layers.capacity(), 1U);
}

// A worker without its HTTP side.
struct ChangingWorker {
  ChangingWorker(const ServeFlags& flags, const Clock& clock, ChainPost post)
      : host(flags, clock, measured.metrics, OtherWorkers{{}, {}, std::move(post)}) {
    auto loaded = host.load();
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    if (loaded.ok()) served.emplace(std::move(loaded).value());
  }
  ~ChangingWorker() { until_nobody_calls(); }
  void until_nobody_calls() const {
    while (calls != 0) std::this_thread::yield();
  }
  // Changes blocks like the HTTP side, with nothing in flight.
  Result<void> change(BlockRange to) {
    auto change = host.prepare(to);
    if (!change.ok()) return change.error();
    return change_now(std::move(change).value());
  }
  Result<void> change_now(ModelHost::Change change) {
    until_nobody_calls();
    served.reset();
    auto changed = host.change(std::move(change));
    if (!changed.ok()) return changed.error();
    served.emplace(std::move(changed->served));
    return changed->failure ? Result<void>(*changed->failure) : Result<void>();
  }

  Measured measured;
  ModelHost host;
  std::optional<Served> served;
  std::atomic<int> calls{0};  // calls of other workers in progress, like the HTTP side's lease
};

struct Generated {
  std::string text;
  std::vector<double> logprobs;
  std::optional<FinishReason> finish;
  std::string error;

  bool operator==(const Generated&) const = default;
};

// Runs a request from beginning to end, through the chain of these workers if it needs one.
Generated generate(const Served& first, const std::vector<std::int32_t>& prompt, const std::vector<std::string>& hops) {
  const ServedModel& model = *first.model;
  GenerationRequest request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 1;
  request.max_tokens = 8;
  request.ignore_eos = true;
  if (model.chains) {
    request.chain = new_session_id();
    Result<void> reserved = Error{};
    model.chains->reserve({request.chain}, hops, static_cast<std::int64_t>(prompt.size()) + request.max_tokens,
                          [&](Result<void> outcome) { reserved = std::move(outcome); });
    if (!reserved.ok()) return {"", {}, FinishReason::kError, reserved.error().message};
  }
  Generated generated;
  std::promise<void> ended;
  const std::string chain = request.chain;
  const auto taken = model.engine->submit(std::move(request), [&](const TokenEvent& event) {
    generated.text += event.text;
    if (event.logprobs) generated.logprobs.push_back(event.logprobs->token.logprob);
    if (!event.finish) return;
    if (!chain.empty()) model.chains->release(chain);
    generated.finish = event.finish;
    generated.error = event.error;
    ended.set_value();
  });
  if (!taken.ok()) return {"", {}, FinishReason::kError, taken.error().message};
  ended.get_future().wait();
  EXPECT_TRUE(model.engine->wait_idle(60));
  return generated;
}

std::vector<std::int32_t> random_prompt(Rng& rng, const ModelConfig& config) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t n = rng.integer(1, 40); n > 0; --n)
    prompt.push_back(static_cast<std::int32_t>(rng.integer(0, config.vocab_size - 1)));
  return prompt;
}

ServeFlags flags_of(const TemporaryFolder& folder, BlockRange blocks) {
  ServeFlags flags;
  flags.model_folder = folder.path().string();
  flags.served_name = "m";
  flags.max_concurrent = 2;
  flags.measure_time_s = 0;
  flags.blocks = blocks;
  return flags;
}

// Given three workers that become first, middle, last and whole in turn, with random (also overlapping) splits; expects each
// chain to give exactly the tokens of a worker that had all blocks from the start, and its log probabilities as accurately as a
// summary's sum allows. Each worker's cache is as large as a fresh worker's for that range.
TEST(BlockChanges, ChainsGiveWhatTheUncutModelGives) {
  std::set<std::string> parts;
  for (std::uint64_t round = 0; round < 7; ++round) {
    Rng rng(round, "cuts");
    const TemporaryFolder folder;
    const std::int64_t layers = rng.integer(3, 5);
    make_folder(folder, testing::kEveryArchitecture[round], layers, rng.uniform() < 0.5, round + 1);
    const testing::SharedClock clock;
    std::vector<std::unique_ptr<ChangingWorker>> workers(3);
    const ChainPost post = [&](ChainCall call, const ChainAnswered& answered) {
      ChangingWorker& callee = *workers[static_cast<std::size_t>(call.address[1] - '0')];  // "w0:1"
      ++callee.calls;
      if (callee.served && callee.served->blocks) {
        callee.served->blocks->stage->call(call.verb, std::move(call.body), answered);
      } else {
        ADD_FAILURE() << call.address << " is no later worker";
        answered({0, "", "no later worker"});
      }
      --callee.calls;
    };
    ServeFlags flags = flags_of(folder, {0, layers});
    flags.weights = kBlockFormats[round % 4];
    ChangingWorker uncut(flags, clock, post);
    for (auto& worker : workers) {
      flags.blocks = random_range(rng, layers);
      worker = std::make_unique<ChangingWorker>(flags, clock, post);
    }
    ASSERT_TRUE(uncut.served);
    const ModelConfig config = uncut.served->model->config;
    for (int cut = 0; cut < 6; ++cut) {
      std::vector<std::size_t> order = {0, 1, 2};
      for (std::size_t i = 2; i > 0; --i)
        std::swap(order[i], order[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
      std::vector<BlockRange> ranges;
      for (std::int64_t at = 0; at < layers;) {
        const bool last = ranges.size() == 2;
        const std::int64_t end = last ? layers : rng.integer(at + 1, layers);
        ranges.push_back({at > 0 && rng.uniform() < 0.3 ? rng.integer(1, at) : at, end});
        at = end;
      }
      std::vector<std::string> hops;
      for (std::size_t i = 0; i < order.size(); ++i) {
        const BlockRange to = i < ranges.size() ? ranges[i] : random_range(rng, layers);
        ChangingWorker& worker = *workers[order[i]];
        const auto changed = worker.change(to);
        ASSERT_TRUE(changed.ok()) << changed.error().message;
        EXPECT_EQ(worker.served->range(), to);
        EXPECT_EQ(worker.measured.metrics.model_blocks_first.value(), static_cast<double>(to.first));
        EXPECT_EQ(worker.measured.metrics.model_blocks_end.value(), static_cast<double>(to.end));
        EXPECT_EQ(worker.measured.metrics.kv_blocks.value(), static_cast<double>(engine_sizes(flags, config, to)->kv_blocks));
        parts.insert(fmt::format("{}{}", to.first == 0 ? "first" : "", to.end == layers ? "last" : ""));
        if (i > 0 && i < ranges.size()) hops.push_back(fmt::format("w{}:1", order[i]));
      }
      for (int n = 0; n < 2; ++n) {
        const auto prompt = random_prompt(rng, config);
        const Generated expected = generate(*uncut.served, prompt, {});
        const Generated found = generate(*workers[order[0]]->served, prompt, hops);
        EXPECT_EQ(found.finish, FinishReason::kLength) << found.error;
        EXPECT_EQ(found.text, expected.text) << "round " << round << ", cut " << cut;
        EXPECT_THAT(found.logprobs, ::testing::Pointwise(::testing::DoubleNear(1e-6), expected.logprobs));
      }
    }
    for (auto& worker : workers) {
      EXPECT_EQ(worker->served->in_flight(), 0);
      EXPECT_EQ(worker->measured.metrics.kv_blocks_used.value(), 0);
    }
  }
  EXPECT_THAT(parts, ::testing::UnorderedElementsAre("", "first", "last", "firstlast"));
}

// Number of series that report measurements of prefill and decode.
std::pair<int, int> measured_series(const ChangingWorker& worker) {
  const auto page = metrics::parse_exposition(worker.measured.registry.exposition());
  if (!page.ok()) return {-1, -1};
  return {static_cast<int>(page->find("windlass_worker_measured_prefill_seconds", {{"model", "m"}}).size()),
          static_cast<int>(page->find("windlass_worker_measured_decode_seconds", {{"model", "m"}}).size())};
}

// Given a worker of a whole model that measures itself; expects its figures in the metrics and no other trace: no iteration,
// token or used block is counted. They are hidden while it has only some blocks.
TEST(BlockChanges, ReportsMeasurementsOfWholeModelsOnly) {
  const TemporaryFolder folder;
  make_folder(folder, Architecture::kLlama, 3, false, 5);
  const SteadyClock clock;
  ServeFlags flags = flags_of(folder, {0, 3});
  flags.measure_time_s = 1e-3;
  ChangingWorker worker(flags, clock, [](const ChainCall&, const ChainAnswered&) {});
  ASSERT_TRUE(worker.served);
  EXPECT_EQ(measured_series(worker), std::pair(2, 2));
  const auto page = metrics::parse_exposition(worker.measured.registry.exposition());
  ASSERT_TRUE(page.ok());
  const auto read = metrics::read_engine_metrics(*page);
  ASSERT_TRUE(read && worker.host.measured().ok());
  EXPECT_THAT(read->measured, ::testing::UnorderedElementsAreArray(*worker.host.measured()));
  for (const char* name : {"iteration_seconds_count", "iteration_tokens_sum", "prompt_tokens_total", "generation_tokens_total",
                           "request_queue_seconds_count", "time_to_first_token_seconds_count", "prefix_cache_queries_total",
                           "kv_cache_blocks_used", "requests_running", "requests_waiting", "prompts_held", "preemptions_total",
                           "requests_finished_total", "kv_transfers_total", "kv_transfer_bytes_total"})
    EXPECT_EQ(page->sum(std::string("windlass_worker_") + name).value_or(0), 0) << name;

  ASSERT_TRUE(worker.change({0, 2}).ok());
  EXPECT_EQ(measured_series(worker), std::pair(0, 0));
  ASSERT_TRUE(worker.change({0, 3}).ok());
  EXPECT_EQ(measured_series(worker), std::pair(2, 2));
}

// Given a prefill worker, one with some of the blocks, and one that must not measure; expects only prefill figures, and none.
TEST(BlockChanges, NotEveryWorkerMeasuresAll) {
  const TemporaryFolder folder;
  make_folder(folder, Architecture::kLlama, 3, false, 5);
  const testing::SharedClock clock;
  const ChainPost post = [](const ChainCall&, const ChainAnswered&) {};
  ServeFlags flags = flags_of(folder, {0, 3});
  EXPECT_EQ(measured_series(ChangingWorker(flags, clock, post)), std::pair(0, 0));
  flags.measure_time_s = 1e-3;
  flags.role = Role::kPrefill;
  EXPECT_EQ(measured_series(ChangingWorker(flags, clock, post)), std::pair(2, 0));
  for (const BlockRange part : {BlockRange{0, 2}, BlockRange{1, 3}}) {
    flags.blocks = part;
    EXPECT_EQ(measured_series(ChangingWorker(flags, clock, post)), std::pair(0, 0));
  }
}

// Given the default size of the KV cache, at most 2 GiB; expects more positions on a worker with fewer blocks.
TEST(BlockChanges, TheCacheFollowsTheNumberOfBlocks) {
  ModelConfig config;
  config.layers = 8;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.max_context_tokens = 4096;
  ServeFlags flags;
  flags.max_concurrent = 1024;
  const auto blocks = [&](BlockRange range) { return engine_sizes(flags, config, range)->kv_blocks; };
  EXPECT_EQ(blocks({0, 4}), 2 * blocks({0, 8}));
  EXPECT_EQ(blocks({7, 8}), 8 * blocks({0, 8}));
}

// Where a tensor's numbers begin in the folder's file, and how many bytes they have.
std::pair<std::size_t, std::size_t> bytes_of_tensor(const std::filesystem::path& file, const std::string& name) {
  const std::string bytes = read_bytes(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto offsets = nlohmann::json::parse(bytes.substr(8, header)).at(name).at("data_offsets");
  return {8 + header + offsets[0].get<std::size_t>(), offsets[1].get<std::size_t>() - offsets[0].get<std::size_t>()};
}

// Writes a NaN into a block, in place, between the samples that the fingerprint reads.
void damage(const std::filesystem::path& file, int block) {
  const auto [at, size] = bytes_of_tensor(file, fmt::format("model.layers.{}.mlp.down_proj.weight", block));
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(at + size / 16 + 64));
  out.write("\xFF\xFF\xFF\xFF", 4);
}

// A worker with the first two of four blocks, and its answers together with a worker that has the rest.
class FailingChanges : public ::testing::Test {
 protected:
  void SetUp() override {
    make_folder(folder_, Architecture::kLlama, 4, false, 3);
    ServeFlags flags = flags_of(folder_, {0, 2});
    flags.weights = WeightFormat::kInt8;
    const ChainPost post = [this](ChainCall call, const ChainAnswered& answered) {
      rest_->served->blocks->stage->call(call.verb, std::move(call.body), answered);
    };
    worker_ = std::make_unique<ChangingWorker>(flags, clock_, post);
    flags.blocks = BlockRange{2, 4};
    rest_ = std::make_unique<ChangingWorker>(flags, clock_, post);
    expected_ = answer();
    ASSERT_EQ(expected_.finish, FinishReason::kLength) << expected_.error;
  }

  Generated answer() { return generate(*worker_->served, {5, 6, 7, 8}, {"rest:1"}); }
  void expect_as_before() {
    ASSERT_TRUE(worker_->served);
    EXPECT_EQ(worker_->served->range(), (BlockRange{0, 2}));
    EXPECT_EQ(answer(), expected_);
  }

  TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "model.safetensors";
  testing::SharedClock clock_;
  std::unique_ptr<ChangingWorker> rest_, worker_;
  Generated expected_;
};

// Given files that are truncated, of another model, or without a tensor of the new blocks; expects the change to fail before it
// begins, with the reason, and the same answers as before.
TEST_F(FailingChanges, FailsBeforeTheChangeIfPossible) {
  const std::string whole = read_bytes(file_);
  const auto error = [&](BlockRange to) {
    const auto change = worker_->host.prepare(to);
    return change.ok() ? "" : change.error().message;
  };
  write_bytes(file_, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(error({1, 3}), HasSubstr(file_.string()));
  std::string other = whole;
  const auto at = bytes_of_tensor(file_, "model.layers.3.mlp.down_proj.weight").first;
  other[at] = static_cast<char>(other[at] ^ 1);
  write_bytes(file_, other);
  EXPECT_THAT(error({1, 3}), HasSubstr("must have the weights that this worker started with"));
  std::filesystem::remove(file_);
  EXPECT_THAT(error({1, 3}), HasSubstr(folder_.path().string()));
  write_bytes(file_, whole);
  EXPECT_EQ(error({1, 3}), "");
  EXPECT_EQ(error({0, 4}), "");
  expect_as_before();
}

// Given a folder that lacks a tensor of a block the worker does not have; expects it to serve, to refuse a range with that
// block by the tensor's name, and to accept others.
TEST_F(FailingChanges, AFolderOfSomeBlocks) {
  std::string bytes = read_bytes(file_);
  for (auto at = bytes.find("model.layers.3."); at != std::string::npos; at = bytes.find("model.layers.3."))
    bytes.replace(at, 5, "other");
  const TemporaryFolder folder;
  std::filesystem::copy(folder_.path(), folder.path(), std::filesystem::copy_options::recursive);
  write_bytes(folder.path() / "model.safetensors", bytes);
  ChangingWorker worker(flags_of(folder, {0, 2}), clock_, [](const ChainCall&, const ChainAnswered&) {});
  ASSERT_TRUE(worker.served);
  const auto changed = worker.change({1, 4});
  ASSERT_FALSE(changed.ok());
  EXPECT_THAT(changed.error().message, HasSubstr("tensor 'model.layers.3.self_attn.q_proj.weight': must have shape"));
  EXPECT_EQ(worker.served->range(), (BlockRange{0, 2}));
  EXPECT_TRUE(worker.change({1, 3}).ok());
}

// Given a block that turns out to be unreadable; expects no change if it was read ahead. If blocks were dropped for it, expects
// them to be read again and the previous range to be served.
TEST_F(FailingChanges, FailsWhileReading) {
  damage(file_, 3);
  const auto ahead = worker_->host.prepare({0, 4});
  ASSERT_FALSE(ahead.ok());
  EXPECT_THAT(ahead.error().message, HasSubstr("must have only numbers that are finite as int8"));
  expect_as_before();
  const auto changed = worker_->change({1, 4});
  ASSERT_FALSE(changed.ok());
  EXPECT_THAT(changed.error().message, HasSubstr("tensor 'model.layers.3.mlp.down_proj.weight'"));
  expect_as_before();
  EXPECT_TRUE(worker_->change({1, 3}).ok());
  EXPECT_TRUE(worker_->change({0, 2}).ok());
  expect_as_before();
}

// Given files in which neither the new blocks nor the dropped ones can be read any more; expects an error that names both and
// why: nothing is left to serve.
TEST_F(FailingChanges, FailsIfNoBlocksAreReadable) {
  auto change = worker_->host.prepare({1, 4});
  ASSERT_TRUE(change.ok()) << change.error().message;
  damage(file_, 0);
  damage(file_, 3);
  const auto changed = worker_->change_now(std::move(change).value());
  ASSERT_FALSE(changed.ok());
  EXPECT_THAT(changed.error().message, HasSubstr("blocks 1:4: "));
  EXPECT_THAT(changed.error().message, HasSubstr("'model.layers.3.mlp.down_proj.weight'"));
  EXPECT_THAT(changed.error().message, HasSubstr("the previous ones, 0:2: "));
  EXPECT_THAT(changed.error().message, HasSubstr("'model.layers.0.mlp.down_proj.weight'"));
  EXPECT_FALSE(worker_->served);
}

}  // namespace
}  // namespace windlass::worker
