// Reads the measured operators of ../shared/data: one OperatorTables per GPU, Vidur's samples, and the end-to-end rows.
#pragma once

#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/roofline.h"

namespace windlass::bench {

struct MeasuredGpu {
  std::string folder;       // "h100_sxm"
  std::string accelerator;  // name in the catalog
  planner::OperatorTables tables;
  planner::OperatorHardware hardware;  // from the catalog
};

// The folders of profiles/operators, in the order of the tables.
[[nodiscard]] std::vector<std::string> operator_folders();
// Error kNotFound: another folder.
[[nodiscard]] Result<planner::AcceleratorSpec> accelerator_of(const std::string& folder);
// `executor`: reads the tables at the same time, or null.
[[nodiscard]] Result<MeasuredGpu> load_operators(const std::string& data, const std::string& folder,
                                                 Executor* executor = nullptr);

[[nodiscard]] Result<std::vector<planner::VidurSample>> load_vidur(const std::string& data);

// CPU time of an iteration as measured by Vidur (CodeLlama-34B, A100): a least-squares line over the batch size.
struct CpuTime {
  double iteration_s = 0;
  double sequence_s = 0;
};
// Sum of the named operators ("cpu_schedule", ...). Error kNotFound: one of them has fewer than two batch sizes.
[[nodiscard]] Result<CpuTime> cpu_time(const std::vector<planner::VidurSample>& samples, const std::vector<std::string>& names);

// A row of measured/e2e_h100.csv or e2e_h200.csv: the means of one closed-loop run.
struct EndToEndRow {
  std::string gpu;      // folder of its operators, "h100_sxm"
  std::string engine;   // "vllm", "sglang", "trtllm"
  std::string version;  // of the engine
  std::string model;    // "Qwen/Qwen3-32B"
  planner::GemmKind weights = planner::GemmKind::kBFloat16;
  int input_tokens = 0;
  int output_tokens = 0;
  int clients = 0;  // batch_size
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  double ttft_s = 0;
  double tpot_s = 0;
};
// H100's rows, then H200's.
[[nodiscard]] Result<std::vector<EndToEndRow>> load_end_to_end(const std::string& data);

// The file's contents, decompressed if the name ends in .gz.
[[nodiscard]] Result<std::string> read_text(const std::string& path);

}  // namespace windlass::bench
