// Damaged model files: each is accepted, or gives an error that names the file; none ends the process.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/model_files.h"
#include "worker/model/chat_template.h"
#include "worker/model/config.h"
#include "worker/model/tensor_store.h"
#include "worker/model/tokenizer.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A value of an unexpected kind.
json odd_value(Rng& rng) {
  const std::vector<json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1e300,
                                    std::int64_t{1} << 62U,
                                    18446744073709551615ULL,
                                    "",
                                    "\xEF\xBF\xBD",
                                    std::string(3000, 'x'),
                                    json::array(),
                                    json::object(),
                                    {1, "a", nullptr},
                                    {{"type", "BPE"}},
                                    {{"", {{"", 0}}}}};
  return values[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
}

// Inserts an odd value somewhere into the tree, or drops or doubles a part of it.
void damage(json& root, Rng& rng) {
  json* at = &root;
  while (at->is_structured() && !at->empty() && rng.integer(0, 3) > 0) {
    auto child = at->begin();
    std::advance(child, rng.integer(0, std::min<std::int64_t>(static_cast<std::int64_t>(at->size()) - 1, 400)));
    if (rng.integer(0, 9) == 0) {
      at->erase(child);
      return;
    }
    at = &*child;
  }
  if (at->is_array() && !at->empty() && rng.integer(0, 2) == 0) {
    at->push_back(at->front());
  } else if (at->is_object() && rng.integer(0, 2) == 0) {
    (*at)["extra"] = odd_value(rng);
  } else {
    *at = odd_value(rng);
  }
}

// Also damages bytes of its text.
std::string damaged(const std::string& text, Rng& rng) {
  if (rng.integer(0, 2) > 0) {
    json root = json::parse(text);
    for (std::int64_t times = rng.integer(1, 3); times > 0; --times) damage(root, rng);
    return root.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::string bytes = text;
  for (std::int64_t times = rng.integer(1, 4); times > 0 && !bytes.empty(); --times) {
    const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1));
    switch (rng.integer(0, 2)) {
      case 0: bytes[at] = static_cast<char>(rng.integer(0, 255)); break;
      case 1: bytes.erase(at, static_cast<std::size_t>(rng.integer(1, 30))); break;
      default: bytes.resize(at);
    }
  }
  return bytes;
}

// Runs `read` on this many damaged files. It returns the error's message, or nothing if the file is accepted. Both outcomes
// must occur.
void expect_survival(const std::string& good, int files, const std::string& name,
                     const std::function<std::string(const std::string& text)>& read) {
  ASSERT_EQ(read(good), "");
  Rng rng(17, name);
  int refused = 0;
  for (int i = 0; i < files; ++i) {
    const std::string text = damaged(good, rng);
    const std::string message = read(text);
    if (message.empty()) continue;
    ++refused;
    EXPECT_THAT(message, HasSubstr(name)) << "file " << i << ": " << text.substr(0, 300);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refused, files / 10);
  EXPECT_LT(refused, files);
  for (const char open : {'[', '{'}) {
    const std::string deep = open == '[' ? std::string(1'000'000, '[') : [] {
      std::string text;
      for (int i = 0; i < 200'000; ++i) text += "{\"a\":";
      return text;
    }();
    EXPECT_THAT(read(deep), HasSubstr("must have at most 64 levels of nesting"));
  }
}

// Given damaged configurations; expects each to be read or refused.
TEST(HostileFiles, Config) {
  const testing::TemporaryFolder folder;
  for (const Architecture architecture : {Architecture::kOpt, Architecture::kQwen3Moe, Architecture::kLlama}) {
    SCOPED_TRACE(to_string(architecture));
    ASSERT_TRUE(init_model(testing::tiny_shape(architecture), folder.path()).ok());
    expect_survival(testing::read_bytes(folder.path() / "config.json"), effort(300, 3000), "m/config.json",
                    [](const std::string& text) {
                      const auto config = parse_model_config(text, "m/config.json");
                      return config.ok() ? "" : config.error().message;
                    });
  }
  expect_survival(testing::read_bytes(folder.path() / "generation_config.json"), effort(200, 2000), "m/generation_config.json",
                  [](const std::string& text) {
                    const auto config = parse_generation_config(text, "m/generation_config.json");
                    return config.ok() ? "" : config.error().message;
                  });
}

// Given damaged tokenizers; expects each to be read or refused, and those that are read to encode and decode any text.
TEST(HostileFiles, Tokenizer) {
  expect_survival(
      make_tokenizer_json(testing::tiny_shape()), effort(250, 2500), "m/tokenizer.json", [](const std::string& text) {
        const auto tokenizer = Tokenizer::parse(text, "m/tokenizer.json");
        if (!tokenizer.ok()) return tokenizer.error().message;
        const auto ids = tokenizer->encode("Hello <|eot_id|> w\xC3\xB6rld \xF0\x9F\x99\x82\xFF 123", SpecialText::kParse);
        EXPECT_LE(tokenizer->decode(ids).size(), 100'000U);
        const auto chat = ChatTemplate::of_tokens(*tokenizer).render({{"user", "hi"}}, {}, 0);
        EXPECT_TRUE(chat.ok());
        return std::string();
      });
}

// Given damaged safetensors headers and indices; expects each to be read or refused, with all tensors inside the file.
TEST(HostileFiles, Safetensors) {
  const testing::TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],)"
                             R"("data_offsets":[24,32]},"__metadata__":{"format":"pt"}})";
  expect_survival(header, effort(150, 1500), "model.safetensors", [&](const std::string& text) {
    testing::write_bytes(folder.path() / "model.safetensors", testing::safetensors_bytes(text, std::string(32, '\1')));
    const auto store = TensorStore::open(folder.path());
    if (!store.ok()) return store.error().message;
    for (const char* name : {"a", "b"}) {
      const TensorView* tensor = store->find(name);
      if (tensor == nullptr || tensor->numbers == nullptr) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
      copy_as_float(*tensor, values);
    }
    return std::string();
  });
  const testing::TemporaryFolder sharded;
  testing::write_bytes(sharded.path() / "one.safetensors", testing::safetensors_bytes(header, std::string(32, '\1')));
  const std::string index = R"({"metadata":{"total_size":32},"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})";
  expect_survival(index, effort(50, 500), "safetensors", [&](const std::string& text) {
    testing::write_bytes(sharded.path() / "model.safetensors.index.json", text);
    const auto store = TensorStore::open(sharded.path());
    return store.ok() ? std::string() : store.error().message;
  });
}

}  // namespace
}  // namespace windlass::worker
