// worker_benchmark: how close the CPU backend comes to what this machine can do, and what the engine adds to an iteration.
//
// One run measures the machine (bytes per second that all cores read, floating-point operations per second of a large matrix
// product) and the worker (decode and prefill of a random model of Llama 3.2 1B's shape, the engine around it), so that the
// shares in the table are ratios within this run; medians of `--repeats`. `scripts/bench worker` puts the table into
// docs/benchmarks.md.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "planner/base/rng.h"
#include "tests/bench/worker/chain_link.h"
#include "tests/bench/worker/instant_backend.h"
#include "tests/bench/worker/kv_link.h"
#include "tests/bench/worker/through_http.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/machine.h"
#include "worker/backend/cpu/processors.h"
#include "worker/engine/engine.h"

namespace windlass::worker {
namespace {

struct Options {
  int threads = 1;
  int repeats = 5;
  std::int64_t layers = 16;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

ModelConfig llama_1b(std::int64_t layers) {
  ModelConfig config;
  config.hidden_size = 2048;
  config.layers = layers;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = 8192;
  config.vocab_size = 128256;
  config.max_context_tokens = 131072;
  config.rope_theta = 500000;
  config.tie_word_embeddings = true;
  return config;
}

// Parameters of the matrices that every token passes through; the embedding is also the output matrix.
double matrix_parameters(const ModelConfig& config) {
  const auto layer = static_cast<double>(config.hidden_size * (2 * config.q_size() + 2 * config.kv_size()) +
                                         3 * config.hidden_size * config.intermediate_size);
  return layer * static_cast<double>(config.layers) + static_cast<double>(config.hidden_size * config.vocab_size);
}

constexpr std::int64_t kContext = 512, kMaxSequences = 64;

// Sequences of kContext tokens, extended by one more token again and again.
class Batch {
 public:
  Batch(Backend& backend, const ModelConfig& config, std::int64_t sequences) : backend_(backend) {
    Rng rng(1, "tokens");
    const std::int64_t blocks = blocks_for(kContext + 1);
    for (std::int64_t s = 0; s < sequences; ++s) {
      prompts_.push_back(testing::random_tokens(rng, config, kContext + 1));
      auto& own = blocks_.emplace_back();
      for (std::int64_t b = 0; b < blocks; ++b) own.push_back(static_cast<std::int32_t>(s * blocks + b));
    }
  }
  void prefill() {
    for (std::size_t s = 0; s < prompts_.size(); ++s) run({part(s, 0, kContext)});
  }
  void decode() {
    std::vector<SequenceChunk> chunks;
    for (std::size_t s = 0; s < prompts_.size(); ++s) chunks.push_back(part(s, kContext, 1));
    run(chunks);
  }

 private:
  [[nodiscard]] SequenceChunk part(std::size_t s, std::int64_t at, std::int64_t tokens) const {
    SequenceChunk chunk;
    chunk.tokens = std::span(prompts_[s]).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(tokens));
    chunk.start = at;
    chunk.blocks = blocks_[s];
    chunk.wants_logits = true;
    return chunk;
  }
  void run(const std::vector<SequenceChunk>& chunks) {
    if (const auto rows = backend_.forward(chunks); !rows.ok()) {
      std::cerr << "worker_benchmark: " << rows.error().message << '\n';
      std::exit(1);
    }
  }

  Backend& backend_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<std::vector<std::int32_t>> blocks_;
};

// Seconds per iteration of 64 sequences that the engine takes in addition to the forward pass, from rows or from their
// summaries.
double engine_iteration_s(const Options& options, const ModelConfig& config, const SamplingParams& sampling, bool summaries) {
  InstantBackend backend(config.vocab_size, kMaxSequences, summaries ? Sampler(sampling).need() : RowNeed());
  const SteadyClock clock;
  EngineOptions engine_options;
  engine_options.max_running = engine_options.max_waiting = kMaxSequences;
  engine_options.max_context_tokens = 1024;
  const auto text = [](std::int32_t) { return std::string_view(" word"); };
  Engine engine(engine_options, backend, text, clock);
  for (RequestId id = 1; id <= kMaxSequences; ++id) {
    GenerationRequest request;
    request.prompt = {1, 2, 3, 4};
    request.sampling = sampling;
    request.sampling.seed = id;
    request.max_tokens = 1000;
    request.ignore_eos = true;
    if (const auto submitted = engine.submit(id, std::move(request), clock.now_s()); !submitted.ok()) std::exit(1);
  }
  static_cast<void>(engine.step());  // the prompts
  constexpr int kSteps = 20;
  return cpu::median_s(options.repeats,
                       [&] {
                         for (int step = 0; step < kSteps; ++step) static_cast<void>(engine.step());
                       }) /
         kSteps;
}

// The rows of the table.
class Table {
 public:
  explicit Table(const cpu::MachineFigures& machine) : machine_(machine) {}

  void add(const std::string& what, double seconds, const std::string& rate, const std::string& share) {
    rows_ += fmt::format("| {} | {:.4g} ms | {} | {} |\n", what, seconds * 1e3, rate, share);
  }
  void add_tokens(const std::string& what, double seconds, double tokens, const std::string& share) {
    add(what, seconds, fmt::format("{:.4g} tokens/s", tokens / seconds), share);
  }
  [[nodiscard]] std::string of_memory(double bytes, double seconds) const {
    return fmt::format("{:.0f} % of the memory's", 100 * bytes / seconds / machine_.read_bytes_per_s);
  }
  [[nodiscard]] std::string of_products(double flops, double seconds) const {
    return fmt::format("{:.0f} % of a product's", 100 * flops / seconds / machine_.fp32_flops_per_s);
  }
  [[nodiscard]] const std::string& rows() const { return rows_; }

 private:
  cpu::MachineFigures machine_;
  std::string rows_;
};

std::unique_ptr<Backend> backend_or_exit(const ModelConfig& config, std::shared_ptr<const ModelWeights> weights,
                                         const CpuBackendOptions& options) {
  auto made = make_cpu_backend(config, std::move(weights), options);
  if (made.ok()) return std::move(*made);
  std::cerr << "worker_benchmark: " << made.error().message << '\n';
  std::exit(1);
}

// Compares decoding of one sequence by threads pinned to processors with threads that the system moves, in alternating steps.
// Adds nothing if there are fewer processors than threads.
void add_pinned(Table& table, const Options& options, const ModelConfig& config,
                const std::shared_ptr<const ModelWeights>& weights, CpuBackendOptions backend_options) {
  const auto allowed = cpu::allowed_processors();
  if (!allowed.ok()) return;
  const auto processors = cpu::processors_of_rank(*allowed, options.threads, 0, 1);
  if (!processors.ok()) return;
  std::cerr << "threads that stay on their processors\n";
  backend_options.kv_blocks = blocks_for(kContext + 1);
  const auto moves = backend_or_exit(config, weights, backend_options);
  backend_options.processors = *processors;
  const auto stays = backend_or_exit(config, weights, backend_options);
  Batch moved(*moves, config, 1), pinned(*stays, config, 1);
  std::vector<double> moved_s, pinned_s;
  for (int i = 0; i < 4 * options.repeats; ++i) {
    moved_s.push_back(seconds_of([&] { moved.decode(); }));
    // The calling thread is pinned as well, so use a separate thread for it.
    std::jthread([&] { pinned_s.push_back(seconds_of([&] { pinned.decode(); })); }).join();
  }
  const double median_pinned_s = median_of(std::move(pinned_s));
  table.add_tokens("fp32: decode, batch 1, --pin-threads", median_pinned_s, 1,
                   fmt::format("{:.3g} of the time without", median_pinned_s / median_of(std::move(moved_s))));
}

// Adds a model's rows. Returns the time of a step of kMaxSequences, if that is among them.
double add_model(Table& table, const Options& options, const ModelConfig& config, WeightFormat format) {
  const auto progress = [&](const std::string& what) { std::cerr << to_string(format) << ": " << what << '\n'; };
  progress(fmt::format("a model of {} layers", config.layers));
  CpuBackendOptions backend_options;
  backend_options.kv_blocks = kMaxSequences * blocks_for(kContext + 1);
  backend_options.max_batch_tokens = kContext;
  backend_options.max_logit_rows = kMaxSequences;
  backend_options.max_context_tokens = kContext + 1;
  backend_options.threads = options.threads;
  const auto weights = std::make_shared<const ModelWeights>(testing::random_weights(config, 1, format));
  const auto weight_bytes = static_cast<double>(bytes_of(*weights).held);
  const auto made = backend_or_exit(config, weights, backend_options);
  Backend& backend = *made;

  const double parameters = matrix_parameters(config);
  const auto kv_bytes = static_cast<double>(kContext * kv_bytes_per_token(config, config.layers));
  double step_s = 0;
  for (const std::int64_t sequences : {std::int64_t{1}, std::int64_t{8}, kMaxSequences}) {
    progress(fmt::format("decode of {}", sequences));
    Batch batch(backend, config, sequences);  // the time does not depend on the cache's contents
    step_s = cpu::median_s(options.repeats, [&] { batch.decode(); });
    const auto count = static_cast<double>(sequences);
    table.add_tokens(fmt::format("{}: decode, batch {}", to_string(format), sequences), step_s, count,
                     fmt::format("{}, {}", table.of_memory(weight_bytes + count * kv_bytes, step_s),
                                 table.of_products(2 * parameters * count, step_s)));
  }
  if (format != WeightFormat::kFp32) return step_s;
  progress("prefill");
  Batch batch(backend, config, 1);
  const double prefill_s = cpu::median_s(options.repeats, [&] { batch.prefill(); });
  const double inner = parameters - static_cast<double>(config.hidden_size * config.vocab_size);
  const double attention =
      2.0 * kContext * kContext * static_cast<double>(config.q_size() * config.layers);  // causal: half of 4
  table.add_tokens(fmt::format("{}: prefill, {} tokens", to_string(format), kContext), prefill_s, kContext,
                   table.of_products(2 * inner * kContext + attention, prefill_s));
  add_pinned(table, options, config, weights, backend_options);
  return step_s;
}

// From one worker to the next and back.
Result<void> add_chain_steps(Table& table, const Result<std::unique_ptr<ChainLink>>& chain, int repeats) {
  constexpr int kMoreRepeats = 20;  // for short measurements
  if (!chain.ok()) return chain.error();
  for (const auto& [sequences, tokens, what] :
       {std::tuple{std::int64_t{1}, std::int64_t{1}, "a token"}, std::tuple{std::int64_t{64}, std::int64_t{1}, "a token of 64"},
        std::tuple{std::int64_t{1}, std::int64_t{2048}, "2,048 tokens of a prompt"}}) {
    WINDLASS_ASSIGN_OR_RETURN(const ChainLinkTimes times,
                              (*chain)->measure(sequences, tokens, tokens > 1 ? repeats : kMoreRepeats * repeats));
    for (const auto& [name, seconds] : {std::pair{"", times.seconds}, std::pair{", over HTTP", times.http_seconds}}) {
      table.add(fmt::format("a chain's hop and back with {} (hidden size {}){}", what, ChainLink::kHiddenSize, name), seconds,
                fmt::format("{:.3g} GB/s", times.bytes / seconds / 1e9),
                fmt::format("{:.3g} % of a plain exchange's {:.3g} ms", 100 * times.plain_seconds / seconds,
                            times.plain_seconds * 1e3));
    }
  }
  return {};
}

int run(const Options& options) {
  auto link = KvLink::start();
  auto chain = ChainLink::start();
  std::cerr << "the worker around a model that waits\n";
  const auto overhead = overhead_through_http(kMaxSequences);
  if (!overhead.ok()) {
    std::cerr << "worker_benchmark: " << overhead.error().message << '\n';
    return 1;
  }
  std::cerr << "the machine\n";
  const cpu::MachineFigures machine = cpu::measure_machine(options.threads, options.repeats);
  const ModelConfig config = llama_1b(options.layers);
  Table table(machine);
  const double step_s = add_model(table, options, config, WeightFormat::kFp32);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8})
    add_model(table, options, config, format);
  std::cerr << "the engine\n";
  SamplingParams greedy, drawn, plain;
  greedy.temperature = 0;
  drawn.top_p = 0.95;
  drawn.top_k = 50;
  for (const auto& [name, sampling] :
       {std::pair{"greedy", greedy}, std::pair{"top-k 50, top-p 0.95", drawn}, std::pair{"temperature 1", plain}}) {
    for (const bool summaries : {false, true}) {
      const double seconds = engine_iteration_s(options, config, sampling, summaries);
      table.add(fmt::format("engine alone, batch {}, {}{}", kMaxSequences, name, summaries ? ", from summaries" : ""), seconds,
                fmt::format("{:.3g} us a token", seconds / kMaxSequences * 1e6),
                fmt::format("{:.2g} % of fp32's iteration", 100 * seconds / step_s));
    }
  }
  std::cerr << "keys and values between two workers\n";
  const auto rates = link.ok() ? (*link)->measure(options.repeats) : link.error();
  if (!rates.ok()) {
    std::cerr << "worker_benchmark: " << rates.error().message << '\n';
    return 1;
  }
  for (const auto& [name, seconds] :
       {std::pair{"", rates->seconds}, std::pair{", by questions over HTTP", rates->http_seconds}}) {
    table.add(fmt::format("keys and values of 1,024 tokens (Llama 3.1 8B), worker to worker{}", name), seconds,
              fmt::format("{:.3g} GB/s", rates->bytes / seconds / 1e9),
              fmt::format("{:.3g} % of a plain stream's {:.3g} GB/s", 100 * rates->plain_seconds / seconds,
                          rates->bytes / rates->plain_seconds / 1e9));
  }
  std::cerr << "a chain's steps between two workers\n";
  if (const auto added = add_chain_steps(table, chain, options.repeats); !added.ok()) {
    std::cerr << "worker_benchmark: " << added.error().message << '\n';
    return 1;
  }
  for (const auto& [name, seconds] :
       {std::pair{"the engine's thread", overhead->engine_cpu_s}, std::pair{"all threads", overhead->all_cpu_s}}) {
    table.add(fmt::format("{} streams through HTTP, vocabulary of 512: {}", kMaxSequences, name), seconds,
              fmt::format("{:.3g} us a token", seconds / kMaxSequences * 1e6),
              fmt::format("{:.2g} % of fp32's iteration", 100 * seconds / step_s));
  }
  fmt::print(
      "{} threads; memory read at {:.3g} GB/s, a product of 2,048 x 2,048 matrices computed at {:.3g} GFLOP/s.\n\n"
      "| {} layers, {:.3g} G parameters, {} tokens of context | median time | rate | share |\n|---|---:|---:|---:|\n{}",
      options.threads, machine.read_bytes_per_s / 1e9, machine.fp32_flops_per_s / 1e9, config.layers,
      matrix_parameters(config) / 1e9, kContext, table.rows());
  return 0;
}

}  // namespace
}  // namespace windlass::worker

int main(int argc, char** argv) {
  CLI::App app{"Measures how close the worker's CPU backend comes to what this machine can do."};
  windlass::worker::Options options;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.add_option("--threads", options.threads, "Threads for matrix products")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--repeats", options.repeats, "Repeats of each measurement; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 40));
  app.add_option("--layers", options.layers, "Layers of the model; Llama 3.2 1B has 16")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  return windlass::worker::run(options);
}
