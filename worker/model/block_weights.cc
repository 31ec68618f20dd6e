// Moves layers between ranges; never copies them.
#include "worker/model/block_weights.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include <malloc.h>

namespace windlass::worker {

void BlockWeights::keep(BlockRange blocks) {
  assert(weights_.use_count() == 1);
  ModelWeights& have = *weights_;
  BlockRange common{std::max(blocks.first, blocks_.first), std::min(blocks.end, blocks_.end)};
  if (common.size() <= 0) common = {};
  const auto first = have.layers.begin() + (common.size() == 0 ? 0 : common.first - blocks_.first);
  std::vector<LayerWeights> layers(std::make_move_iterator(first), std::make_move_iterator(first + common.size()));
  have.layers = std::move(layers);
  blocks_ = common;
  const WeightEnds ends = ends_of(config_, blocks);
  const auto drop = [](auto& numbers) { numbers = {}; };
  if (!ends.embedding) drop(have.embedding);
  if (!ends.positions) drop(have.positions);
  if (!ends.project_in) drop(have.project_in);
  if (!ends.project_out) drop(have.project_out);
  if (!ends.final_norm) have.final_norm = NormWeights();
  if (!ends.lm_head) drop(have.lm_head);
  ::malloc_trim(0);  // return memory to the system before anything new is loaded
}

Result<ModelWeights> BlockWeights::read(const TensorStore& store, BlockRange blocks, LoadProgress* progress) const {
  return load_missing_weights(config_, store, blocks, *weights_, blocks_, slice_, format_, progress);
}

Result<WeightSizes> BlockWeights::missing(const TensorStore& store, BlockRange blocks) const {
  return check_missing_weights(config_, store, blocks, *weights_, blocks_, slice_);
}

void BlockWeights::add(ModelWeights missing, BlockRange blocks) {
  assert(weights_.use_count() == 1);
  assert(static_cast<std::int64_t>(missing.layers.size()) + blocks_.size() == blocks.size());
  ModelWeights& have = *weights_;
  std::vector<LayerWeights> layers;
  layers.reserve(static_cast<std::size_t>(blocks.size()));
  auto kept = have.layers.begin();
  auto read = missing.layers.begin();
  for (std::int64_t i = blocks.first; i < blocks.end; ++i) {
    const bool is_here = i >= blocks_.first && i < blocks_.end;
    layers.push_back(std::move(is_here ? *kept++ : *read++));
  }
  have.layers = std::move(layers);
  blocks_ = blocks;
  const auto take = [](auto& to, auto& from) {
    if (!from.empty()) to = std::move(from);
  };
  take(have.embedding, missing.embedding);
  take(have.positions, missing.positions);
  take(have.project_in, missing.project_in);
  take(have.project_out, missing.project_out);
  take(have.lm_head, missing.lm_head);
  if (!missing.final_norm.weight.empty()) have.final_norm = std::move(missing.final_norm);
}

}  // namespace windlass::worker
