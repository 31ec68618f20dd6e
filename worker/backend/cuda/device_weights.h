// DeviceWeights: the weights of a model, or of some blocks and one rank, in a device's memory.
#pragma once

#include <functional>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace windlass::worker::cuda {

// (out, in), in the precision's type; with scales (out), 8-bit codes.
struct DeviceMatrix {
  OnDevice numbers, scales;
};

// `shift` is only for LayerNorm.
struct DeviceNorm {
  OnDevice weight, shift;
};

struct DeviceLayer {
  DeviceNorm attention_norm, mlp_norm;
  OnDevice qkv_bias, q_norm, k_norm, out_bias, mlp_in_bias, mlp_out_bias;
  OnDevice router;  // of a layer with experts, whose matrices are concatenated in:
  DeviceMatrix qkv, attention_out, mlp_in, mlp_out;
};

struct DeviceWeights {
  OnDevice embedding, positions, project_in, project_out, lm_head;
  DeviceNorm final_norm;
  std::vector<DeviceLayer> layers;

  [[nodiscard]] const void* output_matrix() const { return lm_head.get() != nullptr ? lm_head.get() : embedding.get(); }
};

// The format in which a source should provide layer matrices that the device stores as `weights`. BF16 for a BF16 device, so
// that a BF16 checkpoint is not converted on the way; the device gets the same numbers.
[[nodiscard]] constexpr WeightFormat source_format(WeightFormat weights, Precision precision) {
  return weights == WeightFormat::kFp32 && precision == Precision::kBf16 ? WeightFormat::kBf16 : weights;
}

// Provides the weights of some blocks, like load_weights(): FP32 suits every device, BF16 one of that precision. Called for one
// block at a time, so that host memory holds only one.
using WeightSource = std::function<Result<ModelWeights>(BlockRange)>;

// Uploads the weights of `blocks`, and of the parts that belong to the first and last block. Errors: the source's and the
// device's; kResourceExhausted if they do not fit in its memory. REQUIRES: the device outlives the result.
[[nodiscard]] Result<DeviceWeights> upload_weights(Device& device, const ModelConfig& config, BlockRange blocks,
                                                   const WeightSource& source);

[[nodiscard]] Result<OnDevice> upload_floats(Device& device, const std::vector<float>& values);

}  // namespace windlass::worker::cuda
