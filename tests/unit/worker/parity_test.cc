// The CPU backend against Hugging Face transformers: logits after a prompt and after each of 64 tokens, for every architecture.
#include "tests/unit/worker/golden_parity.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace windlass::worker {
namespace {

class Parity : public ::testing::TestWithParam<const char*> {};

// Given transformers' config, tokens and logits of a random model; the backend's differ from them by 1e-4 at most, the prompt
// in one piece or in chunks of seven and the tokens one after the other, and the greedy token is the same at every step.
TEST_P(Parity, LogitsAreThoseOfTransformers) {
  EXPECT_NO_FATAL_FAILURE(testing::expect_golden_logits(GetParam(), [](const ModelConfig& config, const ModelWeights& weights) {
    CpuBackendOptions options;
    options.kv_blocks = testing::kGoldenKvBlocks;
    options.max_context_tokens = testing::kGoldenContext;
    return make_cpu_backend(config, weights, options);
  }));
}

INSTANTIATE_TEST_SUITE_P(Architectures, Parity, ::testing::ValuesIn(testing::kGoldenModels),
                         [](const auto& made) { return std::string(made.param); });

}  // namespace
}  // namespace windlass::worker
