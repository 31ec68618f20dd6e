// Implements operator_data.h.
#include "tests/bench/fidelity/operator_data.h"

#include <array>
#include <limits>

#include <zlib.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/csv_rows.h"
#include "planner/perf/operator_model.h"

namespace windlass::bench {

namespace {

struct Folder {
  const char* folder;
  const char* accelerator;
};
constexpr std::array<Folder, 4> kFolders = {
    {{"a100_sxm", "a100-80gb"}, {"h100_sxm", "h100-80gb"}, {"h200_sxm", "h200-141gb"}, {"l40s", "l40s"}}};

template <class Row>
Result<void> append(std::vector<Row>& to, const std::string& path, Result<std::vector<Row>> (*parse)(std::string_view)) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  Result<std::vector<Row>> rows = parse(text);
  if (!rows.ok()) return rows.error().within(path);
  to.insert(to.end(), rows->begin(), rows->end());
  return {};
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  // gzread passes uncompressed text through.
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return Error{ErrorCode::kNotFound, path + ": must be a readable file"};
  std::string text;
  std::array<char, 1 << 16> buffer{};
  int got = 0;
  while ((got = gzread(file, buffer.data(), buffer.size())) > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  gzclose(file);
  if (got < 0) return Error{ErrorCode::kInvalidArgument, path + ": must be complete gzip data or plain text"};
  return text;
}

std::vector<std::string> operator_folders() {
  std::vector<std::string> result;
  for (const Folder& entry : kFolders) result.emplace_back(entry.folder);
  return result;
}

Result<MeasuredGpu> load_operators(const std::string& data, const std::string& folder) {
  MeasuredGpu gpu;
  gpu.folder = folder;
  for (const Folder& entry : kFolders) {
    if (folder == entry.folder) gpu.accelerator = entry.accelerator;
  }
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, planner::accelerator_by_name(gpu.accelerator));
  gpu.hardware = planner::operator_hardware(spec);
  const std::string path = data + "/profiles/operators/" + folder + "/";
  WINDLASS_RETURN_IF_ERROR(append(gpu.tables.gemm, path + "gemm_perf.csv.gz", planner::parse_gemm_csv));
  WINDLASS_RETURN_IF_ERROR(
      append(gpu.tables.context_attention, path + "context_attention_perf.csv.gz", planner::parse_context_attention_csv));
  WINDLASS_RETURN_IF_ERROR(append(gpu.tables.generation_attention, path + "generation_attention_perf.csv.gz",
                                  planner::parse_generation_attention_csv));
  WINDLASS_RETURN_IF_ERROR(append(gpu.tables.collectives, path + "nccl_perf.csv.gz", planner::parse_nccl_csv));
  WINDLASS_RETURN_IF_ERROR(
      append(gpu.tables.collectives, path + "custom_allreduce_perf.csv.gz", planner::parse_custom_all_reduce_csv));
  return gpu;
}

Result<std::vector<planner::VidurSample>> load_vidur(const std::string& data) {
  const std::string path = data + "/profiles/vidur-a100-codellama34b-tp2/";
  std::vector<planner::VidurSample> samples;
  WINDLASS_RETURN_IF_ERROR(append(samples, path + "mlp.csv", planner::parse_vidur_mlp_csv));
  WINDLASS_RETURN_IF_ERROR(append(samples, path + "attention.csv", planner::parse_vidur_attention_csv));
  WINDLASS_RETURN_IF_ERROR(append(samples, path + "all_reduce.csv", planner::parse_vidur_collective_csv));
  WINDLASS_RETURN_IF_ERROR(append(samples, path + "send_recv.csv", planner::parse_vidur_collective_csv));
  WINDLASS_RETURN_IF_ERROR(append(samples, path + "cpu_overheads.csv", planner::parse_vidur_cpu_csv));
  return samples;
}

Result<std::vector<EndToEndRow>> load_end_to_end(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text(data + "/measured/e2e_h100.csv"));
  WINDLASS_ASSIGN_OR_RETURN(const planner::CsvRows csv,
                            planner::CsvRows::parse(text, {"backend", "model_path", "isl", "osl", "batch_size", "tp_size",
                                                           "pp_size", "precision", "silicon_ttft_ms", "silicon_tpot_ms"}));
  constexpr int kMost = std::numeric_limits<int>::max();
  constexpr double kMaxMs = 1e9;
  std::vector<EndToEndRow> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    EndToEndRow row;
    WINDLASS_ASSIGN_OR_RETURN(row.engine, csv.text(i, "backend"));
    WINDLASS_ASSIGN_OR_RETURN(row.model, csv.text(i, "model_path"));
    row.float8 = csv.text(i, "precision").value_or("") == "fp8";
    WINDLASS_ASSIGN_OR_RETURN(row.input_tokens, csv.integer(i, "isl", 1, kMost));
    WINDLASS_ASSIGN_OR_RETURN(row.output_tokens, csv.integer(i, "osl", 2, kMost));
    WINDLASS_ASSIGN_OR_RETURN(row.clients, csv.integer(i, "batch_size", 1, kMost));
    WINDLASS_ASSIGN_OR_RETURN(row.tensor_parallel, csv.integer(i, "tp_size", 1, kMost));
    WINDLASS_ASSIGN_OR_RETURN(row.pipeline_parallel, csv.integer(i, "pp_size", 1, kMost));
    WINDLASS_ASSIGN_OR_RETURN(const double ttft_ms, csv.number(i, "silicon_ttft_ms", 0, kMaxMs));
    WINDLASS_ASSIGN_OR_RETURN(const double tpot_ms, csv.number(i, "silicon_tpot_ms", 0, kMaxMs));
    row.ttft_s = ttft_ms * 1e-3;
    row.tpot_s = tpot_ms * 1e-3;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace windlass::bench
