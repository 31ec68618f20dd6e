// INSTANCE files: what is read, what is refused and in which words, and that writing and reading gives the same instance.
#include "planner/chain/instance_yaml.h"

#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

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

// Given the issue's example with a second server that uses every field: all of it is read, what was left out has its default.
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

// Given the same instance as JSON, with Windows line ends, with a byte order mark, without maxLoad: the same instance.
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

// Given one mistake in a good file: one line that names the file, the line, the field, what was found and what is allowed.
TEST(InstanceYaml, MistakesAreNamed) {
  const std::string number = "allowed is a number from 1e-09 to 1000000000";
  const std::string many(300, 'x');
  struct Case {
    std::string from, to, expected;
  };
  const std::vector<Case> table = {
      {"memoryGB: 40", "memoryGB: abc", "f:6: servers[0].memoryGB: found 'abc', " + number},
      {"memoryGB: 20", "memoryGB: abc", "f:8: servers[1].memoryGB: found 'abc', " + number},
      {"memoryGB: 40", "memoryGB: \"40\"", "f:6: servers[0].memoryGB: found the text '40', " + number},
      {"memoryGB: 40", "memoryGB: '40'", "servers[0].memoryGB: found the text '40', "},
      {"memoryGB: 40", "memoryGB: 40 GB", "servers[0].memoryGB: found '40 GB', "},
      {"memoryGB: 40", "memoryGB: 0", "servers[0].memoryGB: found '0', "},
      {"memoryGB: 40", "memoryGB: -40", "servers[0].memoryGB: found '-40', "},
      {"memoryGB: 40", "memoryGB: +-40", "servers[0].memoryGB: found '+-40', "},
      {"memoryGB: 40", "memoryGB: .inf", "servers[0].memoryGB: found '.inf', "},
      {"memoryGB: 40", "memoryGB: inf", "servers[0].memoryGB: found 'inf', "},
      {"memoryGB: 40", "memoryGB: .nan", "servers[0].memoryGB: found '.nan', "},
      {"memoryGB: 40", "memoryGB: nan", "servers[0].memoryGB: found 'nan', "},
      {"memoryGB: 40", "memoryGB: 1e999", "servers[0].memoryGB: found '1e999', "},
      {"memoryGB: 40", "memoryGB: 1e-999", "servers[0].memoryGB: found '1e-999', "},
      {"memoryGB: 40", "memoryGB: 1e10", "servers[0].memoryGB: found '1e10', "},
      {"memoryGB: 40", "memoryGB: 0x28", "servers[0].memoryGB: found '0x28', "},
      {"memoryGB: 40", "memoryGB: 040", "servers[0].memoryGB: found '040', "},
      {"memoryGB: 40", "memoryGB: 4_0", "servers[0].memoryGB: found '4_0', "},
      {"memoryGB: 40", "memoryGB: .", "servers[0].memoryGB: found '.', "},
      {"memoryGB: 40", "memoryGB: [40]", "servers[0].memoryGB: found a list, "},
      {"memoryGB: 40", "memoryGB: {a: 40}", "servers[0].memoryGB: found a map, "},
      {"memoryGB: 40", "memoryGB: ", "servers[0].memoryGB: found nothing, "},
      {"maxLoad: 0.7", "maxLoad:", "f:4: maxLoad: found nothing, "},
      {"memoryGB: 40", "memoryGB: !!float 40", "found the tag tag:yaml.org,2002:float, "},
      {"memoryGB: 40", "memoryGB: &m 40", "found an anchor (&name), "},
      {"memoryGB: 40, ", "", "f:6: servers[0].memoryGB: missing, " + number},
      {"memoryGB: 40", "memoryGB: 40, memoryGB: 40", "f:6: found memoryGB a second time, after line 6; "},
      {"memoryGB: 40", "memroyGB: 40, memoryGB: 40",
       "f:6: servers[0].memroyGB: unknown field; allowed are name, memoryGB, communicationSeconds, blockSeconds, "
       "loadGBPerSecond, "
       "tokenTimes"},
      {"memoryGB: 40", "memoryGB: 2e7",
       "f:6: servers[0].memoryGB: found 20000000, allowed are at most 100000000 times "
       "model.cacheSizeGB, which is 0.11"},
      {"communicationSeconds: 0.05", "communicationSeconds: -0.05",
       "servers[0].communicationSeconds: found '-0.05', allowed is a number from 0 to "},
      {"blockSeconds: 0.109", "blockSeconds: 0", "servers[0].blockSeconds: found '0', "},
      {"name: s0", "name: ", "servers[0].name: found nothing, allowed is text of 1 to 253 bytes"},
      {"name: s0", "name: \"\"", "servers[0].name: found the text '', "},
      {"name: s0", "name: \"a\\nb\"", "servers[0].name: found the text 'a?b', "},
      {"name: s0", "name: " + many, "servers[0].name: found '" + many.substr(0, 60) + "...', "},
      {"name: s0", "name: s1", "f:7: servers[1].name: found 's1', which servers[0] has already"},
      {"blockPrefillSecondsPerToken: 6.25e-5, ", "", "f:12: servers[1].tokenTimes.blockPrefillSecondsPerToken: missing"},
      {"blockPrefillSecondsPerToken: 6.25e-5", "blockPrefillSecondsPerToken: 6.25e-5, x: 1",
       "servers[1].tokenTimes.x: unknown field; allowed are blockOverheadSeconds, "},
      {"tokenTimes: {", "tokenTimes: 3 #{", "servers[1].tokenTimes: found '3', allowed is a map"},
      {"blocks: 70", "blocks: 70.5", "f:2: model.blocks: found '70.5', allowed is a whole number from 1 to 10000"},
      {"blocks: 70", "blocks: 0", "model.blocks: found '0', "},
      {"blocks: 70", "blocks: 100001", "model.blocks: found '100001', "},
      {"blocks: 70", "blocks: 99999999999999999999", "model.blocks: found '99999999999999999999', "},
      {"blocks: 70, ", "", "f:2: model.blocks: missing, "},
      {"arrivalRate: 0.2", "arrivalRate: 0", "f:3: arrivalRate: found '0', " + number},
      {"arrivalRate: 0.2", "arivalRate: 0.2", "f:2: arrivalRate: missing, "},
      {"maxLoad: 0.7", "maxLoad: 1.1", "f:4: maxLoad: found '1.1', allowed is a number from 1e-09 to 1"},
      {"maxLoad: 0.7", "maxload: 0.7", "f:4: maxload: unknown field; allowed are model, arrivalRate, maxLoad, servers"},
      {"maxLoad: 0.7", "maxLoad: *x", "f:4: "},
      {"servers:", "servers: []\nx:", "f:5: servers: found 0 items, allowed is a list of 1 to "},
      {"servers:", "- servers:", "f:5: not YAML: "},
      {"model: ", "<<: {}\nmodel: ", "<<: unknown field"},
      {"model: ", "? [a]\n: 1\nmodel: ", "found a list or map as a key, "},
      {"- name: s1", "---\n- name: s1", "found a second YAML document, allowed is one"},
  };
  for (const auto& [from, to, expected] : table) {
    const auto instance = instance_from_yaml(replaced(kBloom, from, to), "f");
    ASSERT_FALSE(instance.ok()) << to;
    EXPECT_EQ(instance.error().code, ErrorCode::kInvalidArgument) << to;
    EXPECT_THAT(instance.error().message, HasSubstr(expected)) << to;
    EXPECT_EQ(instance.error().message.find('\n'), std::string::npos) << to;
  }
}

// Given texts that are no instance at all: a line that says what is wanted instead.
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
      {"", "f:1: found no value, allowed is one YAML document"},
      {"# only a comment\n", "found no value"},
      {"---\n", "found nothing, allowed is a map"},
      {"3", "f:1: found '3', allowed is a map"},
      {"- 1", "f:1: found a list, allowed is a map"},
      {"{}", "model: missing, allowed is a map with blocks, blockSizeGB and cacheSizeGB"},
      {"\"unfinished", "not YAML: "},
      {"{a: 1", "f:1: found a list or map as a key, or one that is not closed; allowed is text as a key"},
      {"a: b: c", "not YAML: "},
      {"\t\ta: 1", "f:1: "},
      {std::string("\0\0\0", 3), "f:1: "},
      {"\xFF\xFE\x00\xD8", "f:1: "},
      {bomb, "found an anchor (&name), "},
      {keys, "found more than 64 keys in one map"},
      {deep("[", "]", 300), "nested deeper than 16 levels"},
      {deep("{a: ", "}", 300), "nested deeper than 16 levels"},
      {deep("- ", "", 100000), "nested deeper than 16 levels"},
      {deep("? ", "", 100000), "f:1: "},
      {"servers: " + deep("[", "]", 100), "nested deeper than 16 levels"},
      {deep("[", "", 100000), "f:1: "},
      {deep("{a: ", "", 100000), "f:1: "},
      {replaced(kBloom, "- {name", "- ["), "f:"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: []",
       "f:3: servers: found 0 items, allowed is a list of 1 to 100000 servers"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: 7",
       "f:3: servers: found '7', allowed is a list"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [7]",
       "f:3: servers[0]: found '7', allowed is a map"},
      {"model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1", "servers: missing"},
  };
  for (const auto& [text, expected] : table) {
    const auto instance = instance_from_yaml(text, "f");
    ASSERT_FALSE(instance.ok()) << text.substr(0, 200);
    EXPECT_THAT(instance.error().message, HasSubstr(expected)) << text.substr(0, 200);
    EXPECT_LT(instance.error().message.size(), 300u);
  }
}

// Given more servers than are allowed: refused by their number.
TEST(InstanceYaml, ServersAreLimited) {
  std::string text = "model: {blocks: 1, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [";
  for (int i = 0; i <= kMaxServers; ++i) text += "7,";
  const auto instance = instance_from_yaml(text + "]", "f");
  ASSERT_FALSE(instance.ok());
  EXPECT_THAT(instance.error().message, HasSubstr("servers: found 100001 items, allowed is a list of 1 to 100000 servers"));
}

// Given fewer servers and blocks than are allowed each, but too many together: refused by both numbers; one server less is
// looked at.
TEST(InstanceYaml, ServersTimesBlocksAreLimited) {
  std::string text = "model: {blocks: 10000, blockSizeGB: 1, cacheSizeGB: 1}\narrivalRate: 1\nservers: [";
  for (int i = 0; i < 300; ++i) text += "7,";
  const auto most = instance_from_yaml(text + "]", "f");
  ASSERT_FALSE(most.ok());
  EXPECT_THAT(most.error().message, HasSubstr("servers[0]: found '7', allowed is a map"));
  const auto more = instance_from_yaml(text + "7]", "f");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, "f:3: servers: found 301 for 10000 blocks, allowed are at most 3000000 servers times blocks");
}

// Given names that other readers of YAML would take for numbers, booleans or syntax, and names beyond ASCII: each is read, and
// comes back as the same text.
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

// Given names with broken UTF-8, control characters or line separators: refused.
TEST(InstanceYaml, UnprintableNamesAreRefused) {
  for (const char* name :
       {"\"\\u0007\"", "\"\\u0085\"", "\"\\u2028\"", "\"\\uFEFF\"", "\"\\x7f\"", "\"\\ud800\"", "\"a\\tb\""}) {
    const auto instance = instance_from_yaml(replaced(kBloom, "name: s0", std::string("name: ") + name), "f");
    EXPECT_FALSE(instance.ok()) << name;
  }
}

// Given thousands of random instances whose numbers use all 53 bits: reading what was written gives the same instance.
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

}  // namespace
}  // namespace windlass::chain
