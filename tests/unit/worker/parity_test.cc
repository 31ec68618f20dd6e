// The CPU backend against Hugging Face transformers: logits after a prompt and after each of 64 tokens, for every architecture.
// tests/golden/parity/make_parity.py made the golden files and says how.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/model_files.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

constexpr double kMostDifference = 1e-4;
constexpr std::size_t kSteps = 64;

const std::filesystem::path kGolden = WINDLASS_SOURCE_DIR "/tests/golden/parity";

// As make_parity.py's values().
std::vector<float> values(const std::string& name, std::size_t count, double offset, double scale) {
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

// All tensors of the golden model in one file, as FP32.
void write_weights(const json& tensors, const std::filesystem::path& folder) {
  json header = json::object();
  std::string data;
  for (const auto& [name, how] : tensors.items()) {
    std::size_t count = 1;
    for (const json& extent : how["shape"]) count *= extent.get<std::size_t>();
    const std::vector<float> drawn = values(name, count, how["offset"], how["scale"]);
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(drawn.data()), drawn.size() * sizeof(float));
    header[name] = {{"dtype", "F32"}, {"shape", how["shape"]}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string whole(sizeof(length), '\0');
  std::memcpy(whole.data(), &length, sizeof(length));
  testing::write_bytes(folder / "model.safetensors", whole + text + data);
}

class Parity : public ::testing::TestWithParam<const char*> {};

// Given transformers' config, tokens and logits of a random model; the backend's differ from them by 1e-4 at most, the prompt
// in one piece or in chunks of seven and the tokens one after the other, and the greedy token is the same at every step.
TEST_P(Parity, LogitsAreThoseOfTransformers) {
  const std::filesystem::path golden = kGolden / GetParam();
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", testing::read_bytes(golden / "config.json"));
  const json made = json::parse(testing::read_bytes(golden / "golden.json"));
  write_weights(made["tensors"], folder.path());
  const auto config = load_model_config(folder.path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto weights = load_weights(*config, *store);
  ASSERT_TRUE(weights.ok()) << weights.error().message;

  const auto prompt = made["prompt"].get<std::vector<std::int32_t>>();
  const auto tokens = made["tokens"].get<std::vector<std::int32_t>>();
  const auto vocab = static_cast<std::size_t>(config->vocab_size);
  const std::string bytes = testing::read_bytes(golden / "logits.f32");
  ASSERT_EQ(tokens.size(), kSteps);
  ASSERT_EQ(bytes.size(), (kSteps + 1) * vocab * sizeof(float));
  std::vector<float> expected((kSteps + 1) * vocab);
  std::memcpy(expected.data(), bytes.data(), bytes.size());

  for (const std::size_t piece : {prompt.size(), std::size_t{7}}) {
    SCOPED_TRACE("prompt in pieces of " + std::to_string(piece));
    CpuBackendOptions options;
    options.kv_blocks = 16;
    options.max_context_tokens = config->max_context_tokens;
    auto backend = make_cpu_backend(*config, *weights, options);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    std::vector<std::int32_t> blocks(16);
    std::iota(blocks.rbegin(), blocks.rend(), 0);
    std::int64_t done = 0;
    std::span<const float> logits;
    const auto take = [&](std::span<const std::int32_t> next) {
      const SequenceChunk chunk{next, done, blocks, true};
      const auto out = (*backend)->forward(std::span(&chunk, 1));
      ASSERT_TRUE(out.ok()) << out.error().message;
      logits = *out;
      done += static_cast<std::int64_t>(next.size());
    };
    for (std::size_t at = 0; at < prompt.size(); at += piece) {
      take(std::span(prompt).subspan(at, std::min(piece, prompt.size() - at)));
    }
    double most = 0;
    for (std::size_t step = 0; step <= kSteps; ++step) {
      ASSERT_EQ(logits.size(), vocab);
      for (std::size_t i = 0; i < vocab; ++i) {
        most = std::max(most, std::fabs(static_cast<double>(logits[i]) - static_cast<double>(expected[step * vocab + i])));
      }
      if (step == kSteps) break;
      const auto greedy = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(greedy, tokens[step]) << "step " << step;
      take(std::span(tokens).subspan(step, 1));
    }
    EXPECT_LE(most, kMostDifference);
    RecordProperty("most_difference", std::to_string(most));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Parity,
                         ::testing::Values("llama2", "llama31", "mistral", "qwen2", "qwen2_windows", "qwen3", "opt", "mixtral",
                                           "qwen3_moe", "qwen3_moe_sparse"),
                         [](const auto& made) { return std::string(made.param); });

}  // namespace
}  // namespace windlass::worker
