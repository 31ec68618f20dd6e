// Weights on a device: the same bits whether the host read them as FP32 or BF16.
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker/cuda_models.h"
#include "tests/unit/worker/model_files.h"
#include "worker/backend/cuda/device_weights.h"
#include "worker/backend/cuda/emulation/emulated_device.h"
#include "worker/model/model_init.h"
#include "worker/model/tensor_store.h"

namespace windlass::worker {
namespace {

using cuda::DeviceLayer;
using cuda::DeviceMatrix;
using cuda::DeviceWeights;
using cuda::OnDevice;
using cuda::Precision;
using cuda::WeightSource;

// An emulated device's memory is the host's.
std::string bytes_on(const OnDevice& memory) {
  return memory.get() == nullptr ? std::string() : std::string(memory.as<char>(), static_cast<std::size_t>(memory.bytes()));
}

// All layers and other weights, in a fixed order.
std::vector<std::string> bytes_of_weights(const DeviceWeights& weights) {
  std::vector<std::string> all;
  for (const OnDevice* memory : {&weights.embedding, &weights.positions, &weights.lm_head, &weights.final_norm.weight}) {
    all.push_back(bytes_on(*memory));
  }
  for (const DeviceLayer& layer : weights.layers) {
    for (const DeviceMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.mlp_in, &layer.mlp_out}) {
      all.push_back(bytes_on(matrix->numbers));
      all.push_back(bytes_on(matrix->scales));
    }
    for (const OnDevice* memory : {&layer.attention_norm.weight, &layer.mlp_norm.weight, &layer.qkv_bias, &layer.router}) {
      all.push_back(bytes_on(*memory));
    }
  }
  return all;
}

std::vector<std::string> uploaded(Precision precision, const ModelConfig& config, const WeightSource& source) {
  cuda::emulation::DeviceOptions options;
  options.precision = precision;
  const auto device = cuda::emulation::make_emulated_device(options);
  const auto weights = cuda::upload_weights(*device, config, config.all_blocks(), source);
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  return weights.ok() ? bytes_of_weights(*weights) : std::vector<std::string>();
}

// Given random models with matrices that are not exact in BF16, read as FP32 and as BF16; expects the same bits on a BF16
// device, for experts' matrices too.
TEST(CudaWeights, AreRoundedAlikeByHostAndDevice) {
  Rng rng(61, "cuda weights");
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const ModelConfig config = testing::random_config(rng);
    const ModelWeights plain = testing::random_weights(config, seed);
    const ModelWeights halves = testing::random_weights(config, seed, WeightFormat::kBf16);
    const auto expected = uploaded(Precision::kBf16, config, testing::source_of(config, plain));
    ASSERT_GT(expected.size(), 12U);
    EXPECT_FALSE(expected[4].empty()) << "the first layer's qkv";
    EXPECT_EQ(uploaded(Precision::kBf16, config, testing::source_of(config, halves)), expected) << "model " << seed;
  }
}

// Given BF16 checkpoints of every architecture, whole and split among two ranks, read in the format that the device asks for;
// expects the same bits on the device as with FP32. FP32 and 8-bit devices get the same formats as before.
TEST(CudaWeights, OfACheckpointAreItsBits) {
  for (const Architecture architecture : testing::kEveryArchitecture) {
    SCOPED_TRACE(to_string(architecture));
    const testing::TemporaryFolder folder;
    ASSERT_TRUE(init_model(testing::tiny_shape(architecture), folder.path()).ok());
    const auto config = load_model_config(folder.path().string());
    const auto store = TensorStore::open(folder.path().string());
    ASSERT_TRUE(config.ok() && store.ok());
    for (const TensorSlice slice : {TensorSlice{}, TensorSlice{1, 2}}) {
      const auto as = [&](WeightFormat format) {
        return [&, format](BlockRange blocks) { return load_weights(*config, *store, blocks, slice, format); };
      };
      const WeightFormat format = cuda::source_format(WeightFormat::kFp32, Precision::kBf16);
      EXPECT_FALSE(load_weights(*config, *store, {0, 1}, slice, format)->layers[0].qkv.halves.empty());
      EXPECT_EQ(uploaded(Precision::kBf16, *config, as(format)), uploaded(Precision::kBf16, *config, as(WeightFormat::kFp32)));
    }
  }
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    EXPECT_EQ(cuda::source_format(WeightFormat::kInt8, precision), WeightFormat::kInt8);
    EXPECT_EQ(cuda::source_format(WeightFormat::kFp8, precision), WeightFormat::kFp8);
  }
  EXPECT_EQ(cuda::source_format(WeightFormat::kFp32, Precision::kFp32), WeightFormat::kFp32);
}

}  // namespace
}  // namespace windlass::worker
