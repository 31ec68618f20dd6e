// Measurements that known formulas made, and profiles fitted on them, for the tests of PerformanceProfiles.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/profile_table.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::planner {

inline const ProfileKey kKey{"tiny", "h100-80gb", 2};

// Runs of kKey over a grid of prompt and batch sizes, each `runs` times: prompt (a + b tokens), token (c + d context + e
// batch), each within `noise` of that. End-to-end times agree.
inline std::vector<ProfileRow> made_rows(std::uint64_t seed, double noise, int runs = 3) {
  Rng rng(seed, "profile rows");
  std::vector<ProfileRow> rows;
  const auto scattered = [&](double s) { return s * (1 + noise * (2 * rng.uniform() - 1)); };
  for (const double prompt : {128.0, 512.0, 1024.0, 4096.0}) {
    for (const double batch : {1.0, 2.0, 8.0, 32.0}) {
      for (int run = 0; run < runs; ++run) {
        ProfileRow row{kKey.model, kKey.hardware, kKey.tensor_parallel, prompt, batch, 64, 0, 0, 0};
        row.prompt_s = scattered(0.01 + 5e-5 * prompt * batch);
        row.token_s = scattered(0.02 + 1e-7 * batch * (prompt + 32) + 1e-4 * batch);
        row.end_to_end_s = row.prompt_s + 63 * row.token_s;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

inline ModelShape test_shape() { return model_shape_by_name("llama3-8b").value(); }
inline AcceleratorSpec test_accelerator() { return accelerator_by_name("h100-80gb").value(); }

// Tables over a grid, from the roofline times a factor that depends smoothly on the sizes.
inline OperatorTables made_tables(const ModelShape& shape, const AcceleratorSpec& spec) {
  const OperatorHardware hardware = operator_hardware(spec);
  const AcceleratorEfficiency efficiency = efficiency_of(spec.name, true).efficiency;
  OperatorTables tables;
  const auto wave = [](double a, double b) { return 1.2 + 0.2 * std::sin(std::log(a)) * std::cos(std::log(b)); };
  for (double m = 1; m <= 8192; m *= 4) {
    for (double n = 256; n <= 65536; n *= 2) {
      for (double k = 256; k <= 65536; k *= 2) {
        tables.gemm.push_back(
            {GemmKind::kBFloat16, m, n, k, gemm_roofline_s(hardware, efficiency, GemmKind::kBFloat16, m, n, k) * wave(n, k)});
      }
    }
  }
  const AttentionKey key{shape.head_dim, false, 0};
  for (double batch = 1; batch <= 64; batch *= 4) {
    for (double length = 16; length <= 16384; length *= 4) {
      for (const double heads : {8.0, 16.0, 32.0}) {
        for (const double kv_heads : {1.0, 2.0, 4.0, 8.0}) {
          const double context = context_attention_roofline_s(hardware, efficiency, key, batch, length, heads, kv_heads);
          const double generation = generation_attention_roofline_s(hardware, efficiency, key, batch, length, heads, kv_heads);
          tables.context_attention.push_back({key, batch, length, heads, kv_heads, context * wave(batch, length)});
          tables.generation_attention.push_back({key, batch, length, heads, kv_heads, generation * wave(batch, length)});
        }
      }
    }
  }
  for (const int gpus : {2, 4}) {
    for (double bytes = 1024; bytes <= 1e8; bytes *= 4) {
      tables.collectives.push_back({"all_reduce", "nccl", gpus, 2, bytes, 1e-5 + bytes / 2e11});
    }
  }
  return tables;
}

// The whole object as text.
inline std::string object_text(const PerformanceProfile& profile) {
  return nlohmann::json{{"apiVersion", "windlass.dev/v1alpha1"},
                        {"kind", "PerformanceProfile"},
                        {"metadata", {{"name", "p"}, {"managedFields", {{{"manager", "kubectl"}}}}}},
                        {"spec", to_json(profile)}}
      .dump(1);
}

// Prefills, decodes and both, inside of what was measured and far outside of it.
inline Batch random_batch(Rng& rng) {
  Batch batch;
  const auto size = [&](double most) { return std::round(std::exp(rng.uniform() * std::log(most))); };
  const int kind = static_cast<int>(rng.integer(0, 2));
  if (kind != 0) {
    for (auto i = static_cast<int>(size(16)); i > 0; --i) batch.add_prefill(size(20000));
  }
  if (kind != 1) {
    for (auto i = static_cast<int>(size(64)); i > 0; --i) batch.add_decode(size(20000));
  }
  return batch;
}

}  // namespace windlass::planner
