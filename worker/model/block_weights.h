// BlockWeights: the weights of some of a model's blocks, which may become those of others: what both ranges have stays where it
// is in memory and is not read again; only what is missing is read from the checkpoint.
//
// A change is keep(), read() and add(), in this order; or, where nothing is to be dropped, read() before the others, while
// backends go on. So what is dropped is gone before anything new is in memory. Between these calls there may be fewer layers
// than either range has, never wrong ones. One thread at a time.
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
  // Of no blocks.
  BlockWeights(ModelConfig config, TensorSlice slice, WeightFormat format)
      : config_(std::move(config)), slice_(slice), format_(format) {}

  // Those whose layers are here.
  [[nodiscard]] BlockRange blocks() const { return blocks_; }
  // For backends.
  [[nodiscard]] std::shared_ptr<const ModelWeights> weights() const { return weights_; }

  // Drops what weights of `blocks` do not have. REQUIRES: no backend has the weights.
  void keep(BlockRange blocks);
  // What weights of `blocks` have and these lack. Error: as load_weights().
  [[nodiscard]] Result<ModelWeights> read(const TensorStore& store, BlockRange blocks, LoadProgress* progress = nullptr) const;
  // How much that is; no number is read. Error: as check_weights().
  [[nodiscard]] Result<WeightSizes> missing(const TensorStore& store, BlockRange blocks) const;
  // Takes in what was read for `blocks`. REQUIRES: no backend has the weights; keep(blocks) came before.
  void add(ModelWeights missing, BlockRange blocks);

 private:
  const ModelConfig config_;
  const TensorSlice slice_;
  const WeightFormat format_;
  const std::shared_ptr<ModelWeights> weights_ = std::make_shared<ModelWeights>();
  BlockRange blocks_;
};

}  // namespace windlass::worker
