// Recognises and collects operator tables in CSV files; see operator_csv.h.
#include "planner/perf/operator_csv.h"

#include <algorithm>
#include <set>

#include "planner/perf/csv_rows.h"

namespace windlass::planner {
namespace {

template <class Row>
Result<bool> append(std::vector<Row>& rows, Result<std::vector<Row>> parsed) {
  if (!parsed.ok()) return parsed.error();
  rows.insert(rows.end(), parsed->begin(), parsed->end());
  return true;
}

// The column names of the first line, each between commas.
std::string header_of(std::string_view csv) {
  std::string_view line = csv.substr(0, csv.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return "," + std::string(line) + ",";
}

Result<void> note_device(std::string_view csv, OperatorMeasurements& to) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows rows, CsvRows::parse(csv, {}));
  if (rows.rows() == 0 || !rows.has("device")) return {};
  WINDLASS_ASSIGN_OR_RETURN(std::string device, rows.text(0, "device"));
  if (std::find(to.devices.begin(), to.devices.end(), device) == to.devices.end()) to.devices.push_back(std::move(device));
  return {};
}

Result<void> note_width(std::string_view csv, OperatorMeasurements& to) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows rows, CsvRows::parse(csv, {}));
  if (rows.rows() == 0 || !rows.has("n_embd")) return {};
  WINDLASS_ASSIGN_OR_RETURN(to.vidur_hidden, rows.number(0, "n_embd", 1, 1e9));
  return {};
}

}  // namespace

std::string known_operator_tables() {
  return "a CSV table of ai-dynamo/aiconfigurator (gemm, context_attention, generation_attention, nccl, custom_allreduce) or a "
         "profile of Vidur (mlp, attention, all_reduce, cpu_overheads)";
}

Result<bool> add_operator_csv(std::string_view csv, OperatorMeasurements& to) {
  const std::string header = header_of(csv);
  const auto has = [&](const char* column) { return header.find("," + std::string(column) + ",") != std::string::npos; };
  if (has("latency")) WINDLASS_RETURN_IF_ERROR(note_device(csv, to));
  if (has("gemm_dtype")) return append(to.tables.gemm, parse_gemm_csv(csv));
  if (has("kv_cache_dtype")) {
    // Both phases share one format: the rows say which.
    const CsvRows rows = CsvRows::parse(csv, {}).value_or(CsvRows());
    const auto name = rows.rows() > 0 && rows.has("op_name") ? rows.text(0, "op_name") : Result<std::string>(std::string());
    if (name.ok() && name->starts_with("context_attention")) {
      return append(to.tables.context_attention, parse_context_attention_csv(csv));
    }
    if (name.ok() && name->starts_with("generation_attention")) {
      return append(to.tables.generation_attention, parse_generation_attention_csv(csv));
    }
    return false;
  }
  if (has("nccl_dtype")) return append(to.tables.collectives, parse_nccl_csv(csv));
  if (has("allreduce_dtype")) return append(to.tables.collectives, parse_custom_all_reduce_csv(csv));
  if (has("prefill_chunk_size") || has("num_tokens")) WINDLASS_RETURN_IF_ERROR(note_width(csv, to));
  if (has("prefill_chunk_size")) return append(to.vidur.attention, parse_vidur_attention_csv(csv));
  if (has("num_tokens")) return append(to.vidur.mlp, parse_vidur_mlp_csv(csv));
  if (has("devices_per_node")) return append(to.vidur.all_reduce, parse_vidur_collective_csv(csv));
  if (has("schedule_median")) return append(to.vidur.cpu, parse_vidur_cpu_csv(csv));
  return false;
}

std::vector<int> gpus_of(const VidurProfiles& profiles) {
  std::set<int> gpus;
  for (const auto* samples : {&profiles.mlp, &profiles.attention}) {
    for (const VidurSample& sample : *samples) gpus.insert(sample.gpus);
  }
  return {gpus.begin(), gpus.end()};
}

}  // namespace windlass::planner
