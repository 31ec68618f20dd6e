// Workers that have a model's blocks together, in one process: real backends and stages, with a wire that a test may cut.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "metrics/bundles.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/engine/engine.h"
#include "worker/parallel/chain_backend.h"
#include "worker/parallel/chain_sessions.h"
#include "worker/parallel/chain_stage.h"

namespace windlass::worker::testing {

// Read by the stages' threads while a test sets it.
class SharedClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override { return now.load(); }
  std::atomic<double> now = 0;
};

inline std::string session_of(std::uint64_t id) { return fmt::format("{:032x}", id); }

inline std::string_view token_text(std::int32_t token) {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (int i = 0; i < 100; ++i) texts.push_back(std::to_string(i) + " ");
    return texts;
  }();
  return kTexts[static_cast<std::size_t>(token)];
}

inline ModelConfig config_with_layers(Rng& rng, std::int64_t layers) {
  ModelConfig config = random_config(rng);
  config.layers = layers;
  config.windows.resize(static_cast<std::size_t>(layers), 0);
  config.norm_after = config.experts == 0 && rng.uniform() < 0.3;
  return config;
}

// What a worker with these blocks alone loads.
inline ModelWeights part_of(const ModelConfig& config, const ModelWeights& all, BlockRange blocks) {
  ModelWeights part;
  const bool ends = blocks.end == config.layers;
  if (blocks.first == 0 || (ends && config.tie_word_embeddings)) part.embedding = all.embedding;
  if (blocks.first == 0) part.positions = all.positions;
  part.layers.assign(all.layers.begin() + blocks.first, all.layers.begin() + blocks.end);
  if (ends) part.final_norm = all.final_norm;
  if (ends) part.lm_head = all.lm_head;
  return part;
}

// Metrics of its own for each worker.
struct Measured {
  metrics::Registry registry;
  metrics::WorkerMetrics metrics{registry, "m"};
};

class Mesh {
 public:
  Mesh(ModelConfig model_config, std::uint64_t seed)
      : config(std::move(model_config)), weights(random_weights(config, seed)), model(chain_model(config, seed)) {}

  [[nodiscard]] std::unique_ptr<Backend> backend(BlockRange blocks, std::int64_t kv_blocks, std::int64_t batch,
                                                 std::int64_t rows) const {
    CpuBackendOptions options;
    options.kv_blocks = kv_blocks;
    options.max_batch_tokens = batch;
    options.max_logit_rows = rows;
    options.max_context_tokens = config.max_context_tokens;
    options.blocks = blocks;
    auto made = make_cpu_backend(config, part_of(config, weights, blocks), options);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }

  // A worker with blocks that begin later.
  ChainStage& add(const std::string& address, BlockRange blocks, std::int64_t kv_blocks, std::int64_t batch = 256,
                  std::int64_t rows = 64) {
    auto& measured = measured_[address] = std::make_unique<Measured>();
    const ChainStageOptions options{model, blocks, config.max_context_tokens, batch, rows};
    auto stage =
        std::make_unique<ChainStage>(options, backend(blocks, kv_blocks, batch, rows), post(), clock, measured->metrics);
    const std::scoped_lock lock(mutex_);
    return *(stages_[address] = std::move(stage));
  }
  void remove(const std::string& address) {
    std::shared_ptr<ChainStage> removed;
    const std::scoped_lock lock(mutex_);
    removed = std::move(stages_[address]);
    stages_.erase(address);
  }

  // Delivers at once, on the caller's thread.
  [[nodiscard]] ChainPost post() {
    return [this](ChainCall call, const ChainAnswered& answered) {
      const Fault fault = faults ? faults(call) : Fault::kNone;
      std::shared_ptr<ChainStage> to;
      {
        const std::scoped_lock lock(mutex_);
        const auto it = stages_.find(call.address);
        if (it != stages_.end()) to = it->second;
      }
      if (to == nullptr || fault == Fault::kNotSent) return answered({0, "", "the connection broke"});
      if (fault == Fault::kSilent) return;
      to->call(call.verb, std::move(call.body), [answered, fault](ChainAnswer answer) {
        if (fault == Fault::kNotHeard) answer = {0, "", "the connection broke before the answer"};
        answered(std::move(answer));
      });
    };
  }

  [[nodiscard]] const metrics::WorkerMetrics& metrics_of(const std::string& address) { return measured_.at(address)->metrics; }
  void tick() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [address, stage] : stages_) stage->tick();
  }
  void expect_empty() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [address, stage] : stages_) {
      EXPECT_EQ(stage->sessions(), 0) << address;
      EXPECT_EQ(metrics_of(address).kv_blocks_used.value(), 0) << address;
    }
  }

  enum class Fault { kNone, kNotSent, kNotHeard, kSilent };
  std::function<Fault(const ChainCall&)> faults;  // set before anything runs; called on any thread

  const ModelConfig config;
  const ModelWeights weights;
  const ChainModel model;
  SharedClock clock;
  Measured head;  // of the first worker

 private:
  std::map<std::string, std::unique_ptr<Measured>> measured_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ChainStage>> stages_;  // gone first
};

// The first worker of chains: an engine over some blocks, with the calls that the HTTP side makes.
class First {
 public:
  First(Mesh& mesh, std::int64_t blocks, const EngineOptions& options, std::int64_t kv_blocks)
      : sessions(mesh.model, blocks, kMostSessions, mesh.post(), mesh.clock, mesh.head.metrics),
        backend(mesh.backend({0, blocks}, kv_blocks, options.max_batch_tokens, options.max_running), mesh.model, sessions,
                mesh.clock, mesh.head.metrics),
        engine(options, backend, token_text, mesh.clock) {}

  // As a request begins: room first.
  Result<void> submit(RequestId id, GenerationRequest request, const std::vector<std::string>& hops) {
    request.chain = session_of(id);
    Result<void> reserved = Error{};
    const auto tokens = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
    sessions.reserve({request.chain}, hops, tokens, [&](Result<void> outcome) { reserved = std::move(outcome); });
    if (!reserved.ok()) return reserved;
    const auto taken = engine.submit(id, std::move(request), 0);
    if (!taken.ok()) sessions.release(session_of(id));
    return taken;
  }
  // A step, and what follows from ends.
  std::vector<TokenEvent> step() {
    auto events = engine.step();
    for (const TokenEvent& event : events) {
      if (event.finish) sessions.release(session_of(event.request));
    }
    return events;
  }

  static constexpr std::int64_t kMostSessions = 100;

  ChainSessions sessions;
  ChainBackend backend;
  Engine engine;
};

}  // namespace windlass::worker::testing
