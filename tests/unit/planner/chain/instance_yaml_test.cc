// Tests of INSTANCE files: what is read, what is refused and with which message, and that writing and reading gives the same
// instance.
#include "planner/chain/instance_yaml.h"

#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/says.h"

namespace windlass::chain {
namespace {

using testing::HasSubstr;

constexpr const char* kBloom = R"(# BLOOM-176B on two servers
model:   {blocks: 70, blockSizeGB: 1.32, cacheSizeGB: 0.11}
arrivalRate: 0.2          # requests per second
maxLoad: 0.7
servers:
- {name: s0, memoryGB: 40, communicationSeconds: 0.05, blockSeconds: 0.109}
- name: s1
  memoryGB: 20
  communicationSeconds: 0.06
  blockSeconds: 0.175
  loadGBPerSecond: 2.5
  tokenTimes: {blockPrefillSecondsPerToken: 6.25e-5, blockDecodeSecondsPerToken: 0.0026}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Given the example of the docs with a second server that uses every field; expects all values, and defaults for missing ones.
TEST(InstanceYaml, ReadsEveryField) {
  const auto instance = instance_from_yaml(kBloom, "f");
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_EQ(instance->blocks, 70);
  EXPECT_EQ(instance->block_gb, 1.32);
  EXPECT_EQ(instance->cache_gb, 0.11);
  EXPECT_EQ(instance->arrival_rate_per_s, 0.2);
  EXPECT_EQ(instance->max_load, 0.7);
  ASSERT_EQ(instance->servers.size(), 2u);
  EXPECT_EQ(instance->servers[0], (Server{"s0", 40, 0.05, 0.109, 1, std::nullopt}));
  EXPECT_EQ(instance->servers[1], (Server{"s1", 20, 0.06, 0.175, 2.5, TokenTimes{0, 6.25e-5, 0.0026, 0, 0}}));
}

// Given the same instance as JSON, with Windows line ends, with a byte order mark, without maxLoad; expects the same instance.
TEST(InstanceYaml, ReadsJsonAndOtherSpellings) {
  const std::string json = R"({"model": {"blocks": 70.0, "blockSizeGB": 1.32, "cacheSizeGB": 1.1e-1}, "arrivalRate": 0.2,
    "servers": [{"name": "s0", "memoryGB": 4e1, "communicationSeconds": 0.05, "blockSeconds": 0.109},
                {"name": "s1", "memoryGB": 20, "communicationSeconds": 0.06, "blockSeconds": 0.175, "loadGBPerSecond": 2.5,
                 "tokenTimes": {"blockPrefillSecondsPerToken": 6.25E-5, "blockDecodeSecondsPerToken": 0.0026}}]})";
  std::string windows;
  for (const char c : std::string(kBloom)) windows += c == '\n' ? "\r\n" : std::string(1, c);
  const Instance expected = *instance_from_yaml(kBloom, "f");
  for (const std::string& text : {json, windows, "\xEF\xBB\xBF" + std::string(kBloom), replaced(kBloom, "maxLoad: 0.7\n", ""),
                                  replaced(kBloom, "0.109", "+.109"), "---\n" + std::string(kBloom) + "...\n"}) {
    const auto instance = instance_from_yaml(text, "f");
    ASSERT_TRUE(instance.ok()) << instance.error().message << "\n" << text;
    EXPECT_EQ(*instance, expected) << text;
  }
}

// Given one error in a good file; expects one line with the file, the line, the field, what was found and what is allowed.
TEST(InstanceYaml, MistakesAreNamed) {
  const std::string number = "must be a number from 1e-09 to 1000000000";
  const std::string many(300, 'x');
  struct Case {
    std::string from, to, expected;
  };
  const std::vector<Case> table = {
      {"memoryGB: 40", "memoryGB: abc", "f:6: servers[0].memoryGB: " + number + " (got 'abc')"},
      {"memoryGB: 20", "memoryGB: abc", "f:8: servers[1].memoryGB: " + number + " (got 'abc')"},
      {"memoryGB: 40", "memoryGB: \"40\"", "f:6: servers[0].memoryGB: " + number + " (got the text '40')"},
      {"memoryGB: 40", "memoryGB: '40'", "servers[0].memoryGB: must*(got the text '40')"},
      {"memoryGB: 40", "memoryGB: 40 GB", "servers[0].memoryGB: must*(got '40 GB')"},
      {"memoryGB: 40", "memoryGB: 0", "servers[0].memoryGB: must*(got '0')"},
      {"memoryGB: 40", "memoryGB: -40", "servers[0].memoryGB: must*(got '-40')"},
      {"memoryGB: 40", "memoryGB: +-40", "servers[0].memoryGB: must*(got '+-40')"},
      {"memoryGB: 40", "memoryGB: .inf", "servers[0].memoryGB: must*(got '.inf')"},
      {"memoryGB: 40", "memoryGB: inf", "servers[0].memoryGB: must*(got 'inf')"},
      {"memoryGB: 40", "memoryGB: .nan", "servers[0].memoryGB: must*(got '.nan')"},
      {"memoryGB: 40", "memoryGB: nan", "servers[0].memoryGB: must*(got 'nan')"},
      {"memoryGB: 40", "memoryGB: 1e999", "servers[0].memoryGB: must*(got '1e999')"},
      {"memoryGB: 40", "memoryGB: 1e-999", "servers[0].memoryGB: must*(got '1e-999')"},
      {"memoryGB: 40", "memoryGB: 1e10", "servers[0].memoryGB: must*(got '1e10')"},
      {"memoryGB: 40", "memoryGB: 0x28", "servers[0].memoryGB: must*(got '0x28')"},
      {"memoryGB: 40", "memoryGB: 040", "servers[0].memoryGB: must*(got '040')"},
      {"memoryGB: 40", "memoryGB: 4_0", "servers[0].memoryGB: must*(got '4_0')"},
      {"memoryGB: 40", "memoryGB: .", "servers[0].memoryGB: must*(got '.')"},
      {"memoryGB: 40", "memoryGB: [40]", "servers[0].memoryGB: must*(got a list)"},
      {"memoryGB: 40", "memoryGB: {a: 40}", "servers[0].memoryGB: must*(got a map)"},
      {"memoryGB: 40", "memoryGB: ", "servers[0].memoryGB: must*(got nothing)"},
      {"maxLoad: 0.7", "maxLoad:", "f:4: maxLoad: must*(got nothing)"},
      {"memoryGB: 40", "memoryGB: !!float 40", "must be a value without a tag (got the tag tag:yaml.org,2002:float)"},
      {"memoryGB: 40", "memoryGB: &m 40", "must be a value written out (got an anchor, &name)"},
      {"memoryGB: 40, ", "", "f:6: servers[0].memoryGB: missing, " + number},
      {"memoryGB: 40", "memoryGB: 40, memoryGB: 40", "f:6: keys must be unique (got memoryGB again, after line 6)"},
      {"memoryGB: 40", "memroyGB: 40, memoryGB: 40",
       "f:6: servers[0].memroyGB: unknown field, must be one of name, communicationSeconds, accelerator, gpus, memoryGB, "
       "blockSeconds, "
       "loadGBPerSecond, "
       "tokenTimes"},
      {"memoryGB: 40", "memoryGB: 2e7",
       "f:6: servers[0].memoryGB: must be at most 100000000 times model.cacheSizeGB, 0.11 (got 20000000)"},
      {"communicationSeconds: 0.05", "communicationSeconds: -0.05",
       "servers[0].communicationSeconds: must be a number from 0 to*(got '-0.05')"},
      {"blockSeconds: 0.109", "blockSeconds: 0", "servers[0].blockSeconds: must*(got '0')"},
      {"name: s0", "name: ", "servers[0].name: must be text of 1 to 253 bytes*(got nothing)"},
      {"name: s0", "name: \"\"", "servers[0].name: must*(got the text '')"},
      {"name: s0", "name: \"a\\nb\"", "servers[0].name: must*(got the text 'a?b')"},
      {"name: s0", "name: " + many, "servers[0].name: must*(got '" + many.substr(0, 60) + "...')"},
      {"name: s0", "name: s1", "f:7: servers[1].name: must be unique (got 's1', the name of servers[0])"},
      {"blockPrefillSecondsPerToken: 6.25e-5, ", "",
       "f:12: servers[1].tokenTimes.blockPrefillSecondsPerToken: missing, must be a number"},
      {"blockPrefillSecondsPerToken: 6.25e-5", "blockPrefillSecondsPerToken: 6.25e-5, x: 1",
       "servers[1].tokenTimes.x: unknown field, must be one of blockOverheadSeconds, "},
      {"tokenTimes: {", "tokenTimes: 3 #{", "servers[1].tokenTimes: must be a map*(got '3')"},
      {"blocks: 70", "blocks: 70.5", "f:2: model.blocks: must be a whole number from 1 to 10000*(got '70.5')"},
      {"blocks: 70", "blocks: 0", "model.blocks: must*(got '0')"},
      {"blocks: 70", "blocks: 100001", "model.blocks: must*(got '100001')"},
      {"blocks: 70", "blocks: 99999999999999999999", "model.blocks: must*(got '99999999999999999999')"},
      {"blocks: 70, ", "", "f:2: model.blocks: missing, must be a whole number"},
      {"arrivalRate: 0.2", "arrivalRate: 0", "f:3: arrivalRate: " + number + " (got '0')"},
      {"arrivalRate: 0.2", "arivalRate: 0.2", "f:2: arrivalRate: missing, must be a number"},
      {"maxLoad: 0.7", "maxLoad: 1.1", "f:4: maxLoad: must be a number from 1e-09 to 1*(got '1.1')"},
      {"maxLoad: 0.7", "maxload: 0.7",
       "f:4: maxload: unknown field, must be one of workload, model, arrivalRate, maxLoad, servers"},
      {"maxLoad: 0.7", "maxLoad: *x", "f:4: "},
      {"servers:", "servers: []\nx:", "f:5: servers: must be a list of 1 to*(got 0 items)"},
      {"servers:", "- servers:", "f:5: not YAML: "},
      {"model: ", "<<: {}\nmodel: ", "<<: unknown field"},
      {"model: ", "? [a]\n: 1\nmodel: ", "a key must be text (got a list or map"},
      {"- name: s1", "---\n- name: s1", "must be one YAML document (got a second one)"},
  };
  for (const auto& [from, to, expected] : table) {
    const auto instance = instance_from_yaml(replaced(kBloom, from, to), "f");
    ASSERT_FALSE(instance.ok()) << to;
    EXPECT_EQ(instance.error().code, ErrorCode::kInvalidArgument) << to;
    EXPECT_THAT(instance.error().message, Says(expected)) << to;
    EXPECT_EQ(instance.error().message.find('\n'), std::string::npos) << to;
  }
}

// Given texts that are not an instance; expects a line that says what is expected instead.
TEST(InstanceYaml, OtherTextsAreRefused) {
  const auto deep = [](const std::string& open, const std::string& close, int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'j'; ++c) {
    bomb += fmt::format("{}: &{} [", c, c);
    for (int i = 0; i < 9; ++i) bomb += fmt::format("{}*{}", i == 0 ? "" : ", ", static_cast<char>(c - 1));
    bomb += "]\n";
  }
  std::string keys;
  for (int i = 0; i < 1000; ++i) keys += fmt::format("k{}: 1\n", i);
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "f:1: must be one YAML document (got no value)"},
      {"# only a comment\n", "(got no value)"},
      {"---\n", "must be a map*(got nothing)"},
      {"3", "f:1: must be a map*(got '3')"},
      {"- 1", "f:1: must be a map*(got a list)"},
      {"{}", "model: missing, must be a map with blocks, blockSizeGB and cacheSizeGB"},
      {"\"unfinished", "not YAML: "},
      {"{a: 1", "f:1: a key must be text (got a list or map, or one that is not closed)"},
      {"a: b: c", "not YAML: "},
      {"\t\ta: 1", "f:1: "},
      {std::string("\0\0\0", 3), "f:1: "},
      {"\xFF\xFE\x00\xD8", "f:1: "},
      {bomb, "must be a value written out (got an anchor, &name)"},
      {keys, "a map must have at most 64 keys (got more)"},
      {deep("[", "]", 300), "nested deeper than 16 levels"},
      {deep("{a: ", "}", 300), "nested deeper than 16 levels"},
      {deep("- ", "", 100000), "nested deeper than 16 levels"},
      {deep("? ", "", 100000), "f:1: "},
      {"servers: " + deep("[", "]", 100), "nested deeper than 16 levels"},
      {deep("[", "", 100000), "f:1: "},
      {deep("{a: ", "", 100000), "f:1: "},
      {replaced(kBloom, "- {name", "- ["), "f:"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: []",
       "f:3: servers: must be a list of 1 to 100000 servers*(got 0 items)"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: 7",
       "f:3: servers: must be a list*(got '7')"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [7]",
       "f:3: servers[0]: must be a map*(got '7')"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1", "servers: missing"},
  };
  for (const auto& [text, expected] : table) {
    const auto instance = instance_from_yaml(text, "f");
    ASSERT_FALSE(instance.ok()) << text.substr(0, 200);
    EXPECT_THAT(instance.error().message, Says(expected)) << text.substr(0, 200);
    EXPECT_LT(instance.error().message.size(), 300u);
  }
}

// Given more servers than allowed; expects an error with their number.
TEST(InstanceYaml, ServersAreLimited) {
  std::string text = "model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [";
  for (int i = 0; i <= kMaxServers; ++i) text += "7,";
  const auto instance = instance_from_yaml(text + "]", "f");
  ASSERT_FALSE(instance.ok());
  EXPECT_THAT(instance.error().message, Says("servers: must be a list of 1 to 100000 servers*(got 100001 items)"));
}

// Given few enough servers and blocks, but too many together; expects an error with both numbers. Given one server less;
// expects none.
TEST(InstanceYaml, ServersTimesBlocksAreLimited) {
  std::string text = "model: {blocks: 10000, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [";
  for (int i = 0; i < 300; ++i) text += "7,";
  const auto most = instance_from_yaml(text + "]", "f");
  ASSERT_FALSE(most.ok());
  EXPECT_THAT(most.error().message, Says("servers[0]: must be a map*(got '7')"));
  const auto more = instance_from_yaml(text + "7]", "f");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, "f:3: servers: must be at most 3000000 servers times blocks (got 301 for 10000 blocks)");
}

// Given names that other YAML readers take for numbers, booleans or syntax, and names beyond ASCII; expects each to be read as
// text and to be written back.
TEST(InstanceYaml, NamesAreText) {
  Instance instance = *instance_from_yaml(kBloom, "f");
  for (const char* name : {"7",
                           "true",
                           "no",
                           "a b",
                           "a: b",
                           "#1",
                           "- x",
                           "{}",
                           "'",
                           "\"",
                           "\\n",
                           "null",
                           "~",
                           "*x",
                           "&y",
                           "!z",
                           "Zürich-Ω-東京-😀",
                           "%",
                           "@",
                           "`",
                           " padded "}) {
    instance.servers[0].name = name;
    const auto again = instance_from_yaml(to_yaml(instance), "f");
    ASSERT_TRUE(again.ok()) << name << ": " << again.error().message;
    EXPECT_EQ(*again, instance) << name;
  }
  EXPECT_EQ(instance_from_yaml(replaced(kBloom, "name: s0", "name: 7"), "f")->servers[0].name, "7");
}

// Given names with invalid UTF-8, control characters or line separators; expects errors.
TEST(InstanceYaml, UnprintableNamesAreRefused) {
  for (const char* name :
       {"\"\\u0007\"", "\"\\u0085\"", "\"\\u2028\"", "\"\\uFEFF\"", "\"\\x7f\"", "\"\\ud800\"", "\"a\\tb\""}) {
    const auto instance = instance_from_yaml(replaced(kBloom, "name: s0", std::string("name: ") + name), "f");
    EXPECT_FALSE(instance.ok()) << name;
  }
}

// Given thousands of random instances whose numbers use all 53 bits; expects the same instance after writing and reading.
TEST(InstanceYaml, RoundTripsToTheLastBit) {
  Rng rng(7, "instances");
  const auto number = [&](double low, double high) { return std::exp(rng.uniform(std::log(low), std::log(high))); };
  for (int round = 0; round < effort(300, 3000); ++round) {
    Instance instance;
    instance.blocks = static_cast<int>(rng.integer(1, kMaxBlocks));
    instance.block_gb = number(1e-6, 1e3);
    instance.cache_gb = number(1e-3, 1e3);
    instance.arrival_rate_per_s = number(1e-6, 1e6);
    instance.max_load = rng.uniform(0.01, 1);
    for (auto left = rng.integer(1, 5); left > 0; --left) {
      Server server;
      server.name = fmt::format("server-{}", left);
      server.memory_gb = number(1e-3, 1e4);
      server.communication_s = rng.uniform() < 0.2 ? 0 : number(1e-8, 1e3);
      server.block_s = number(1e-8, 1e3);
      server.load_gb_per_s = number(1e-3, 1e3);
      if (rng.uniform() < 0.5) {
        server.token_times = TokenTimes{number(1e-8, 1), number(1e-8, 1), number(1e-8, 1), number(1e-8, 1), number(1e-8, 1)};
      }
      instance.servers.push_back(server);
    }
    const auto again = instance_from_yaml(to_yaml(instance), "f");
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(*again, instance);
  }
}

constexpr const char* kByName = R"(model: {name: llama3-8b}
workload: {inputTokens: 2000, outputTokens: 100}
arrivalRate: 2
servers:
- {name: s0, accelerator: l40s, gpus: 2, communicationSeconds: 1}
- {name: s1, accelerator: my-gpu, communicationSeconds: 0, memoryGB: 20}
)";

planner::KnownAccelerators with_mine() {
  planner::AcceleratorSpec mine = *planner::KnownAccelerators().find("h100-80gb");
  mine.name = "my-gpu";
  return planner::KnownAccelerators({mine});
}

// Given a model and accelerators by name, one of them from the user's files; expects the model's blocks, caches for the mean
// request, and memory and times that follow from the data sheets, except where the file says otherwise.
TEST(InstanceYaml, TakesModelsAndAcceleratorsByName) {
  const auto instance = instance_from_yaml(kByName, "f", with_mine());
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_EQ(instance->blocks, 32);
  EXPECT_NEAR(instance->block_gb * 32, 16.06, 0.01);
  EXPECT_NEAR(instance->cache_gb * 32, 2100.0 * 131072 / 1e9, 1e-9);
  const Server& l40s = instance->servers[0];
  const Server& mine = instance->servers[1];
  EXPECT_NEAR(l40s.memory_gb, 2.0 * 46068 * 1048576 * 0.9 / 1e9, 0.01);
  EXPECT_EQ(mine.memory_gb, 20);
  EXPECT_GT(l40s.block_s, mine.block_s);
  ASSERT_TRUE(l40s.token_times.has_value());
  const TokenTimes& times = *l40s.token_times;
  EXPECT_NEAR(times.block_overhead_s + 2000 * times.block_prefill_s_per_token + 99 * times.block_decode_s_per_token,
              l40s.block_s, 1e-12);
  EXPECT_NEAR(times.communication_first_s + 99 * times.communication_s_per_token, 1, 1e-12);
  const auto longer =
      instance_from_yaml(replaced(kByName, "name: llama3-8b", "name: llama3-8b, cacheTokens: 8192"), "f", with_mine());
  ASSERT_TRUE(longer.ok()) << longer.error().message;
  EXPECT_NEAR(longer->cache_gb * 32, 8192.0 * 131072 / 1e9, 1e-9);
  const auto stated = instance_from_yaml(replaced(kByName, "memoryGB: 20", "blockSeconds: 0.5"), "f", with_mine());
  ASSERT_TRUE(stated.ok()) << stated.error().message;
  EXPECT_EQ(stated->servers[1].block_s, 0.5);
  EXPECT_FALSE(stated->servers[1].token_times.has_value());
}

// Given a model's config in the file; expects its layers as blocks.
TEST(InstanceYaml, TakesAnInlineConfig) {
  const std::string config =
      "config: {inline: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 4096, intermediate_size: 14336, "
      "num_hidden_layers: 24, num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, torch_dtype: bfloat16, "
      "max_position_embeddings: 8192, tie_word_embeddings: false}}";
  const auto instance = instance_from_yaml(replaced(kByName, "name: llama3-8b", config), "f", with_mine());
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_EQ(instance->blocks, 24);
}

// Given names that do not fit together; expects the line, the field and what is missing.
TEST(InstanceYaml, NamesThatLackSomethingAreRefused) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    const auto made = instance_from_yaml(replaced(kByName, from, to), "f", with_mine());
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_THAT(refusal("my-gpu", "your-gpu"),
              Says("f:6: servers[1].accelerator: must be one of my-gpu*(the catalog) (got 'your-gpu')"));
  EXPECT_THAT(refusal("llama3-8b", "llama9"), Says("f:1: model.name: must be one of*(got 'llama9')"));
  EXPECT_THAT(refusal("name: llama3-8b", "name: llama3-8b, blocks: 3"), Says("f:1: model.blocks: must be left out"));
  EXPECT_THAT(refusal("name: llama3-8b", "name: llama3-8b, config: {inline: {}}"),
              Says("f:1: model: must have either name or config"));
  EXPECT_THAT(refusal("name: llama3-8b", "config: c.json"),
              Says("f:1: model.config: must be a map with inline*(got 'c.json')"));
  EXPECT_THAT(refusal("workload: {inputTokens: 2000, outputTokens: 100}\n", ""), Says("f:1: model.cacheSizeGB: missing"));
  EXPECT_THAT(refusal("outputTokens: 100", "outputTokens: 0"), Says("f:2: workload.outputTokens: must*(got '0')"));
  EXPECT_THAT(refusal("name: llama3-8b", "blocks: 32, blockSizeGB: 0.5, cacheSizeGB: 0.1"),
              Says("f:5: servers[0].accelerator: must be left out without model.name or model.config*(got 'l40s')"));
  EXPECT_THAT(refusal("gpus: 2", "gpus: 0"), Says("f:5: servers[0].gpus: must*(got '0')"));
  EXPECT_THAT(refusal("accelerator: l40s, ", ""), Says("f:5: servers[0].gpus: belongs to a server with an accelerator"));
}

}  // namespace
}  // namespace windlass::chain
