// Holders of blocks and lookups of prefixes, compared with a plain record of what every block contains.
#include "worker/engine/kv_allocator.h"

#include <algorithm>
#include <map>
#include <span>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::worker {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens of_block(std::int32_t token) { return Tokens(static_cast<std::size_t>(kKvBlockTokens), token); }

// Given a prefix of two blocks; expects it to be found as far as tokens are equal, in whole blocks only. A block that repeats
// another one's prefix gets the same name and stays unnamed.
TEST(KvAllocator, FindsWholeBlocksOfTheSamePrefix) {
  KvAllocator kv(4);
  const std::int32_t first = kv.take(), second = kv.take(), again = kv.take();
  const auto one = kv.name(first, KvAllocator::kBeginning, of_block(1));
  const auto two = kv.name(second, one, of_block(2));
  EXPECT_NE(one, two);
  EXPECT_EQ(kv.name(again, KvAllocator::kBeginning, of_block(1)), one);
  Tokens tokens = of_block(1);
  tokens.resize(2 * tokens.size(), 2);
  EXPECT_EQ(kv.find(tokens).blocks, (Tokens{first, second}));
  EXPECT_EQ(kv.find(tokens).name(), two);
  tokens.push_back(2);
  EXPECT_EQ(kv.find(tokens).blocks, (Tokens{first, second}));
  tokens.resize(31);
  EXPECT_EQ(kv.find(tokens).blocks, (Tokens{first}));
  EXPECT_EQ(kv.find(tokens).name(), one);
  EXPECT_TRUE(kv.find(of_block(2)).blocks.empty()) << "it follows another block";
  EXPECT_TRUE(kv.find({}).blocks.empty());
}

// Given blocks without holders; expects unnamed ones to be taken first, then the longest unused, and within one sequence the
// last.
TEST(KvAllocator, TheLongestUnusedGoesFirst) {
  KvAllocator kv(5);
  const auto sequence = [&](std::int32_t token) {
    const Tokens blocks = {kv.take(), kv.take()};
    kv.name(blocks[1], kv.name(blocks[0], KvAllocator::kBeginning, of_block(token)), of_block(token));
    return blocks;
  };
  const Tokens old = sequence(1), young = sequence(2);
  kv.give_back(old);
  kv.give_back(young);
  EXPECT_EQ(kv.available(), 5);
  kv.share(old);  // used again: now the most recent
  kv.give_back(old);
  (void)kv.take();
  EXPECT_EQ(kv.find(of_block(2)).blocks.size(), 1U) << "there was a block without a name";
  EXPECT_EQ(kv.take(), young[1]);
  EXPECT_EQ(kv.take(), young[0]);
  EXPECT_TRUE(kv.find(of_block(2)).blocks.empty());
  EXPECT_EQ(kv.take(), old[1]);
  EXPECT_EQ(kv.find(of_block(1)).blocks, (Tokens{old[0]}));
  EXPECT_EQ(kv.holders(old[0]), 0);
  EXPECT_EQ(kv.available(), 1);
}

// Given blocks whose content was never computed; expects lookups to find neither them nor blocks named after them. The same
// tokens can be named again, and other holders keep their block.
TEST(KvAllocator, UnnamedBlocksAreNotFound) {
  KvAllocator kv(4);
  const Tokens blocks = {kv.take(), kv.take()};
  const auto one = kv.name(blocks[0], KvAllocator::kBeginning, of_block(1));
  kv.name(blocks[1], one, of_block(2));
  Tokens tokens = of_block(1);
  tokens.resize(2 * tokens.size(), 2);
  kv.share(blocks);
  kv.unname(std::span(blocks).first(1));
  kv.unname(std::span(blocks).first(1));  // has no name any more
  EXPECT_TRUE(kv.find(tokens).blocks.empty());
  kv.give_back(blocks);
  EXPECT_EQ(kv.used(), 2);
  kv.give_back(blocks);
  EXPECT_EQ(kv.available(), 4);
  const std::int32_t again = kv.take();
  EXPECT_NE(kv.name(again, KvAllocator::kBeginning, of_block(1)), one);
  EXPECT_EQ(kv.find(tokens).blocks, (Tokens{again})) << "what followed the old one follows it no more";
}

// Given sequences of a few different blocks that are added, shared, extended, failed and removed at random; expects lookups to
// return only blocks with exactly these tokens, independent of earlier results. A taken block has one holder, and all blocks
// are accounted for.
TEST(KvAllocator, LookupsReturnTheRightBlocks) {
  std::int64_t shared = 0, shrunk = 0, changed = 0;
  for (std::uint64_t seed = 0; seed < effort(25U, 200U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "blocks");
    KvAllocator kv(rng.integer(3, 20));
    struct Sequence {
      Tokens tokens, blocks;
      KvAllocator::Name name = KvAllocator::kBeginning;
    };
    std::vector<Sequence> sequences;
    std::map<std::int32_t, Tokens> content;  // of a block: the whole prefix that ends with it
    std::map<std::int32_t, int> holders;
    std::vector<std::pair<Tokens, KvAllocator::Prefix>> waiting;  // and the last lookup for them
    while (waiting.size() < 3) {
      Tokens tokens;
      while (tokens.size() < 5 * static_cast<std::size_t>(kKvBlockTokens)) {
        const Tokens next = of_block(static_cast<std::int32_t>(rng.integer(0, 1)));
        tokens.insert(tokens.end(), next.begin(), next.end());
      }
      waiting.emplace_back(std::move(tokens), KvAllocator::Prefix());
    }
    for (int step = 0; step < 300; ++step) {
      const std::int64_t what = rng.integer(0, 3);
      if (what == 0) {
        Sequence sequence;
        for (std::int64_t n = rng.integer(1, 5); n > 0; --n) {
          const Tokens next = of_block(static_cast<std::int32_t>(rng.integer(0, 1)));
          sequence.tokens.insert(sequence.tokens.end(), next.begin(), next.end());
        }
        const auto prefix = kv.find(sequence.tokens);
        for (std::size_t i = 0; i < prefix.blocks.size(); ++i) {
          const Tokens expected(sequence.tokens.begin(),
                                sequence.tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kKvBlockTokens));
          ASSERT_EQ(content.at(prefix.blocks[i]), expected);
          ++holders[prefix.blocks[i]];
          ++shared;
        }
        kv.share(prefix.blocks);
        sequence.blocks = prefix.blocks;
        sequence.name = prefix.name();
        sequence.tokens.resize(sequence.blocks.size() * kKvBlockTokens);
        sequences.push_back(std::move(sequence));
      } else if (what == 1 && !sequences.empty()) {
        const auto at = sequences.begin() + rng.integer(0, static_cast<std::int64_t>(sequences.size()) - 1);
        for (const std::int32_t block : at->blocks) --holders[block];
        kv.give_back(at->blocks);
        sequences.erase(at);
      } else if (!sequences.empty() && kv.available() > 0) {
        Sequence& grows = sequences[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(sequences.size()) - 1))];
        const std::int32_t block = kv.take();
        ASSERT_EQ(holders[block]++, 0);
        const Tokens next = of_block(static_cast<std::int32_t>(rng.integer(0, 1)));
        grows.tokens.insert(grows.tokens.end(), next.begin(), next.end());
        content[block] = grows.tokens;
        grows.blocks.push_back(block);
        grows.name = kv.name(block, grows.name, next);
        if (rng.uniform() < 0.1) {
          kv.unname(std::span(&block, 1));
          content.erase(block);
        }
      }
      for (auto& [tokens, known] : waiting) {
        if (rng.uniform() < 0.5) continue;
        const auto fresh = kv.find(tokens);
        const auto before = known.names;
        known = kv.find(tokens, std::move(known));
        ASSERT_EQ(known.blocks, fresh.blocks);
        ASSERT_EQ(known.names, fresh.names);
        shrunk += known.names.size() < before.size() ? 1 : 0;
        changed += known.names != before ? 1 : 0;
      }
      const auto used = std::count_if(holders.begin(), holders.end(), [](const auto& each) { return each.second > 0; });
      ASSERT_EQ(kv.used(), used);
      for (const auto& [block, count] : holders) ASSERT_EQ(kv.holders(block), count);
    }
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(shrunk, 100);
  EXPECT_GT(changed - shrunk, 100);
}

}  // namespace
}  // namespace windlass::worker
