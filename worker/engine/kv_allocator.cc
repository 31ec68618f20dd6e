// Names live as long as their blocks; a name whose predecessor is gone is never found again, and goes in its turn.
#include "worker/engine/kv_allocator.h"

#include <algorithm>
#include <cassert>

namespace windlass::worker {

KvAllocator::KvAllocator(std::int64_t blocks) : blocks_(static_cast<std::size_t>(blocks)) {
  names_.reserve(blocks_.size());  // as many as there can be: iterators stay valid
  free_.reserve(blocks_.size());
  for (std::int64_t id = blocks - 1; id >= 0; --id) free_.push_back(static_cast<std::int32_t>(id));
  for (Block& block : blocks_) block.key = names_.end();
}

std::size_t KvAllocator::KeyHash::operator()(const Key& key) const {
  // FNV-1a over whole words; the map compares what is equal by it.
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

std::int32_t KvAllocator::take() {
  assert(available() > 0);
  std::int32_t id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    id = unused_.front();
    unused_.pop_front();
    names_.erase(of(id).key);
    of(id).key = names_.end();
  }
  of(id).holders = 1;
  return id;
}

void KvAllocator::share(std::span<const std::int32_t> blocks) {
  for (const std::int32_t id : blocks) {
    Block& block = of(id);
    assert(block.key != names_.end());
    if (block.holders++ == 0) unused_.erase(block.unused_at);
  }
}

void KvAllocator::give_back(std::span<const std::int32_t> blocks) {
  // The last first: it is of no use without those before it.
  for (auto id = blocks.rbegin(); id != blocks.rend(); ++id) {
    Block& block = of(*id);
    assert(block.holders > 0);
    if (--block.holders > 0) continue;
    if (block.key == names_.end()) {
      free_.push_back(*id);
    } else {
      block.unused_at = unused_.insert(unused_.end(), *id);
    }
  }
}

KvAllocator::Name KvAllocator::name(std::int32_t block, Name before, std::span<const std::int32_t> tokens) {
  assert(tokens.size() == static_cast<std::size_t>(kKvBlockTokens) && of(block).holders > 0 && of(block).key == names_.end());
  const auto [at, is_new] = names_.try_emplace(key_of(before, tokens), Named{last_name_ + 1, block});
  if (is_new) {
    ++last_name_;
    of(block).key = at;
  }
  return at->second.name;
}

void KvAllocator::unname(std::span<const std::int32_t> blocks) {
  for (const std::int32_t id : blocks) {
    Block& block = of(id);
    assert(block.holders > 0);
    if (block.key == names_.end()) continue;
    names_.erase(block.key);
    block.key = names_.end();
  }
}

KvAllocator::Prefix KvAllocator::find(std::span<const std::int32_t> tokens) const {
  Prefix prefix;
  for (; tokens.size() >= static_cast<std::size_t>(kKvBlockTokens); tokens = tokens.subspan(kKvBlockTokens)) {
    const auto found = names_.find(key_of(prefix.name, tokens.first(kKvBlockTokens)));
    if (found == names_.end()) break;
    prefix.name = found->second.name;
    prefix.blocks.push_back(found->second.block);
  }
  return prefix;
}

}  // namespace windlass::worker
