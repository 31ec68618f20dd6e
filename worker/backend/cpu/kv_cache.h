// KvCache: a view of the paged keys and values of some layers, in the tile layout described in ops.h.
//
// Does not own the memory, which belongs to a backend, or to the group if several ranks share a model. Threads as for
// Backend::read_kv() and write_kv().
#pragma once

#include <cstdint>
#include <span>

#include "worker/backend/backend.h"
#include "worker/model/config.h"

namespace windlass::worker::cpu {

class KvCache {
 public:
  // Number of floats for `layers` layers of `kv_blocks` blocks.
  [[nodiscard]] static std::int64_t size(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks);

  // `config`: with the heads of this cache. REQUIRES: `memory` has size() floats and outlives this.
  KvCache(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks, std::span<float> memory);

  // A layer's keys or values, for all blocks.
  [[nodiscard]] float* keys(std::int64_t layer) const { return memory_ + layer * layer_size_; }
  [[nodiscard]] float* values(std::int64_t layer) const { return keys(layer) + layers_ * layer_size_; }

  // Copy a range out or in. The keys of position t (heads of this cache) are at keys + t * stride, its values at values + t *
  // stride.
  void read(const KvRange& range, std::span<const std::int32_t> blocks, float* keys, float* values, std::int64_t stride) const;
  void write(const KvRange& range, std::span<const std::int32_t> blocks, const float* keys, const float* values,
             std::int64_t stride) const;

 private:
  ModelConfig config_;
  std::int64_t layers_;
  std::int64_t layer_size_;
  float* memory_;
};

}  // namespace windlass::worker::cpu
