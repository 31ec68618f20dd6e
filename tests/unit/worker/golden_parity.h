// Golden models of Hugging Face transformers: config, tokens, and logits after a prompt and after each of 64 tokens, and how a
// backend is compared with them. Made by tests/golden/parity/make_parity.py, which explains the method.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/worker/model_files.h"
#include "worker/backend/backend.h"
#include "worker/model/config.h"
#include "worker/model/tensor_store.h"
#include "worker/model/weights.h"

namespace windlass::worker::testing {

inline constexpr double kMaxGoldenDifference = 1e-4;
inline constexpr std::size_t kGoldenSteps = 64;

// Size of the backend's KV cache.
inline constexpr std::int64_t kGoldenKvBlocks = 16;
inline constexpr std::int64_t kGoldenContext = 256;

inline const char* const kGoldenModels[] = {"llama2", "llama31",  "mistral", "qwen2",     "qwen2_windows",   "qwen3",
                                            "opt",    "opt_350m", "mixtral", "qwen3_moe", "qwen3_moe_sparse"};

// Same as values() in make_parity.py.
inline std::vector<float> golden_values(const std::string& name, std::size_t count, double offset, double scale) {
  std::uint64_t seed = 0xCBF29CE484222325;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EB;
    z = z ^ (z >> 31U);
    out[i] = static_cast<float>(offset + scale * (static_cast<double>(z >> 40U) / 0x1p23 - 1));
  }
  return out;
}

// Writes all tensors of the golden model to one file, as FP32.
inline void write_golden_weights(const nlohmann::json& tensors, const std::filesystem::path& folder) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, how] : tensors.items()) {
    std::size_t count = 1;
    for (const nlohmann::json& extent : how["shape"]) count *= extent.get<std::size_t>();
    const std::vector<float> drawn = golden_values(name, count, how["offset"], how["scale"]);
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(drawn.data()), drawn.size() * sizeof(float));
    header[name] = {{"dtype", "F32"}, {"shape", how["shape"]}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string whole(sizeof(length), '\0');
  std::memcpy(whole.data(), &length, sizeof(length));
  write_bytes(folder / "model.safetensors", whole + text + data);
}

// A golden model, loaded. Its tensors are in a folder of its own.
class GoldenModel {
 public:
  explicit GoldenModel(const std::string& name) {
    const std::filesystem::path golden = std::filesystem::path(source_path("/tests/golden/parity")) / name;
    write_bytes(folder_.path() / "config.json", read_bytes(golden / "config.json"));
    const auto made = nlohmann::json::parse(read_bytes(golden / "golden.json"));
    write_golden_weights(made["tensors"], folder_.path());
    auto read = load_model_config(folder_.path());
    EXPECT_TRUE(read.ok()) << read.error().message;
    config = std::move(read).value();
    prompt = made["prompt"].get<std::vector<std::int32_t>>();
    tokens = made["tokens"].get<std::vector<std::int32_t>>();
    const std::string bytes = read_bytes(golden / "logits.f32");
    EXPECT_EQ(tokens.size(), kGoldenSteps);
    EXPECT_EQ(bytes.size(), (kGoldenSteps + 1) * vocab() * sizeof(float));
    expected.resize((kGoldenSteps + 1) * vocab());
    std::memcpy(expected.data(), bytes.data(), std::min(bytes.size(), expected.size() * sizeof(float)));
  }

  [[nodiscard]] std::size_t vocab() const { return static_cast<std::size_t>(config.vocab_size); }
  [[nodiscard]] TensorStore store() const {
    auto store = TensorStore::open(folder_.path());
    EXPECT_TRUE(store.ok()) << store.error().message;
    return std::move(store).value();
  }
  [[nodiscard]] ModelWeights weights(WeightFormat format = WeightFormat::kFp32) const {
    auto read = load_weights(config, store(), config.all_blocks(), {}, format);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return std::move(read).value();
  }

  // The backend's logits after the prompt, computed `piece` tokens at a time, and after each of the first `steps` tokens.
  [[nodiscard]] std::vector<float> logits(Backend& backend, std::size_t piece, std::size_t steps = kGoldenSteps) const {
    std::vector<std::int32_t> blocks(kGoldenKvBlocks);
    std::iota(blocks.rbegin(), blocks.rend(), 0);
    std::int64_t done = 0;
    std::vector<float> all;
    const auto take = [&](std::span<const std::int32_t> next, bool keep) {
      const SequenceChunk chunk{next, done, blocks, true};
      const auto out = backend.forward(std::span(&chunk, 1));
      EXPECT_TRUE(out.ok()) << out.error().message;
      done += static_cast<std::int64_t>(next.size());
      if (keep && out.ok()) all.insert(all.end(), out->begin(), out->end());
    };
    for (std::size_t at = 0; at < prompt.size(); at += piece) {
      const std::size_t count = std::min(piece, prompt.size() - at);
      take(std::span(prompt).subspan(at, count), at + count == prompt.size());
    }
    for (std::size_t step = 0; step < steps; ++step) take(std::span(tokens).subspan(step, 1), true);
    return all;
  }

  // The greedy token of a row of logits.
  [[nodiscard]] std::size_t greedy(const std::vector<float>& rows, std::size_t step) const {
    const auto row = rows.begin() + static_cast<std::ptrdiff_t>(step * vocab());
    return static_cast<std::size_t>(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab())) - row);
  }

  ModelConfig config;
  std::vector<std::int32_t> prompt, tokens;
  std::vector<float> expected;  // (steps + 1, vocab)

 private:
  TemporaryFolder folder_;
};

inline double max_difference(std::span<const float> found, std::span<const float> expected) {
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
  }
  return most;
}

// Expects logits within 1e-4 of transformers', with the prompt in one piece and in chunks of seven, then one token at a time up
// to `steps`, and the same greedy token at every step.
inline void expect_golden_logits(
    const GoldenModel& model,
    const std::function<Result<std::unique_ptr<Backend>>(const ModelConfig&, const ModelWeights&)>& make,
    std::size_t steps = kGoldenSteps) {
  const std::span wanted = std::span(model.expected).first((steps + 1) * model.vocab());
  const ModelWeights weights = model.weights();
  for (const std::size_t piece : {model.prompt.size(), std::size_t{7}}) {
    SCOPED_TRACE("prompt in pieces of " + std::to_string(piece));
    auto backend = make(model.config, weights);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    const std::vector<float> found = model.logits(**backend, piece, steps);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t step = 0; step < steps; ++step) {
      ASSERT_EQ(model.greedy(found, step), static_cast<std::size_t>(model.tokens[step])) << "step " << step;
    }
    const double most = max_difference(found, wanted);
    EXPECT_LE(most, kMaxGoldenDifference);
    ::testing::Test::RecordProperty("max_difference", std::to_string(most));
  }
}

}  // namespace windlass::worker::testing
