// Tests KV transfers against a link simulated layer by layer and Splitwise's measurements, and weights against their bytes.
#include "planner/perf/transfer_times.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/model_shape.h"

namespace windlass::planner {
namespace {

// When the last layer's cache arrives, from the end of the prefill: each layer's cache is sent when it is computed and the link
// is free.
double layer_by_layer_s(const KvTransferPath& path, double bytes, double prefill_s) {
  double link_free_s = 0;
  for (int layer = 1; layer <= path.layers; ++layer) {
    const double computed_s = prefill_s * layer / path.layers;
    link_free_s = std::max(link_free_s, computed_s) + bytes / path.layers / path.bandwidth_bytes_per_s;
  }
  return link_free_s - prefill_s + path.latency_s + path.layer_wise_s;
}

// Given 5,000 random links, prompts and prefill times: the closed form equals the simulation layer by layer, unless serialised
// transfer is faster, and is never slower than that.
TEST(TransferTimes, LayerWiseIsTheSimulationOfItsLayers) {
  Rng rng(1, "layers");
  int layer_wise = 0;
  for (int instance = 0; instance < 5000; ++instance) {
    KvTransferPath path{rng.uniform(1e9, 1e12), rng.uniform(0, 1e-3), static_cast<int>(rng.integer(1, 126)),
                        rng.uniform(0, 1) < 0.5 ? 0 : rng.uniform(0, 1e-2)};
    const double tokens = static_cast<double>(rng.integer(1, 8192)), kv_bytes = rng.uniform(1e4, 5e6);
    const double prefill_s = rng.uniform(0, 1);
    const double expected_s = layer_by_layer_s(path, tokens * kv_bytes, prefill_s);
    const double serialised_s = kv_transfer_s(path, tokens, kv_bytes);
    const double found_s = kv_transfer_after_prefill_s(path, tokens, kv_bytes, prefill_s);
    EXPECT_NEAR(found_s, std::min(expected_s, serialised_s), 1e-9 * (1 + serialised_s)) << instance;
    if (expected_s < serialised_s) ++layer_wise;
  }
  EXPECT_GT(layer_wise, 1000);
  EXPECT_LT(layer_wise, 4900);
}

// Given a path without layers, or a receiver that had no room before: the whole cache moves after the prefill.
TEST(TransferTimes, SerialisedWaitsForAll) {
  KvTransferPath path{25e9, 1e-3, 0, 0};
  EXPECT_DOUBLE_EQ(kv_transfer_s(path, 1000, 1e6), 1e-3 + 1e9 / 25e9);
  EXPECT_DOUBLE_EQ(kv_transfer_after_prefill_s(path, 1000, 1e6, 10), 1e-3 + 1e9 / 25e9);
  path.layers = 80;
  EXPECT_DOUBLE_EQ(kv_transfer_after_prefill_s(path, 1000, 1e6, 0), 1e-3 + 1e9 / 25e9);
  path.bandwidth_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(kv_transfer_after_prefill_s(path, 1000, 1e6, 10), 1e-3);
}

// Given Splitwise's H100 setup (Llama2-70B, 400 Gbit/s, 5 ms of synchronisation): the wait is constant for long prompts, within
// a millisecond of the measured 5 ms, and prompts switch to layer-wise transfer at a few hundred tokens.
TEST(TransferTimes, SplitwiseFigure14) {
  const double kv_bytes = kv_bytes_per_token(*model_shape_by_name("llama2-70b"));
  const KvTransferPath path{50e9, 0, 80, 5e-3};
  const auto prefill_s = [](double tokens) { return 0.025 + 5.2e-5 * tokens; };  // roughly its profile at TP 8
  for (const double tokens : {1024.0, 1536.0, 2048.0}) {
    EXPECT_NEAR(kv_transfer_after_prefill_s(path, tokens, kv_bytes, prefill_s(tokens)), 5e-3, 1e-3);
  }
  EXPECT_LT(kv_transfer_after_prefill_s(path, 256, kv_bytes, prefill_s(256)), 3e-3);
  EXPECT_EQ(kv_transfer_after_prefill_s(path, 512, kv_bytes, prefill_s(512)), kv_transfer_s(path, 512, kv_bytes));
}

// Given transfers that send FP32 values for a BF16 cache: half the bandwidth in bytes of the cache, so that a prompt takes as
// long as measured. If the bytes per token are unknown, they are the cache's.
TEST(TransferTimes, ConvertsMeasurementsToBytesOfTheCache) {
  const MeasuredTransfer measured{2e9, 3e-3, 1000, 9};
  const KvTransferPath path = path_of(measured, 500);
  EXPECT_EQ(path, (KvTransferPath{1e9, 3e-3, 0, 0}));
  EXPECT_DOUBLE_EQ(kv_transfer_s(path, 4000, 500), 3e-3 + 4000 * 1000 / 2e9);
  EXPECT_EQ(path_of({2e9, 3e-3, 0, 9}, 500).bandwidth_bytes_per_s, 2e9);
}

// Given two paths: the lower bandwidth, where 0 is unlimited, and the higher latency; layers stay those of the first.
TEST(TransferTimes, TheSlowerOfTwoPaths) {
  EXPECT_EQ(slower_of({1e9, 1e-3, 4, 2e-3}, {2e9, 3e-3, 0, 0}), (KvTransferPath{1e9, 3e-3, 4, 2e-3}));
  EXPECT_EQ(slower_of({2e9, 3e-3, 0, 0}, {1e9, 1e-3, 4, 2e-3}), (KvTransferPath{1e9, 3e-3, 0, 0}));
  EXPECT_EQ(slower_of({0, 0, 0, 0}, {5e9, 0, 0, 0}).bandwidth_bytes_per_s, 5e9);
  EXPECT_EQ(slower_of({5e9, 0, 0, 0}, {0, 0, 0, 0}).bandwidth_bytes_per_s, 5e9);
}

// Given 140 GB over four GPUs: a disk is shared by all, PCIe is not; the slower one decides, and the engine start is added.
TEST(TransferTimes, WeightsLoadAtTheSlowestStage) {
  EXPECT_DOUBLE_EQ(load_s({2e9, 25e9, 20}, 35e9, 4), 20 + 70);
  EXPECT_DOUBLE_EQ(load_s({1e12, 25e9, 20}, 35e9, 4), 20 + 1.4);
  EXPECT_DOUBLE_EQ(load_s({0, 0, 20}, 35e9, 4), 20);
}

}  // namespace
}  // namespace windlass::planner
