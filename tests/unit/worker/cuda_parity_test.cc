// Each CUDA operation against its CPU twin, with a tolerance of its own. Without a GPU, or in a build without CUDA, these skip
// and say why.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cuda/ops.h"

namespace windlass::worker {
namespace {

std::vector<float> random_floats(Rng& rng, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.uniform(-1, 1));
  return values;
}

// Given random matrices of uneven sizes, cuBLAS and OpenBLAS agree to 1e-4 of sums of up to 700 products below 1.
TEST(CudaParity, Matmul) {
  if (const auto usable = cuda::usable(); !usable.ok()) GTEST_SKIP() << "no CUDA: " << usable.error().message;
  Rng rng(21, "cuda matmul");
  for (const auto& [tokens, in, out] : {std::tuple{1, 64, 96}, std::tuple{7, 33, 129}, std::tuple{64, 688, 256}}) {
    const auto x = random_floats(rng, tokens * in);
    const auto w = random_floats(rng, out * in);
    std::vector<float> expected(static_cast<std::size_t>(tokens * out));
    std::vector<float> found(expected.size());
    cpu::matmul(x.data(), w.data(), expected.data(), tokens, in, out);
    const auto status = cuda::matmul(x.data(), w.data(), found.data(), tokens, in, out);
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4);
  }
}

// Given random rows of widths around and above a block's threads, our kernel and the CPU loop agree to 1e-5.
TEST(CudaParity, RmsNorm) {
  if (const auto usable = cuda::usable(); !usable.ok()) GTEST_SKIP() << "no CUDA: " << usable.error().message;
  Rng rng(22, "cuda rms_norm");
  for (const auto& [tokens, hidden] : {std::pair{1, 8}, std::pair{3, 255}, std::pair{16, 256}, std::pair{5, 4099}}) {
    const auto x = random_floats(rng, tokens * hidden);
    const auto weight = random_floats(rng, hidden);
    std::vector<float> expected(x.size());
    std::vector<float> found(x.size());
    cpu::rms_norm(x.data(), weight.data(), expected.data(), tokens, hidden, 1e-5F);
    const auto status = cuda::rms_norm(x.data(), weight.data(), found.data(), tokens, hidden, 1e-5F);
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5);
  }
}

// Given any build, describe() says what CUDA there is, and a build without CUDA refuses its operations with that reason.
TEST(CudaParity, DescribesItself) {
  EXPECT_FALSE(cuda::describe().empty());
  if (!cuda::compiled()) {
    float value = 1;
    const auto status = cuda::rms_norm(&value, &value, &value, 1, 1, 1e-5F);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  }
}

}  // namespace
}  // namespace windlass::worker
