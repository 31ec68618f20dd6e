// Real models' tokenizers against Hugging Face tokenizers, on 10,000 seeded strings. They are too big for the repository:
// tests/golden/tokenizers/make_installed.py puts them where this test looks, and `windlass model fetch` gets SmolLM2's GGUF
// file.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/worker/golden_text.h"
#include "worker/model/tokenizer.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

struct InstalledCase {
  const char* name;  // in installed.json
  const char* path;  // in ~/.cache/windlass
};

class InstalledTokenizer : public ::testing::TestWithParam<InstalledCase> {};

// Given a real model's tokenizer, from its tokenizer.json and its GGUF file; expects the reference's ids and decoded texts for
// all strings.
TEST_P(InstalledTokenizer, AllStringsAreTheReferences) {
  const char* home = std::getenv("HOME");
  const auto path = std::filesystem::path(home == nullptr ? "" : home) / ".cache/windlass" / GetParam().path;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: tests/golden/tokenizers/make_installed.py";
  std::ifstream in(source_path("/tests/golden/tokenizers/installed.json"));
  const json golden = json::parse(in);
  const json& expected = golden.at("installed").at(GetParam().name);
  const auto tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto size = golden.at("block").get<std::size_t>();
  for (std::size_t block = 0; block < expected.at("ids").size(); ++block) {
    const auto hashes = testing::hashes_of(*tokenizer, block * size, (block + 1) * size);
    EXPECT_EQ(hashes.ids, expected.at("ids").at(block)) << "ids, block " << block;
    ASSERT_EQ(hashes.texts, expected.at("texts").at(block)) << "texts, block " << block;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, InstalledTokenizer,
    ::testing::Values(InstalledCase{"smollm2", "tokenizers/smollm2"},
                      InstalledCase{"smollm2", "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"},
                      InstalledCase{"claude", "tokenizers/claude"}, InstalledCase{"deepseek", "tokenizers/deepseek"},
                      InstalledCase{"tekken", "tokenizers/tekken"}, InstalledCase{"mistral_v1", "tokenizers/mistral_v1"},
                      InstalledCase{"mistral_v3", "tokenizers/mistral_v3"}),
    [](const auto& info) {
      return fmt::format("{}{}", info.param.name, std::string(info.param.path).ends_with("gguf") ? "_gguf" : "");
    });

}  // namespace
}  // namespace windlass::worker
