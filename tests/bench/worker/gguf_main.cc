// worker_gguf_benchmark: measures the CPU backend on a GGUF file like llama.cpp's own tools; prints one line of JSON.
//
// Speed in tokens per second: of a prompt of 512 (llama-bench -p 512), of 128 steps from an empty context (-n 128), and of 8
// sequences after prompts of 16 (llama-batched-bench -npp 16 -ntg 128 -npl 8). Perplexity: over the last 255 tokens of windows
// of 512, as llama-perplexity does. `scripts/bench worker --llama-cpp` runs both sides and puts the table into
// docs/benchmarks.md.
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/tokenizer.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kPrompt = 512, kSteps = 128, kSequences = 8, kShortPrompt = 16;
constexpr std::int64_t kWindow = 512, kFirstJudged = kWindow / 2;

struct Options {
  std::string model;
  std::string weights = to_string(WeightFormat::kBlocks);
  std::string text;  // measure its perplexity instead of speed
  int windows = 16;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

// Token sequences that are computed piece by piece.
class Sequences {
 public:
  Sequences(Backend& backend, std::int64_t count) : backend_(backend) {
    const std::int64_t each = blocks_for(kPrompt);
    for (std::int64_t s = 0; s < count; ++s) {
      blocks_.emplace_back(static_cast<std::size_t>(each));
      std::iota(blocks_.back().begin(), blocks_.back().end(), static_cast<std::int32_t>(s * each));
    }
  }

  // Computes the same tokens from `start` on for each sequence; returns the first sequence's logits after the last token.
  [[nodiscard]] Result<std::span<const float>> run(std::span<const std::int32_t> tokens, std::int64_t start) {
    std::vector<SequenceChunk> chunks;
    for (const auto& blocks : blocks_) chunks.push_back({tokens, start, blocks, true});
    return backend_.forward(chunks);
  }

 private:
  Backend& backend_;
  std::vector<std::vector<std::int32_t>> blocks_;
};

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Tokens per second of decode steps of `sequences` after a prompt.
Result<double> decode_rate(Backend& backend, const std::vector<std::int32_t>& tokens, std::int64_t sequences,
                           std::int64_t prompt) {
  Sequences all(backend, sequences);
  const std::span<const std::int32_t> ids(tokens);
  if (prompt > 0) WINDLASS_RETURN_IF_ERROR(all.run(ids.first(static_cast<std::size_t>(prompt)), 0));
  const auto begun = std::chrono::steady_clock::now();
  for (std::int64_t at = prompt; at < prompt + kSteps; ++at)
    WINDLASS_RETURN_IF_ERROR(all.run(ids.subspan(static_cast<std::size_t>(at), 1), at));
  return static_cast<double>(sequences * kSteps) / seconds_since(begun);
}

Result<std::string> speed(Backend& backend, const ModelConfig& config) {
  Rng rng(1, "tokens");
  const std::vector<std::int32_t> tokens = testing::random_tokens(rng, config, kPrompt);
  Sequences one(backend, 1);
  WINDLASS_RETURN_IF_ERROR(one.run(tokens, 0));  // warm-up
  const auto begun = std::chrono::steady_clock::now();
  WINDLASS_RETURN_IF_ERROR(one.run(tokens, 0));
  const double prefill = static_cast<double>(kPrompt) / seconds_since(begun);
  WINDLASS_ASSIGN_OR_RETURN(const double alone, decode_rate(backend, tokens, 1, 0));
  WINDLASS_ASSIGN_OR_RETURN(const double together, decode_rate(backend, tokens, kSequences, kShortPrompt));
  return fmt::format(R"({{"prefill": {:.2f}, "decode_1": {:.2f}, "decode_8": {:.2f}}})", prefill, alone, together);
}

double nats_of(std::span<const float> logits, std::int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return std::log(sum) + most - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

Result<std::string> perplexity(Backend& backend, const Options& options) {
  std::ifstream file(options.text, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, fmt::format("{}: must be a readable file", options.text)};
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  WINDLASS_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(options.model));
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, SpecialText::kLiteral);
  const std::span<const std::int32_t> ids(tokens);
  const auto windows = std::min<std::int64_t>(options.windows, static_cast<std::int64_t>(tokens.size()) / kWindow);
  if (windows == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must have at least {} tokens (got {})", options.text, kWindow, tokens.size())};
  }
  Sequences one(backend, 1);
  double nats = 0;
  std::int64_t judged = 0;
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto own = ids.subspan(static_cast<std::size_t>(window * kWindow), static_cast<std::size_t>(kWindow));
    WINDLASS_ASSIGN_OR_RETURN(auto logits, one.run(own.first(static_cast<std::size_t>(kFirstJudged + 1)), 0));
    for (std::int64_t at = kFirstJudged; at + 1 < kWindow; ++at, ++judged) {
      if (at > kFirstJudged) {
        WINDLASS_ASSIGN_OR_RETURN(logits, one.run(own.subspan(static_cast<std::size_t>(at), 1), at));
      }
      nats += nats_of(logits, own[static_cast<std::size_t>(at + 1)]);
    }
    std::cerr << fmt::format("\rwindow {} of {}", window + 1, windows) << std::flush;
  }
  std::cerr << '\n';
  return fmt::format(R"({{"tokens": {}, "windows": {}, "perplexity": {:.5f}}})", tokens.size(), windows,
                     std::exp(nats / static_cast<double>(judged)));
}

Result<std::string> measured(const Options& options) {
  WINDLASS_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(options.model));
  WINDLASS_ASSIGN_OR_RETURN(const TensorStore store, TensorStore::open(options.model));
  auto format = weight_format_from_string(options.weights);
  if (!format.ok()) return format.error().within("--weights");
  WINDLASS_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(config, store, config.all_blocks(), {}, *format));
  CpuBackendOptions backend_options;
  backend_options.kv_blocks = kSequences * blocks_for(kPrompt);
  backend_options.max_batch_tokens = kPrompt;
  backend_options.max_logit_rows = kSequences;
  backend_options.max_context_tokens = kPrompt;
  backend_options.threads = options.threads;
  WINDLASS_ASSIGN_OR_RETURN(const auto backend, make_cpu_backend(config, std::move(weights), backend_options));
  return options.text.empty() ? speed(*backend, config) : perplexity(*backend, options);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the CPU backend on a GGUF file.");
  app.add_option("--model", options.model, "a GGUF file")->required();
  app.add_option("--weights", options.weights, "weight format, as in windlass-worker")->capture_default_str();
  app.add_option("--perplexity", options.text, "measure the perplexity of this text instead of speed");
  app.add_option("--windows", options.windows, "maximum number of windows of 512 tokens")->capture_default_str();
  app.add_option("--threads", options.threads, "number of threads")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto line = measured(options);
  if (!line.ok()) {
    std::cerr << "worker_gguf_benchmark: " << line.error().message << '\n';
    return 1;
  }
  std::cout << *line << '\n';
  return 0;
}

}  // namespace
}  // namespace windlass::worker

int main(int argc, char** argv) { return windlass::worker::run(argc, argv); }
