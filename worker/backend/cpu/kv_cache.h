// KvCache: a view of the paged keys and values of some layers, laid out in the tiles that ops.h describes.
//
// It owns nothing: a backend's cache is memory of its own, or of the group where several ranks have a model together. Any
// thread, as Backend::read_kv and write_kv say.
#pragma once

#include <cstdint>
#include <span>

#include "worker/backend/backend.h"
#include "worker/model/config.h"

namespace windlass::worker::cpu {

class KvCache {
 public:
  // Floats that `layers` layers of `kv_blocks` blocks take.
  [[nodiscard]] static std::int64_t size(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks);

  // `config`: heads as they are in this cache. REQUIRES: memory has size() floats and outlives this.
  KvCache(const ModelConfig& config, std::int64_t layers, std::int64_t kv_blocks, std::span<float> memory);

  // Of a layer, for all blocks.
  [[nodiscard]] float* keys(std::int64_t layer) const { return memory_ + layer * layer_size_; }
  [[nodiscard]] float* values(std::int64_t layer) const { return keys(layer) + layers_ * layer_size_; }

  // Copy a range out or in. Position t's keys of the heads here stand at keys + t * stride, its values at values + t * stride.
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
