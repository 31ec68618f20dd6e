// BlockWeights: the weights of a range of blocks, which can change to another range. Weights that both ranges have stay in
// place in memory; only the missing ones are read from the checkpoint.
//
// A change is keep(), read() and add(), in this order, so that dropped weights are freed before new ones are loaded. If nothing
// is dropped, read() may come first, while backends keep running. Between these calls there may be fewer layers than in either
// range, but never wrong ones. One thread at a time.
#pragma once

#include <memory>

#include "planner/base/result.h"
#include "worker/model/config.h"
#include "worker/model/tensor_slice.h"
#include "worker/model/tensor_store.h"
#include "worker/model/weights.h"

namespace windlass::worker {

class BlockWeights {
 public:
  // Starts with no blocks.
  BlockWeights(ModelConfig config, TensorSlice slice, WeightFormat format)
      : config_(std::move(config)), slice_(slice), format_(format) {}

  // The blocks whose layers are here.
  [[nodiscard]] BlockRange blocks() const { return blocks_; }
  // For backends.
  [[nodiscard]] std::shared_ptr<const ModelWeights> weights() const { return weights_; }

  // Drops weights that `blocks` do not need. REQUIRES: no backend uses the weights.
  void keep(BlockRange blocks);
  // Reads the weights that `blocks` need and that are not here. Error: as load_weights().
  [[nodiscard]] Result<ModelWeights> read(const TensorStore& store, BlockRange blocks, LoadProgress* progress = nullptr) const;
  // The size of those weights; reads no numbers. Error: as check_weights().
  [[nodiscard]] Result<WeightSizes> missing(const TensorStore& store, BlockRange blocks) const;
  // Adds what was read for `blocks`. REQUIRES: no backend uses the weights; keep(blocks) came before.
  void add(ModelWeights missing, BlockRange blocks);

 private:
  const ModelConfig config_;
  const TensorSlice slice_;
  const WeightFormat format_;
  const std::shared_ptr<ModelWeights> weights_ = std::make_shared<ModelWeights>();
  BlockRange blocks_;
};

}  // namespace windlass::worker
