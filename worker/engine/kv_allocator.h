// KvAllocator: who has which block of the KV cache, and which blocks hold a prefix that others may read.
//
// A full block can be named: by the name of the block before it in its sequence and by its own tokens, so that one name stands
// for one whole prefix, exactly. Sequences that begin alike share named blocks (Kwon et al. 2023, Section 4.4); nobody writes
// into one. When nobody has a named block any more it keeps its name and content until its room is needed: the longest unused
// goes first, of one sequence the last before those that it follows.
//
// Owned by the engine; one thread. All costs are per block.
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
  // Of the prefix that ends with a block. Never given twice.
  using Name = std::uint64_t;
  static constexpr Name kBeginning = 0;  // what comes before a first block

  explicit KvAllocator(std::int64_t blocks);

  [[nodiscard]] std::int64_t total() const { return static_cast<std::int64_t>(blocks_.size()); }
  // That nobody has; some of them may be named.
  [[nodiscard]] std::int64_t available() const { return static_cast<std::int64_t>(free_.size() + unused_.size()); }
  [[nodiscard]] std::int64_t used() const { return total() - available(); }
  // How many have it. REQUIRES: 0 <= block < total().
  [[nodiscard]] int holders(std::int32_t block) const { return of(block).holders; }

  // A block without a name, whose content says nothing. REQUIRES: available() > 0.
  [[nodiscard]] std::int32_t take();
  // One more has each of them. REQUIRES: they are named.
  void share(std::span<const std::int32_t> blocks);
  // One less has each of them. REQUIRES: the caller has them.
  void give_back(std::span<const std::int32_t> blocks);

  // Names the block that holds these kKvBlockTokens tokens after the prefix `before`. Returns that name, also where another
  // block has it already: this one then stays without. REQUIRES: the block is full, has no name, and the caller has it.
  Name name(std::int32_t block, Name before, std::span<const std::int32_t> tokens);
  // Takes the names of those that have one: what they stand for did not come to be. REQUIRES: the caller has the blocks.
  void unname(std::span<const std::int32_t> blocks);

  // The named blocks that some tokens begin with.
  struct Prefix {
    std::vector<std::int32_t> blocks;
    std::vector<Name> names;  // of each

    [[nodiscard]] Name name() const { return names.empty() ? kBeginning : names.back(); }
  };
  // Of these tokens. `known`: what was found for them before; what is still so is not hashed again.
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
  using Names = std::unordered_map<Key, std::int32_t, KeyHash>;  // to the block that has it
  struct Block {
    int holders = 0;
    Name name = kBeginning;  // kBeginning: it has none
    Names::const_iterator key;
    std::list<std::int32_t>::iterator unused_at;  // where it has one and nobody has it
  };

  [[nodiscard]] static Key key_of(Name before, std::span<const std::int32_t> tokens);
  void take_name(Block& block);  // REQUIRES: it has one
  [[nodiscard]] const Block& of(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] Block& of(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }

  Names names_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;  // without a name
  std::list<std::int32_t> unused_;  // with one, that nobody has; the longest unused first
  Name last_name_ = kBeginning;
};

}  // namespace windlass::worker
