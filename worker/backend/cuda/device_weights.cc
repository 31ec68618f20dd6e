// Uploads matrices to the device, piece by piece.
#include "worker/backend/cuda/device_weights.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>

#include "worker/model/ggml_blocks.h"

namespace windlass::worker::cuda {
namespace {

constexpr std::int64_t kStagingElements = 4LL << 20U;

// Uploads the host's floats, as the precision's storage type or unchanged, piece by piece through pinned memory.
class Uploader {
 public:
  explicit Uploader(Device& device) : device_(device) {}

  // Nothing for an empty vector.
  [[nodiscard]] Result<OnDevice> matrix(const std::vector<float>& values) {
    OnDevice memory;
    WINDLASS_RETURN_IF_ERROR(put_numbers(values, 0, 1, memory));
    return memory;
  }
  [[nodiscard]] Result<OnDevice> floats(const std::vector<float>& values) {
    OnDevice memory;
    WINDLASS_RETURN_IF_ERROR(put_as_they_are(values, 0, 1, memory));
    return memory;
  }
  [[nodiscard]] Result<DeviceNorm> norm(const NormWeights& from) {
    DeviceNorm to;
    WINDLASS_ASSIGN_OR_RETURN(to.weight, floats(from.weight));
    WINDLASS_ASSIGN_OR_RETURN(to.shift, floats(from.bias));
    return to;
  }
  [[nodiscard]] Result<DeviceMatrix> matrix(const WeightMatrix& from) {
    DeviceMatrix to;
    WINDLASS_RETURN_IF_ERROR(put(from, 0, 1, to));
    return to;
  }
  // Concatenates equally shaped matrices, `of(expert)`, into one.
  template <typename Of>
  [[nodiscard]] Result<DeviceMatrix> matrices(const std::vector<MlpWeights>& experts, const Of& of) {
    DeviceMatrix to;
    const auto count = static_cast<std::int64_t>(experts.size());
    for (std::int64_t i = 0; i < count; ++i)
      WINDLASS_RETURN_IF_ERROR(put(of(experts[static_cast<std::size_t>(i)]), i, count, to));
    return to;
  }

 private:
  // Uploads the `index`-th of `of` concatenated matrices.
  Result<void> put(const WeightMatrix& from, std::int64_t index, std::int64_t of, DeviceMatrix& to) {
    if (from.format == WeightFormat::kFp32) return put_numbers(from.values, index, of, to.numbers);
    if (from.format == WeightFormat::kBf16) {
      assert(device_.precision() == Precision::kBf16);
      return put_as_they_are(from.halves, index, of, to.numbers);
    }
    WINDLASS_RETURN_IF_ERROR(put_as_they_are(from.codes, index, of, to.numbers));
    return put_as_they_are(from.scales, index, of, to.scales);
  }
  Result<void> put_numbers(const std::vector<float>& values, std::int64_t index, std::int64_t of, OnDevice& to) {
    if (device_.precision() == Precision::kFp32) return put_as_they_are(values, index, of, to);
    return put<std::uint16_t>(values, index, of, to, [](const float* from, std::int64_t count, std::uint16_t* bits) {
      for (std::int64_t i = 0; i < count; ++i) bits[i] = bf16_from_float(from[i]);
    });
  }
  template <typename T>
  Result<void> put_as_they_are(const std::vector<T>& values, std::int64_t index, std::int64_t of, OnDevice& to) {
    return put<T>(values, index, of, to, [](const T* from, std::int64_t count, T* copy) { std::copy_n(from, count, copy); });
  }
  // The first call allocates memory for all.
  template <typename T, typename From, typename Convert>
  Result<void> put(const std::vector<From>& values, std::int64_t index, std::int64_t of, OnDevice& to, const Convert& convert) {
    if (values.empty()) return {};
    const auto count = static_cast<std::int64_t>(values.size());
    if (staging_.get() == nullptr) {
      WINDLASS_ASSIGN_OR_RETURN(staging_, Pinned::make(device_, kStagingElements * static_cast<std::int64_t>(sizeof(float))));
    }
    if (index == 0) {
      WINDLASS_ASSIGN_OR_RETURN(to, OnDevice::make(device_, of * count * static_cast<std::int64_t>(sizeof(T))));
    }
    T* const memory = to.as<T>() + index * count;
    for (std::int64_t at = 0; at < count; at += kStagingElements) {
      const std::int64_t piece = std::min(kStagingElements, count - at);
      convert(values.data() + at, piece, staging_.as<T>());
      device_.upload(kStream, memory + at, staging_.get(), piece * static_cast<std::int64_t>(sizeof(T)));
      WINDLASS_RETURN_IF_ERROR(device_.wait(kStream));  // before the staging memory is reused
    }
    return {};
  }

  static constexpr auto kStream = Device::Stream::kCompute;
  Device& device_;
  Pinned staging_;
};

}  // namespace

Result<DeviceWeights> upload_weights(Device& device, const ModelConfig& config, BlockRange blocks, const WeightSource& source) {
  Uploader uploader(device);
  DeviceWeights weights;
  for (std::int64_t block = blocks.first; block < blocks.end; ++block) {
    WINDLASS_ASSIGN_OR_RETURN(const ModelWeights host, source({block, block + 1}));
    const LayerWeights& from = host.layers.front();
    DeviceLayer layer;
    WINDLASS_ASSIGN_OR_RETURN(layer.attention_norm, uploader.norm(from.attention_norm));
    WINDLASS_ASSIGN_OR_RETURN(layer.qkv, uploader.matrix(from.qkv));
    WINDLASS_ASSIGN_OR_RETURN(layer.qkv_bias, uploader.floats(from.qkv_bias));
    WINDLASS_ASSIGN_OR_RETURN(layer.q_norm, uploader.floats(from.q_norm));
    WINDLASS_ASSIGN_OR_RETURN(layer.k_norm, uploader.floats(from.k_norm));
    WINDLASS_ASSIGN_OR_RETURN(layer.attention_out, uploader.matrix(from.attention_out));
    WINDLASS_ASSIGN_OR_RETURN(layer.out_bias, uploader.floats(from.out_bias));
    WINDLASS_ASSIGN_OR_RETURN(layer.mlp_norm, uploader.norm(from.mlp_norm));
    if (from.experts.empty()) {
      WINDLASS_ASSIGN_OR_RETURN(layer.mlp_in, uploader.matrix(from.mlp.in));
      WINDLASS_ASSIGN_OR_RETURN(layer.mlp_out, uploader.matrix(from.mlp.out));
    } else {
      const auto in_of = [](const MlpWeights& expert) -> const WeightMatrix& { return expert.in; };
      const auto out_of = [](const MlpWeights& expert) -> const WeightMatrix& { return expert.out; };
      WINDLASS_ASSIGN_OR_RETURN(layer.router, uploader.floats(from.router));
      WINDLASS_ASSIGN_OR_RETURN(layer.mlp_in, uploader.matrices(from.experts, in_of));
      WINDLASS_ASSIGN_OR_RETURN(layer.mlp_out, uploader.matrices(from.experts, out_of));
    }
    WINDLASS_ASSIGN_OR_RETURN(layer.mlp_in_bias, uploader.floats(from.mlp.in_bias));
    WINDLASS_ASSIGN_OR_RETURN(layer.mlp_out_bias, uploader.floats(from.mlp.out_bias));
    weights.layers.push_back(std::move(layer));
    if (block == 0) {
      WINDLASS_ASSIGN_OR_RETURN(weights.positions, uploader.floats(host.positions));
      WINDLASS_ASSIGN_OR_RETURN(weights.project_in, uploader.matrix(host.project_in));
    }
    // With tied matrices, the source returns the embedding with the last block too; keep only one.
    if (weights.embedding.get() == nullptr) {
      WINDLASS_ASSIGN_OR_RETURN(weights.embedding, uploader.matrix(host.embedding.values));
    }
    if (block + 1 == config.layers) {
      WINDLASS_ASSIGN_OR_RETURN(weights.final_norm, uploader.norm(host.final_norm));
      WINDLASS_ASSIGN_OR_RETURN(weights.project_out, uploader.matrix(host.project_out));
      WINDLASS_ASSIGN_OR_RETURN(weights.lm_head, uploader.matrix(host.lm_head.values));
    }
  }
  return weights;
}

Result<OnDevice> upload_floats(Device& device, const std::vector<float>& values) { return Uploader(device).floats(values); }

}  // namespace windlass::worker::cuda
