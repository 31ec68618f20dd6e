// Implements operator_data.h.
#include "tests/bench/fidelity/operator_data.h"

#include <array>
#include <limits>

#include <fmt/format.h>
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

// `precision` does not tell FP8 kernels apart; gemm_quant_mode does, where it is given.
Result<planner::GemmKind> weights_of(const std::string& quantisation, const std::string& precision) {
  if (quantisation == "fp8_block") return planner::GemmKind::kFloat8Block;
  if (quantisation == "fp8" || (quantisation.empty() && precision == "fp8")) return planner::GemmKind::kFloat8;
  if (quantisation.empty() && precision.empty()) return planner::GemmKind::kBFloat16;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("gemm_quant_mode: must be fp8, fp8_block or empty, with precision fp8 or empty (got '{}' and '{}')",
                           quantisation, precision)};
}

Result<std::vector<EndToEndRow>> parse_end_to_end(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::CsvRows csv,
                            planner::CsvRows::parse(text, {"backend", "backend_version", "model_path", "system", "isl", "osl",
                                                           "batch_size", "tp_size", "pp_size", "precision", "gemm_quant_mode",
                                                           "silicon_ttft_ms", "silicon_tpot_ms"}));
  constexpr int kMost = std::numeric_limits<int>::max();
  constexpr double kMaxMs = 1e9;
  std::vector<EndToEndRow> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    EndToEndRow row;
    WINDLASS_ASSIGN_OR_RETURN(row.gpu, csv.text(i, "system"));
    WINDLASS_ASSIGN_OR_RETURN(row.engine, csv.text(i, "backend"));
    WINDLASS_ASSIGN_OR_RETURN(row.version, csv.text(i, "backend_version"));
    WINDLASS_ASSIGN_OR_RETURN(row.model, csv.text(i, "model_path"));
    WINDLASS_ASSIGN_OR_RETURN(row.weights,
                              weights_of(csv.text(i, "gemm_quant_mode").value_or(""), csv.text(i, "precision").value_or("")));
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

Result<planner::AcceleratorSpec> accelerator_of(const std::string& folder) {
  for (const Folder& entry : kFolders) {
    if (folder == entry.folder) return planner::accelerator_by_name(entry.accelerator);
  }
  return Error{ErrorCode::kNotFound, fmt::format("folder: must be one with measured operators (got '{}')", folder)};
}

Result<MeasuredGpu> load_operators(const std::string& data, const std::string& folder, Executor* executor) {
  MeasuredGpu gpu;
  gpu.folder = folder;
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, accelerator_of(folder));
  gpu.accelerator = spec.name;
  gpu.hardware = planner::operator_hardware(spec);
  const std::string path = data + "/profiles/operators/" + folder + "/";
  std::array<std::string, planner::kOperatorFiles.size()> texts;
  const auto text_of = [&](std::size_t file) -> Result<std::optional<std::string_view>> {
    WINDLASS_ASSIGN_OR_RETURN(texts[file], read_text(path + planner::kOperatorFiles[file]));
    return std::optional<std::string_view>(texts[file]);
  };
  auto tables = planner::parse_operator_tables(text_of, executor);
  if (!tables.ok()) return tables.error().within(folder);
  gpu.tables = std::move(tables).value();
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

Result<CpuTime> cpu_time(const std::vector<planner::VidurSample>& samples, const std::vector<std::string>& names) {
  CpuTime sum;
  for (const std::string& name : names) {
    double count = 0;
    double x = 0;
    double y = 0;
    double xx = 0;
    double xy = 0;
    for (const planner::VidurSample& sample : samples) {
      if (sample.name != name) continue;
      ++count;
      x += sample.x[0];
      y += sample.time_s;
      xx += sample.x[0] * sample.x[0];
      xy += sample.x[0] * sample.time_s;
    }
    const double spread = count * xx - x * x;
    if (spread <= 0) return Error{ErrorCode::kNotFound, name + ": must have at least two batch sizes among Vidur's samples"};
    const double slope = (count * xy - x * y) / spread;
    sum.sequence_s += slope;
    sum.iteration_s += (y - slope * x) / count;
  }
  return sum;
}

Result<std::vector<EndToEndRow>> load_end_to_end(const std::string& data) {
  std::vector<EndToEndRow> rows;
  for (const char* file : {"/measured/e2e_h100.csv", "/measured/e2e_h200.csv"}) {
    WINDLASS_RETURN_IF_ERROR(append(rows, data + file, parse_end_to_end));
  }
  return rows;
}

}  // namespace windlass::bench
