// DeviceWeights: a model's weights, or some blocks' and one rank's of them, in a device's memory.
#pragma once

#include <functional>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace windlass::worker::cuda {

// (out, in), of the precision; with scales (out) codes of eight bits.
struct DeviceMatrix {
  OnDevice numbers, scales;
};

// The shift is LayerNorm's.
struct DeviceNorm {
  OnDevice weight, shift;
};

struct DeviceLayer {
  DeviceNorm attention_norm, mlp_norm;
  OnDevice qkv_bias, q_norm, k_norm, out_bias, mlp_in_bias, mlp_out_bias;
  OnDevice router;  // of a layer with experts, whose matrices stand one after the other in:
  DeviceMatrix qkv, attention_out, mlp_in, mlp_out;
};

struct DeviceWeights {
  OnDevice embedding, positions, project_in, project_out, lm_head;
  DeviceNorm final_norm;
  std::vector<DeviceLayer> layers;

  [[nodiscard]] const void* output_matrix() const { return lm_head.get() != nullptr ? lm_head.get() : embedding.get(); }
};

// How a source gives the layers' matrices for a device that is to hold them as `weights`: what it holds in BF16 in BF16 too,
// so that a checkpoint in it is not converted on its way; the numbers on the device are the same.
[[nodiscard]] constexpr WeightFormat source_format(WeightFormat weights, Precision precision) {
  return weights == WeightFormat::kFp32 && precision == Precision::kBf16 ? WeightFormat::kBf16 : weights;
}

// Gives the weights of some blocks, as load_weights() does: FP32 is right for every device, BF16 for one of that precision.
// Called for one block after the other, so that the host's memory holds one at a time.
using WeightSource = std::function<Result<ModelWeights>(BlockRange)>;

// Brings the blocks' weights to the device; with those of the model's ends what stands there. Errors: the source's, the
// device's and kResourceExhausted when they do not fit into its memory. REQUIRES: the device outlives them.
[[nodiscard]] Result<DeviceWeights> upload_weights(Device& device, const ModelConfig& config, BlockRange blocks,
                                                   const WeightSource& source);

[[nodiscard]] Result<OnDevice> upload_floats(Device& device, const std::vector<float>& values);

}  // namespace windlass::worker::cuda
