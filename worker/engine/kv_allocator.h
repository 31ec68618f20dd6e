// KvAllocator: tracks the holders of each KV cache block, and which blocks hold a prefix that other sequences may read.
//
// A full block can get a name, made from the name of the preceding block and its own tokens; so a name stands for exactly one
// prefix. Sequences with the same prefix share named blocks (Kwon et al. 2023, Section 4.4); nobody writes to them. A named
// block without holders keeps its name and content until its room is needed. Reuse takes the longest unused block first and,
// within one sequence, a later block before the blocks it follows.
//
// Owned by the engine; one thread. Each operation costs O(1) per block.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "worker/backend/backend.h"

namespace windlass::worker {

class KvAllocator {
 public:
  // Identifies the prefix that ends with a block. Never reused.
  using Name = std::uint64_t;
  static constexpr Name kBeginning = 0;  // the empty prefix, before the first block

  explicit KvAllocator(std::int64_t blocks);

  [[nodiscard]] std::int64_t total() const { return static_cast<std::int64_t>(blocks_.size()); }
  // Blocks without a holder; some of them may be named.
  [[nodiscard]] std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + unused_.size()); }
  [[nodiscard]] std::int64_t used() const { return total() - available(); }
  // Number of holders. REQUIRES: 0 <= block < total().
  [[nodiscard]] int holders(std::int32_t block) const { return of(block).holders; }

  // Allocates a block without a name; its content is undefined. REQUIRES: available() > 0.
  [[nodiscard]] std::int32_t take();
  // Adds a holder to each of the blocks. REQUIRES: they are named.
  void share(std::span<const std::int32_t> blocks);
  // Removes a holder from each of the blocks. REQUIRES: the caller holds them.
  void give_back(std::span<const std::int32_t> blocks);

  // Names the block that holds these kKvBlockTokens tokens after the prefix `before`, and returns the name. If another block
  // already has this name, this block stays unnamed. REQUIRES: the block is full and unnamed, and the caller holds it.
  Name name(std::int32_t block, Name before, std::span<const std::int32_t> tokens);
  // Removes the blocks' names, if any, because their content was never computed. REQUIRES: the caller holds the blocks.
  void unname(std::span<const std::int32_t> blocks);

  // The named blocks that a list of tokens begins with.
  struct Prefix {
    std::vector<std::int32_t> blocks;
    std::vector<Name> names;  // one per block

    [[nodiscard]] Name name() const { return names.empty() ? kBeginning : names.back(); }
  };
  // Finds the longest cached prefix of `tokens`. `known`: an earlier result for the same tokens; the part that still holds is
  // not hashed again.
  [[nodiscard]] Prefix find(std::span<const std::int32_t> tokens, Prefix known = {}) const;

 private:
  struct Key {
    Name before = kBeginning;
    std::array<std::int32_t, kKvBlockTokens> tokens = {};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  using Names = std::unordered_map<Key, std::int32_t, KeyHash>;  // maps to the block with that name
  struct Block {
    int holders = 0;
    Name name = kBeginning;  // kBeginning: unnamed
    Names::const_iterator key;
    std::list<std::int32_t>::iterator unused_at;  // valid if the block is named and has no holder
  };

  [[nodiscard]] static Key key_of(Name before, std::span<const std::int32_t> tokens);
  void take_name(Block& block);  // REQUIRES: it is named
  [[nodiscard]] const Block& of(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] Block& of(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }

  Names names_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;  // unnamed
  std::list<std::int32_t> unused_;  // named blocks without holders; longest unused first
  Name last_name_ = kBeginning;
};

}  // namespace windlass::worker
