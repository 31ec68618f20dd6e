// A name lives as long as its block. A block whose predecessor lost its name is never found again, and is reused in its turn.
#include "worker/engine/kv_allocator.h"

#include <algorithm>
#include <cassert>

namespace windlass::worker {

KvAllocator::KvAllocator(std::int64_t blocks) : blocks_(static_cast<std::size_t>(blocks)) {
  names_.reserve(blocks_.size());  // upper bound: iterators stay valid
  free_.reserve(blocks_.size());
  for (std::int64_t id = blocks - 1; id >= 0; --id) free_.push_back(static_cast<std::int32_t>(id));
}

std::size_t KvAllocator::KeyHash::operator()(const Key& key) const {
  // FNV-1a over whole words; the map resolves collisions by comparing keys.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3ULL; };
  mix(key.before);
  for (const std::int32_t token : key.tokens) mix(static_cast<std::uint32_t>(token));
  return static_cast<std::size_t>(hash ^ (hash >> 32U));
}

KvAllocator::Key KvAllocator::key_of(Name before, std::span<const std::int32_t> tokens) {
  Key key;
  key.before = before;
  std::copy_n(tokens.begin(), key.tokens.size(), key.tokens.begin());
  return key;
}

void KvAllocator::take_name(Block& block) {
  names_.erase(block.key);
  block.name = kBeginning;
}

std::int32_t KvAllocator::take() {
  assert(available() > 0);
  std::int32_t id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    id = unused_.front();
    unused_.pop_front();
    take_name(of(id));
  }
  of(id).holders = 1;
  return id;
}

void KvAllocator::share(std::span<const std::int32_t> blocks) {
  for (const std::int32_t id : blocks) {
    Block& block = of(id);
    assert(block.name != kBeginning);
    if (block.holders++ == 0) unused_.erase(block.unused_at);
  }
}

void KvAllocator::give_back(std::span<const std::int32_t> blocks) {
  // Last block first: it is useless without those before it.
  for (auto id = blocks.rbegin(); id != blocks.rend(); ++id) {
    Block& block = of(*id);
    assert(block.holders > 0);
    if (--block.holders > 0) continue;
    if (block.name == kBeginning) {
      free_.push_back(*id);
    } else {
      block.unused_at = unused_.insert(unused_.end(), *id);
    }
  }
}

KvAllocator::Name KvAllocator::name(std::int32_t block, Name before, std::span<const std::int32_t> tokens) {
  assert(tokens.size() == static_cast<std::size_t>(kKvBlockTokens) && of(block).holders > 0 && of(block).name == kBeginning);
  const auto [at, is_new] = names_.try_emplace(key_of(before, tokens), block);
  if (is_new) {
    of(block).name = ++last_name_;
    of(block).key = at;
  }
  return of(at->second).name;
}

void KvAllocator::unname(std::span<const std::int32_t> blocks) {
  for (const std::int32_t id : blocks) {
    Block& block = of(id);
    assert(block.holders > 0);
    if (block.name != kBeginning) take_name(block);
  }
}

KvAllocator::Prefix KvAllocator::find(std::span<const std::int32_t> tokens, Prefix known) const {
  std::size_t still = 0;  // names are never reused, so a block with this name has these tokens
  while (still < known.blocks.size() && of(known.blocks[still]).name == known.names[still]) ++still;
  known.blocks.resize(still);
  known.names.resize(still);
  constexpr auto kTokens = static_cast<std::size_t>(kKvBlockTokens);
  for (tokens = tokens.subspan(still * kTokens); tokens.size() >= kTokens; tokens = tokens.subspan(kTokens)) {
    const auto found = names_.find(key_of(known.name(), tokens.first(kTokens)));
    if (found == names_.end()) break;
    known.blocks.push_back(found->second);
    known.names.push_back(of(found->second).name);
  }
  return known;
}

}  // namespace windlass::worker
