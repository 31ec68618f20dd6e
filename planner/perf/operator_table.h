// Parses measured times of single operators: the tables of ai-dynamo/aiconfigurator (one file per operator and GPU) and Vidur's
// profiles (one file per group of operators). The caller reads and decompresses the files. Columns are found by name, in any
// order; others are ignored. Files use milliseconds, this code seconds. Errors name the line and the column, what was found and
// what is allowed. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::planner {

// How a matrix product is computed: the data types of its factors, and how FP8 is scaled.
enum class GemmKind { kBFloat16, kFloat8, kFloat8Block };
const char* to_string(GemmKind kind);  // "bfloat16", "fp8", "fp8_block"
[[nodiscard]] double bytes_per_element(GemmKind kind);

// out (m, n) = in (m, k) weights (k, n).
struct GemmRow {
  GemmKind kind = GemmKind::kBFloat16;
  double m = 0;
  double n = 0;
  double k = 0;
  double time_s = 0;

  bool operator==(const GemmRow&) const = default;
};
[[nodiscard]] Result<std::vector<GemmRow>> parse_gemm_csv(std::string_view text);

// The kernel measured by a row of an attention table.
struct AttentionKey {
  int head_dim = 128;
  bool float8_cache = false;
  int window_tokens = 0;  // sliding window; 0: none

  auto operator<=>(const AttentionKey&) const = default;
};

// `batch` sequences. Context attention: `length` tokens each, causal. Generation attention: one token each, with a cache of
// `length` (isl + step in the file).
struct AttentionRow {
  AttentionKey key;
  double batch = 0;
  double length = 0;
  double heads = 0;  // on this GPU
  double kv_heads = 0;
  double time_s = 0;

  bool operator==(const AttentionRow&) const = default;
};
[[nodiscard]] Result<std::vector<AttentionRow>> parse_context_attention_csv(std::string_view text);
[[nodiscard]] Result<std::vector<AttentionRow>> parse_generation_attention_csv(std::string_view text);

struct CollectiveRow {
  std::string operation;       // "all_reduce", "all_gather", "reduce_scatter", "alltoall"
  std::string implementation;  // "nccl", "vllm_graph", "vllm_eager"
  int gpus = 0;
  double element_bytes = 2;
  double bytes = 0;  // message_size counts elements; this is multiplied by the size of the data type
  double time_s = 0;

  bool operator==(const CollectiveRow&) const = default;
};
[[nodiscard]] Result<std::vector<CollectiveRow>> parse_nccl_csv(std::string_view text);
[[nodiscard]] Result<std::vector<CollectiveRow>> parse_custom_all_reduce_csv(std::string_view text);

// All measurements of one GPU. Parts may be empty.
struct OperatorTables {
  std::vector<GemmRow> gemm;
  std::vector<AttentionRow> context_attention;
  std::vector<AttentionRow> generation_attention;
  std::vector<CollectiveRow> collectives;
};

// The files of a folder with one GPU's tables, as published by ai-dynamo/aiconfigurator.
inline constexpr std::array kOperatorFiles = {"gemm_perf.csv.gz", "context_attention_perf.csv.gz",
                                              "generation_attention_perf.csv.gz", "nccl_perf.csv.gz",
                                              "custom_allreduce_perf.csv.gz"};
// The decompressed text of kOperatorFiles[file]; nullopt if there is none. Called once for each, on any thread of the executor.
using OperatorTextOf = std::function<Result<std::optional<std::string_view>>(std::size_t file)>;
// The tables of such a folder; files without a text are empty tables. `executor`: for reading and parsing, or null. Errors: of
// the first file that has one; those of parsing name the file.
[[nodiscard]] Result<OperatorTables> parse_operator_tables(const OperatorTextOf& text_of, Executor* executor = nullptr);

// A sample of one operator in Vidur's profiles. `x` holds the sizes that it depends on: tokens (mlp), batch and cache tokens
// (attn_decode), chunk and cache tokens (attn_prefill), bytes (collectives), batch (cpu).
struct VidurSample {
  std::string name;       // "mlp_up_proj", "attn_decode", "all_reduce", "cpu_schedule", ...
  int gpus = 0;           // GPUs of the worker (mlp, attention, cpu) or of the collective
  int gpus_per_node = 0;  // collectives: devices_per_node
  std::vector<double> x;
  double time_s = 0;  // median

  bool operator==(const VidurSample&) const = default;
};
[[nodiscard]] Result<std::vector<VidurSample>> parse_vidur_mlp_csv(std::string_view text);
[[nodiscard]] Result<std::vector<VidurSample>> parse_vidur_attention_csv(std::string_view text);
[[nodiscard]] Result<std::vector<VidurSample>> parse_vidur_collective_csv(std::string_view text);
[[nodiscard]] Result<std::vector<VidurSample>> parse_vidur_cpu_csv(std::string_view text);

}  // namespace windlass::planner
