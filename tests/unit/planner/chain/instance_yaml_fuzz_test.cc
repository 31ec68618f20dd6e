// Seeded fuzz tests of INSTANCE files: the parser answers for any bytes, and whatever it accepts it can write and read again.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/foreign_text.h"
#include "planner/base/rng.h"
#include "planner/chain/instance_yaml.h"
#include "tests/effort.h"

namespace windlass::chain {
namespace {

const std::vector<std::string>& documents() {
  static const std::vector<std::string> kDocuments = {
      "model:   {blocks: 70, blockSizeGB: 1.32, cacheSizeGB: 0.11}\narrivalRate: 0.2\nmaxLoad: 0.7\nservers:\n"
      "- {name: s0, memoryGB: 40, communicationSeconds: 0.05, blockSeconds: 0.109}\n"
      "- {name: s1, memoryGB: 20, communicationSeconds: 0.05, blockSeconds: 0.175, loadGBPerSecond: 2}\n",
      "{\"model\": {\"blocks\": 2, \"blockSizeGB\": 1, \"cacheSizeGB\": 0.5}, \"arrivalRate\": 1e-3, \"servers\": [\n"
      "  {\"name\": \"a\", \"memoryGB\": 4e0, \"communicationSeconds\": 0, \"blockSeconds\": 1.25}]}\n",
      "# comment\nservers:\n  - name: \"x \\u00e4\"\n    memoryGB: 8.5\n    communicationSeconds: .5\n    blockSeconds: 5.\n   "
      " tokenTimes:\n"
      "      blockOverheadSeconds: 0.001\n      blockPrefillSecondsPerToken: 0.00004\n      blockDecodeSecondsPerToken: "
      "0.0013\n"
      "      communicationFirstSeconds: 0.02\n      communicationSecondsPerToken: 0.03\n"
      "arrivalRate: 3\nmodel:\n  blocks: 3\n  blockSizeGB: 0.5\n  cacheSizeGB: 0.25\n",
  };
  return kDocuments;
}

const std::vector<std::string>& tokens() {
  static const std::vector<std::string> kTokens = {
      "0",         "-1",
      "1e308",     "1e-320",
      ".inf",      "-.inf",
      ".nan",      "nan",
      "0x1F",      "007",
      "1_0",       "\"3\"",
      "'",         "\"",
      "{",         "}",
      "[",         "]",
      ":",         ",",
      "- ",        "? ",
      "#",         "&a ",
      "*a",        "!!int ",
      "!x ",       "|\n",
      ">\n",       "---\n",
      "...\n",     "%TAG ! x\n",
      "<<: ",      "null",
      "~",         "true",
      "\t",        "\r\n",
      "\\",        "\xFF",
      "\xC3",      "\xEF\xBB\xBF",
      "\0",        "name: s0",
      "blocks: 1", "999999999999999999999999",
      "1e9",       "1e-9",
      "0.1",       "1.7976931348623157e308",
      "+5",        "-0",
      "-0.0",      "{}",
      "[]",        "\n",
      " ",         "\"\\u0000\"",
      "\"\\x85\"",
  };
  return kTokens;
}

std::size_t below(Rng& rng, std::size_t n) {
  return static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(n) - 1));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    lines.back() += c;
    if (c == '\n') lines.emplace_back();
  }
  return lines;
}

// The start and length of a number or word.
std::pair<std::size_t, std::size_t> random_word(Rng& rng, const std::string& text) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+'; };
  std::size_t at = below(rng, text.size());
  while (at < text.size() && !part(text[at])) ++at;
  while (at > 0 && at < text.size() && part(text[at - 1])) --at;
  std::size_t end = at;
  while (end < text.size() && part(text[end])) ++end;
  return {at, end - at};
}

std::string mutated(Rng& rng, std::string text) {
  for (auto left = rng.uniform() < 0.5 ? 1 : rng.integer(2, 4); left > 0 && !text.empty(); --left) {
    switch (rng.integer(0, 8)) {
      case 0: text[below(rng, text.size())] ^= static_cast<char>(1 << rng.integer(0, 7)); break;
      case 1: text[below(rng, text.size())] = static_cast<char>(rng.integer(0, 255)); break;
      case 2: text.resize(below(rng, text.size())); break;
      case 3: text.insert(below(rng, text.size()), tokens()[below(rng, tokens().size())]); break;
      case 4: {
        const auto [at, length] = random_word(rng, text);
        text.replace(at, length, tokens()[below(rng, tokens().size())]);
        break;
      }
      case 5: {  // duplicate a line, or swap two lines
        auto lines = lines_of(text);
        const std::size_t i = below(rng, lines.size());
        const std::size_t j = below(rng, lines.size());
        if (rng.uniform() < 0.5) {
          lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i), std::string(lines[j]));
        } else {
          std::swap(lines[i], lines[j]);
        }
        text.clear();
        for (const std::string& line : lines) text += line;
        break;
      }
      case 6: {  // swap two words
        const auto [a, a_length] = random_word(rng, text);
        const std::string first = text.substr(a, a_length);
        const std::string& other = documents()[below(rng, documents().size())];
        const auto [b, b_length] = random_word(rng, other);
        text.replace(a, a_length, other.substr(b, b_length));
        break;
      }
      case 7: {  // remove a piece
        const std::size_t at = below(rng, text.size());
        text.erase(at, static_cast<std::size_t>(rng.integer(1, 20)));
        break;
      }
      default: {  // change the digits of a number
        const auto [at, length] = random_word(rng, text);
        text.replace(at, length, std::to_string(std::exp(rng.uniform(-25, 25))));
        break;
      }
    }
  }
  return text;
}

void expect_in_range(const Instance& instance, const std::string& text) {
  bool good = instance.blocks >= 1 && instance.blocks <= kMaxBlocks && !instance.servers.empty();
  const auto within = [&](double value, double low, double high) { good = good && low <= value && value <= high; };
  within(instance.block_gb, kSmallestNumber, kLargestNumber);
  within(instance.cache_gb, kSmallestNumber, kLargestNumber);
  within(instance.arrival_rate_per_s, kSmallestNumber, kLargestNumber);
  within(instance.max_load, kSmallestNumber, 1);
  for (const Server& server : instance.servers) {
    good = good && !server.name.empty() && is_printable(server.name);
    within(server.memory_gb, kSmallestNumber, instance.cache_gb * kMaxCachesOnAServer);
    within(server.communication_s, 0, kLargestNumber);
    within(server.block_s, kSmallestNumber, kLargestNumber);
    within(server.load_gb_per_s, kSmallestNumber, kLargestNumber);
  }
  ASSERT_TRUE(good) << text;
}

// Given damaged copies of good files; expects for each an instance within the ranges that survives writing and reading, or one
// printable line. Both must occur.
TEST(InstanceYamlFuzz, EveryInputIsAnswered) {
  Rng rng(20260417, "mutations");
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < effort(6000, 60'000); ++round) {
    const std::string text = mutated(rng, documents()[below(rng, documents().size())]);
    const auto instance = instance_from_yaml(text, "f");
    if (!instance.ok()) {
      ++refused;
      ASSERT_TRUE(is_printable(instance.error().message)) << text;
      ASSERT_LT(instance.error().message.size(), 400u) << text;
      continue;
    }
    ++accepted;
    expect_in_range(*instance, text);
    const auto again = instance_from_yaml(to_yaml(*instance), "f");
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
    ASSERT_EQ(*again, *instance) << text;
  }
  EXPECT_GT(accepted, effort(133, 2000));
  EXPECT_GT(refused, effort(1333, 20'000));
}

// Given 20,000 texts of random bytes and of random tokens; expects an answer for each.
TEST(InstanceYamlFuzz, NoiseIsAnswered) {
  Rng rng(20260418, "noise");
  int refused = 0;
  for (int round = 0; round < effort(2000, 20'000); ++round) {
    std::string text;
    for (auto left = rng.integer(0, 60); left > 0; --left) {
      if (round % 2 == 0) {
        text += static_cast<char>(rng.integer(0, 255));
      } else {
        text += tokens()[below(rng, tokens().size())];
      }
    }
    const auto instance = instance_from_yaml(text, "f");
    refused += !instance.ok();
  }
  EXPECT_EQ(refused, effort(2000, 20'000));
}

}  // namespace
}  // namespace windlass::chain
