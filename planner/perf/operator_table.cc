// Parses tables of operator measurements; see operator_table.h.
#include "planner/perf/operator_table.h"

#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/csv_rows.h"

namespace windlass::planner {

namespace {

constexpr double kSecondsPerMillisecond = 1e-3;

// Larger sizes and times are mistakes.
constexpr double kMost = 1e15;
constexpr int kMaxHeadDim = 1 << 16;
constexpr int kMaxGpus = 1 << 16;
constexpr double kLeastMs = 1e-9;
constexpr double kMaxMs = 1e9;

using CsvColumn = CsvRows::Column;

Result<double> seconds(const CsvRows& csv, std::size_t row, const CsvColumn& column) {
  WINDLASS_ASSIGN_OR_RETURN(const double ms, csv.number(row, column, kLeastMs, kMaxMs));
  return ms * kSecondsPerMillisecond;
}

Result<double> size(const CsvRows& csv, std::size_t row, const CsvColumn& column) { return csv.number(row, column, 1, kMost); }

Result<std::vector<AttentionRow>> parse_attention(std::string_view text, bool generation) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv,
                            CsvRows::parse(text, {"batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim",
                                                  "kv_cache_dtype", "latency"}));
  const CsvColumn batch = csv.column("batch_size"), isl = csv.column("isl"), step = csv.column("step"),
                  heads = csv.column("num_heads"), kv_heads = csv.column("num_key_value_heads"),
                  head_dim = csv.column("head_dim"), cache = csv.column("kv_cache_dtype"), latency = csv.column("latency");
  std::optional<CsvColumn> window;
  if (csv.has("window_size")) window = csv.column("window_size");
  std::vector<AttentionRow> rows;
  rows.reserve(csv.rows());
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    AttentionRow& row = rows.emplace_back();
    WINDLASS_ASSIGN_OR_RETURN(row.batch, size(csv, i, batch));
    WINDLASS_ASSIGN_OR_RETURN(const double prompt, size(csv, i, isl));
    WINDLASS_ASSIGN_OR_RETURN(const double generated, csv.number(i, step, 0, kMost));
    WINDLASS_ASSIGN_OR_RETURN(row.heads, size(csv, i, heads));
    WINDLASS_ASSIGN_OR_RETURN(row.kv_heads, csv.number(i, kv_heads, 1, row.heads));
    WINDLASS_ASSIGN_OR_RETURN(row.key.head_dim, csv.integer(i, head_dim, 1, kMaxHeadDim));
    WINDLASS_ASSIGN_OR_RETURN(const std::string_view type, csv.word(i, cache));
    WINDLASS_ASSIGN_OR_RETURN(row.time_s, seconds(csv, i, latency));
    if (type != "bfloat16" && type != "float16" && type != "fp8") {
      return csv.mistake(i, cache, "one of bfloat16, float16, fp8");
    }
    row.key.float8_cache = type == "fp8";
    if (window) {
      WINDLASS_ASSIGN_OR_RETURN(row.key.window_tokens, csv.integer(i, *window, 0, std::numeric_limits<int>::max()));
    }
    row.length = generation ? prompt + generated : prompt;
  }
  return rows;
}

Result<double> element_bytes(const CsvRows& csv, std::size_t row, const char* column) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string type, csv.text(row, column));
  if (type == "half" || type == "bfloat16" || type == "float16") return 2.0;
  if (type == "int8" || type == "fp8") return 1.0;
  if (type == "float" || type == "float32") return 4.0;
  return csv.mistake(row, column, "one of half, bfloat16, float16, int8, fp8, float, float32");
}

Result<std::vector<CollectiveRow>> parse_collectives(const CsvRows& csv, const char* type_column, bool custom) {
  std::vector<CollectiveRow> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    CollectiveRow row;
    WINDLASS_ASSIGN_OR_RETURN(row.operation, csv.text(i, "op_name"));
    WINDLASS_ASSIGN_OR_RETURN(row.element_bytes, element_bytes(csv, i, type_column));
    WINDLASS_ASSIGN_OR_RETURN(row.gpus, csv.integer(i, "num_gpus", 2, kMaxGpus));
    WINDLASS_ASSIGN_OR_RETURN(const double elements, size(csv, i, "message_size"));
    WINDLASS_ASSIGN_OR_RETURN(row.time_s, seconds(csv, i, "latency"));
    row.bytes = elements * row.element_bytes;
    row.implementation = "nccl";
    if (custom) {
      WINDLASS_ASSIGN_OR_RETURN(row.implementation, csv.text(i, "backend"));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Turns each non-empty column "time_stats.<name>.median" of a row into a sample. `sizes_of` supplies the rest of the sample.
template <class SizesOf>
Result<std::vector<VidurSample>> vidur_samples(const CsvRows& csv, std::initializer_list<const char*> names,
                                               const SizesOf& sizes_of) {
  std::vector<std::pair<const char*, CsvColumn>> columns;
  for (const char* name : names) {
    const std::string column = fmt::format("time_stats.{}.median", name);
    if (csv.has(column)) columns.emplace_back(name, csv.column(column));
  }
  std::vector<VidurSample> samples;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    for (const auto& [name, column] : columns) {
      if (csv.field(i, column).empty()) continue;  // the row measured another operator
      Result<VidurSample> sample = sizes_of(i);
      if (!sample.ok()) return sample.error();
      WINDLASS_ASSIGN_OR_RETURN(const double median_ms, csv.number(i, column, 0, kMaxMs));
      sample->name = name;
      sample->time_s = median_ms * kSecondsPerMillisecond;
      samples.push_back(std::move(*sample));
    }
  }
  return samples;
}

}  // namespace

const char* to_string(GemmKind kind) {
  switch (kind) {
    case GemmKind::kBFloat16: return "bfloat16";
    case GemmKind::kFloat8: return "fp8";
    case GemmKind::kFloat8Block: return "fp8_block";
  }
  return "unknown";
}

double bytes_per_element(GemmKind kind) { return kind == GemmKind::kBFloat16 ? 2 : 1; }

Result<std::vector<GemmRow>> parse_gemm_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"gemm_dtype", "m", "n", "k", "latency"}));
  const CsvColumn dtype = csv.column("gemm_dtype"), m = csv.column("m"), n = csv.column("n"), k = csv.column("k"),
                  latency = csv.column("latency");
  std::vector<GemmRow> rows;
  rows.reserve(csv.rows());
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    GemmRow& row = rows.emplace_back();
    WINDLASS_ASSIGN_OR_RETURN(const std::string_view kind, csv.word(i, dtype));
    if (kind == "bfloat16" || kind == "float16") {
      row.kind = GemmKind::kBFloat16;
    } else if (kind == "fp8") {
      row.kind = GemmKind::kFloat8;
    } else if (kind == "fp8_block") {
      row.kind = GemmKind::kFloat8Block;
    } else {
      return csv.mistake(i, dtype, "one of bfloat16, float16, fp8, fp8_block");
    }
    WINDLASS_ASSIGN_OR_RETURN(row.m, size(csv, i, m));
    WINDLASS_ASSIGN_OR_RETURN(row.n, size(csv, i, n));
    WINDLASS_ASSIGN_OR_RETURN(row.k, size(csv, i, k));
    WINDLASS_ASSIGN_OR_RETURN(row.time_s, seconds(csv, i, latency));
  }
  return rows;
}

Result<std::vector<AttentionRow>> parse_context_attention_csv(std::string_view text) { return parse_attention(text, false); }
Result<std::vector<AttentionRow>> parse_generation_attention_csv(std::string_view text) { return parse_attention(text, true); }

Result<std::vector<CollectiveRow>> parse_nccl_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv,
                            CsvRows::parse(text, {"op_name", "nccl_dtype", "num_gpus", "message_size", "latency"}));
  return parse_collectives(csv, "nccl_dtype", false);
}

Result<std::vector<CollectiveRow>> parse_custom_all_reduce_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"op_name", "allreduce_dtype", "num_gpus", "message_size",
                                                                     "latency", "backend"}));
  return parse_collectives(csv, "allreduce_dtype", true);
}

Result<OperatorTables> parse_operator_tables(const OperatorTextOf& text_of, Executor* executor) {
  OperatorTables tables;
  std::vector<CollectiveRow> custom;
  std::array<Result<void>, kOperatorFiles.size()> done;
  std::vector<std::function<void()>> tasks;
  const auto add = [&](auto& rows, auto parse) {
    const std::size_t file = tasks.size();
    tasks.emplace_back([&, parse, file] {
      done[file] = [&]() -> Result<void> {
        WINDLASS_ASSIGN_OR_RETURN(const auto text, text_of(file));
        if (!text) return {};
        auto parsed = parse(*text);
        if (!parsed.ok()) return parsed.error().within(kOperatorFiles[file]);
        rows = std::move(parsed).value();
        return {};
      }();
    });
  };
  add(tables.gemm, parse_gemm_csv);
  add(tables.context_attention, parse_context_attention_csv);
  add(tables.generation_attention, parse_generation_attention_csv);
  add(tables.collectives, parse_nccl_csv);
  add(custom, parse_custom_all_reduce_csv);
  run_tasks(executor, tasks);
  for (const Result<void>& one : done) WINDLASS_RETURN_IF_ERROR(one);
  tables.collectives.insert(tables.collectives.end(), custom.begin(), custom.end());
  return tables;
}

Result<std::vector<VidurSample>> parse_vidur_mlp_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"num_tokens", "num_tensor_parallel_workers"}));
  return vidur_samples(csv,
                       {"emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
                        "mlp_up_proj", "mlp_act", "mlp_down_proj", "add"},
                       [&](std::size_t i) -> Result<VidurSample> {
                         VidurSample sample;
                         WINDLASS_ASSIGN_OR_RETURN(sample.gpus, csv.integer(i, "num_tensor_parallel_workers", 1, kMaxGpus));
                         WINDLASS_ASSIGN_OR_RETURN(const double tokens, size(csv, i, "num_tokens"));
                         sample.x = {tokens};
                         return sample;
                       });
}

Result<std::vector<VidurSample>> parse_vidur_attention_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"num_tensor_parallel_workers", "batch_size",
                                                                     "prefill_chunk_size", "kv_cache_size", "is_prefill"}));
  return vidur_samples(csv, {"attn_input_reshape", "attn_decode", "attn_output_reshape", "attn_prefill"},
                       [&](std::size_t i) -> Result<VidurSample> {
                         VidurSample sample;
                         WINDLASS_ASSIGN_OR_RETURN(sample.gpus, csv.integer(i, "num_tensor_parallel_workers", 1, kMaxGpus));
                         WINDLASS_ASSIGN_OR_RETURN(const double batch, size(csv, i, "batch_size"));
                         WINDLASS_ASSIGN_OR_RETURN(const double chunk, csv.number(i, "prefill_chunk_size", 0, kMost));
                         WINDLASS_ASSIGN_OR_RETURN(const double cache, csv.number(i, "kv_cache_size", 0, kMost));
                         WINDLASS_ASSIGN_OR_RETURN(const std::string prefill, csv.text(i, "is_prefill"));
                         if (prefill != "True" && prefill != "False") return csv.mistake(i, "is_prefill", "True or False");
                         sample.x = {prefill == "True" ? chunk : batch, cache};
                         return sample;
                       });
}

Result<std::vector<VidurSample>> parse_vidur_collective_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"num_workers", "size", "devices_per_node"}));
  return vidur_samples(csv, {"all_reduce", "all_gather", "send_recv"}, [&](std::size_t i) -> Result<VidurSample> {
    VidurSample sample;
    WINDLASS_ASSIGN_OR_RETURN(sample.gpus, csv.integer(i, "num_workers", 1, kMaxGpus));
    WINDLASS_ASSIGN_OR_RETURN(sample.gpus_per_node, csv.integer(i, "devices_per_node", 1, kMaxGpus));
    WINDLASS_ASSIGN_OR_RETURN(const double bytes, size(csv, i, "size"));
    sample.x = {bytes};
    return sample;
  });
}

Result<std::vector<VidurSample>> parse_vidur_cpu_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"batch_size", "tensor_parallel_degree"}));
  std::vector<VidurSample> samples;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    WINDLASS_ASSIGN_OR_RETURN(const double batch, size(csv, i, "batch_size"));
    WINDLASS_ASSIGN_OR_RETURN(const int gpus, csv.integer(i, "tensor_parallel_degree", 1, kMaxGpus));
    for (const char* name : {"schedule", "sampler_e2e", "prepare_inputs_e2e", "model_execution_e2e", "process_model_outputs"}) {
      const std::string column = fmt::format("{}_median", name);
      if (!csv.has(column)) continue;
      WINDLASS_ASSIGN_OR_RETURN(const double median_ms, csv.number(i, column, 0, kMaxMs));
      samples.push_back({fmt::format("cpu_{}", name), gpus, 0, {batch}, median_ms * kSecondsPerMillisecond});
    }
    if (!csv.has("ray_comm_time_mean")) continue;
    WINDLASS_ASSIGN_OR_RETURN(const double mean_ms, csv.number(i, "ray_comm_time_mean", 0, kMaxMs));
    samples.push_back({"cpu_ray_comm_time", gpus, 0, {batch}, mean_ms * kSecondsPerMillisecond});
  }
  return samples;
}

}  // namespace windlass::planner
