// A chain of workers in one process: real backends and stages, and a wire on which a test may inject faults. Calls are
// delivered immediately, on the caller's thread; tests of BothWays run a second time with steps over connections
// (chain_steps.h).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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
#include "worker/parallel/chain_steps.h"

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
  return config;
}

// Each worker's own metrics.
struct Measured {
  metrics::Registry registry;
  metrics::WorkerMetrics metrics{registry, "m"};
};

class Mesh {
 public:
  Mesh(ModelConfig model_config, std::uint64_t seed)
      : config(std::move(model_config)), weights(random_weights(config, seed)), model(chain_model(config, seed)) {
    way_ = [this](ChainCall call, const ChainAnswered& answered) { deliver(std::move(call), answered); };
    if (!steps_have_connections) return;
    client_.emplace(way_);
    way_ = client_->post();
  }
  ~Mesh() {
    std::map<std::string, Worker> gone;
    {
      const std::scoped_lock lock(mutex_);
      gone.swap(workers_);
    }
    gone.clear();
    client_.reset();  // its last steps find no worker
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  // Applies to meshes created from now on.
  inline static bool steps_have_connections = false;

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

  // Adds a worker whose blocks do not start with the first.
  ChainStage& add(const std::string& address, BlockRange blocks, std::int64_t kv_blocks, std::int64_t batch = 256,
                  std::int64_t rows = 64) {
    auto& measured = measured_[address];
    if (measured) replaced_.push_back(std::move(measured));  // a call may hold the previous stage for a moment longer
    measured = std::make_unique<Measured>();
    const ChainStageOptions options{model, blocks, config.max_context_tokens, batch, rows};
    Worker worker;
    worker.stage =
        std::make_shared<ChainStage>(options, backend(blocks, kv_blocks, batch, rows), post(), clock, measured->metrics);
    if (client_) {
      worker.steps = ChainStepServer::open("127.0.0.1", [stage = std::weak_ptr(worker.stage)] { return stage.lock(); }).value();
    }
    ChainStage& stage = *worker.stage;
    const std::scoped_lock lock(mutex_);
    workers_[address] = std::move(worker);
    return stage;
  }
  void remove(const std::string& address) {
    Worker removed;
    const std::scoped_lock lock(mutex_);
    removed = std::move(workers_[address]);
    workers_.erase(address);
  }

  [[nodiscard]] ChainPost post() {
    return [this](ChainCall call, const ChainAnswered& answered) {
      const Fault fault = faults ? faults(call) : Fault::kNone;
      if (fault == Fault::kNotSent) return answered({0, "", "the connection broke"});
      if (fault == Fault::kSilent) return;
      const auto heard = [answered, fault](ChainAnswer answer) {
        if (fault == Fault::kNotHeard) answer = {0, "", "the connection broke before the answer"};
        answered(std::move(answer));
      };
      if (!client_) return way_(std::move(call), heard);
      call.address = loopback_of(call.address);
      if (call.verb != ChainVerb::kReserve) return way_(std::move(call), heard);
      const std::string address = call.address;
      way_(std::move(call), [this, address, heard](ChainAnswer answer) {
        // Waits until steps use connections, unless the worker is gone.
        const double until_s = SteadyClock().now_s() + 5;
        while (answer.ok() && !client_->ready(address) && SteadyClock().now_s() < until_s) std::this_thread::yield();
        heard(std::move(answer));
      });
    };
  }

  [[nodiscard]] const metrics::WorkerMetrics& metrics_of(const std::string& address) { return measured_.at(address)->metrics; }
  void tick() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [address, worker] : workers_) worker.stage->tick();
  }
  void expect_empty() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [address, worker] : workers_) {
      EXPECT_EQ(worker.stage->sessions(), 0) << address;
      EXPECT_EQ(metrics_of(address).kv_blocks_used.value(), 0) << address;
    }
  }

  enum class Fault { kNone, kNotSent, kNotHeard, kSilent };
  std::function<Fault(const ChainCall&)> faults;  // set before anything runs; called on any thread

  const ModelConfig config;
  const ModelWeights weights;
  const ChainModel model;
  SharedClock clock;
  Measured head;                           // of the first worker
  std::atomic<int> steps_without_one = 0;  // steps that found no connection

 private:
  struct Worker {
    std::shared_ptr<ChainStage> stage;
    std::unique_ptr<ChainStepServer> steps;  // if steps use connections
  };

  void deliver(ChainCall call, const ChainAnswered& answered) {
    std::shared_ptr<ChainStage> to;
    int step_port = 0;
    {
      const std::scoped_lock lock(mutex_);
      const auto name = names_.find(call.address);
      const auto it = workers_.find(name == names_.end() ? call.address : name->second);
      if (it != workers_.end()) {
        to = it->second.stage;
        step_port = it->second.steps ? it->second.steps->port() : 0;
      }
    }
    if (to == nullptr) return answered({0, "", "the connection broke"});
    if (call.verb == ChainVerb::kStep) ++steps_without_one;
    to->call(call.verb, std::move(call.body), [answered, step_port](ChainAnswer answer) {
      answer.step_port = step_port;
      answered(std::move(answer));
    });
  }
  // The loopback address that stands for a worker's name.
  [[nodiscard]] std::string loopback_of(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    for (const auto& [address, known] : names_) {
      if (known == name) return address;
    }
    const std::string address = fmt::format("127.0.0.1:{}", names_.size() + 1);
    names_[address] = name;
    return address;
  }

  std::map<std::string, std::unique_ptr<Measured>> measured_;
  std::vector<std::unique_ptr<Measured>> replaced_;
  std::mutex mutex_;
  std::map<std::string, Worker> workers_;
  std::map<std::string, std::string> names_;  // workers by loopback_of()
  std::optional<ChainStepClient> client_;     // shared by all workers
  ChainPost way_;
};

// Tests that run with immediate delivery, and again with connections for steps.
class BothWays : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { Mesh::steps_have_connections = GetParam(); }
  void TearDown() override { Mesh::steps_have_connections = false; }
};
inline std::string name_of_way(const ::testing::TestParamInfo<bool>& way) { return way.param ? "Connections" : "AtOnce"; }

// The first worker of chains: an engine over some blocks, with the calls that the HTTP side makes.
class First {
 public:
  First(Mesh& mesh, std::int64_t blocks, const EngineOptions& options, std::int64_t kv_blocks)
      : sessions(mesh.model, blocks, kMaxSessions, mesh.post(), mesh.clock, mesh.head.metrics),
        backend(mesh.backend({0, blocks}, kv_blocks, options.max_batch_tokens, options.max_running), mesh.model, sessions,
                mesh.clock, mesh.head.metrics),
        engine(options, backend, token_text, mesh.clock) {}

  // Reserves room first, as at the start of a request.
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
  // Runs a step and handles requests that end.
  std::vector<TokenEvent> step() {
    auto events = engine.step();
    for (const TokenEvent& event : events) {
      if (event.finish) sessions.release(session_of(event.request));
    }
    return events;
  }

  static constexpr std::int64_t kMaxSessions = 100;

  ChainSessions sessions;
  ChainBackend backend;
  Engine engine;
};

}  // namespace windlass::worker::testing
