// Each part that a tokenizer.json may have, against Hugging Face tokenizers: 10,000 seeded strings, encoded and decoded by a
// small tokenizer per part (tests/golden/tokenizers/make_parts.py).
#include <fstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/effort.h"
#include "tests/paths.h"
#include "tests/unit/worker/golden_text.h"
#include "worker/model/tokenizer.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

const json& parts_golden() {
  static const auto* const kGolden = [] {
    std::ifstream in(source_path("/tests/golden/tokenizers/parts.json"));
    return new json(json::parse(in));
  }();
  return *kGolden;
}

// Composed as in make_parts.py.
json composed(const json& part) {
  const std::string base_name = part.value("base", "bytes");
  const json& base = parts_golden().at("bases").at(base_name);
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  json vocab = base.at("vocab");
  if (part.contains("lacks")) vocab.erase(part.at("lacks").get<std::string>());
  json model = {{"type", "BPE"},
                {"continuing_subword_prefix", base.at("subword_prefix")},
                {"end_of_word_suffix", base.at("word_suffix")},
                {"vocab", std::move(vocab)},
                {"merges", part.value("forgets_merges", false) ? json::array() : base.at("merges")}};
  if (part.contains("model")) model.update(part.at("model"));
  const bool bytes = base_name == "bytes";
  return {{"added_tokens", part.value("added_tokens", json::array())},
          {"normalizer", part.value("normalizer", json())},
          {"pre_tokenizer", part.value("pre_tokenizer", bytes ? byte_level : json())},
          {"decoder", part.value("decoder", bytes ? byte_level : json{{"type", "Fuse"}})},
          {"model", std::move(model)}};
}

// Given a tokenizer with this part; expects the reference's ids and decoded texts for 10,000 strings.
class TokenizerPart : public ::testing::TestWithParam<std::string> {};
TEST_P(TokenizerPart, IsTheReferences) {
  const json& part = parts_golden().at("parts").at(GetParam());
  const auto tokenizer = Tokenizer::parse(composed(part).dump(), GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto size = parts_golden().at("block").get<std::size_t>();
  for (std::size_t block = 0; block < effort(std::size_t{2}, part.at("ids").size()); ++block) {
    const auto hashes = testing::hashes_of(*tokenizer, block * size, (block + 1) * size);
    EXPECT_EQ(hashes.ids, part.at("ids").at(block)) << "ids, block " << block;
    ASSERT_EQ(hashes.texts, part.at("texts").at(block)) << "texts, block " << block;
  }
}

std::vector<std::string> part_names() {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts_golden().at("parts").items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerPart, ::testing::ValuesIn(part_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace windlass::worker
