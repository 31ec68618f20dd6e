// Memory layout: all layers' keys, then all layers' values.
#include "worker/backend/cpu/kv_cache.h"

#include <cassert>

#include "worker/backend/cpu/ops.h"

namespace windlass::worker::cpu {

std::int64_t KvCache::size(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks) {
  return 2 * layers * kv_blocks * kKvBlockTokens * config.kv_size();
}

KvCache::KvCache(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks, std::span<float> memory)
    : config_(config), layers_(layers), layer_size_(kv_blocks * kKvBlockTokens * config.kv_size()), memory_(memory.data()) {
  assert(static_cast<std::int64_t>(memory.size()) == size(config, layers, kv_blocks));
}

void KvCache::read(const KvRange& range, std::span<const std::int32_t> blocks, float* to_keys, float* to_values,
                   std::int64_t stride) const {
  for (std::int64_t position = range.start; position < range.start + range.tokens; ++position) {
    load_kv(config_, keys(range.layer), values(range.layer), blocks[static_cast<std::size_t>(position / kKvBlockTokens)],
            position % kKvBlockTokens, to_keys, to_values);
    to_keys += stride;
    to_values += stride;
  }
}

void KvCache::write(const KvRange& range, std::span<const std::int32_t> blocks, const float* from_keys,
                    const float* from_values, std::int64_t stride) const {
  for (std::int64_t position = range.start; position < range.start + range.tokens; ++position) {
    store_kv(config_, from_keys, from_values, blocks[static_cast<std::size_t>(position / kKvBlockTokens)],
             position % kKvBlockTokens, keys(range.layer), values(range.layer));
    from_keys += stride;
    from_values += stride;
  }
}

}  // namespace windlass::worker::cpu
