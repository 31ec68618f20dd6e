// See profile_yaml.h. One reader for files and for JSON: JSON is YAML.
#include "planner/perf/profile_yaml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"
#include "planner/perf/csv_rows.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr double kMaxTokens = 1e12;
constexpr double kMaxSeconds = 1e9;
constexpr double kLeastSeconds = 1e-12;
constexpr double kMaxBytes = 1e15;
constexpr std::int64_t kMaxSize = 1'000'000'000;
constexpr std::size_t kMaxPoints = 4096;
constexpr std::array kTypes = {"Linear", "Profile", "Operators"};
constexpr std::array kForms = {"Aladdin", "Huawei"};
constexpr std::array kReadings = {"BatchTokens", "BatchShape"};
constexpr std::array kWeights = {"BFloat16", "FP8", "FP8Block"};
constexpr std::array kGemmTables = {"gemmBFloat16", "gemmFP8", "gemmFP8Block"};

// The fields of one direction of "what the samples covered".
struct RangeField {
  const char* name;
  double PhaseRange::*from;
  double PhaseRange::*to;
};
constexpr std::array kRangeFields = {RangeField{"sequences", &PhaseRange::fewest_sequences, &PhaseRange::most_sequences},
                                     RangeField{"meanTokens", &PhaseRange::fewest_mean_tokens, &PhaseRange::most_mean_tokens},
                                     RangeField{"tokens", &PhaseRange::fewest_tokens, &PhaseRange::most_tokens}};

struct CoefficientField {
  const char* name;
  double PhaseCoefficients::*value;
};
constexpr std::array kCoefficientFields = {CoefficientField{"constantSeconds", &PhaseCoefficients::constant_s},
                                           CoefficientField{"secondsPerToken", &PhaseCoefficients::per_token_s},
                                           CoefficientField{"secondsPerSequence", &PhaseCoefficients::per_sequence_s},
                                           CoefficientField{"secondsPerMeanToken", &PhaseCoefficients::per_mean_token_s}};

struct OverheadField {
  const char* name;
  double EngineOverhead::*value;
};
constexpr std::array kOverheadFields = {OverheadField{"iterationSeconds", &EngineOverhead::iteration_s},
                                        OverheadField{"sequenceSeconds", &EngineOverhead::sequence_s},
                                        OverheadField{"eagerLayerSeconds", &EngineOverhead::eager_layer_s},
                                        OverheadField{"largestGraphTokens", &EngineOverhead::largest_graph_tokens},
                                        OverheadField{"memoryShare", &EngineOverhead::memory_share},
                                        OverheadField{"reservedBytes", &EngineOverhead::reserved_bytes}};

struct ShapeField {
  const char* name;
  std::int64_t OperatorShape::*value;
};
constexpr std::array kShapeFields = {
    ShapeField{"layers", &OperatorShape::layers},    ShapeField{"hidden", &OperatorShape::hidden},
    ShapeField{"heads", &OperatorShape::heads},      ShapeField{"kvHeads", &OperatorShape::kv_heads},
    ShapeField{"headDim", &OperatorShape::head_dim}, ShapeField{"intermediate", &OperatorShape::intermediate},
    ShapeField{"vocab", &OperatorShape::vocab}};

class SpecReader {
 public:
  SpecReader(YamlMistake& mistake, bool strict) : mistake_(mistake), strict_(strict) {}

  PerformanceProfile read(const YamlValue& value) {
    YamlReader reader(value, "spec", mistake_);
    PerformanceProfile profile;
    if (const auto* model = reader.require("model", "a map with name")) {
      YamlReader in(*model, "spec.model", mistake_);
      profile.model = in.text("name", "the model's name");
      end(in);
    }
    profile.accelerator = reader.text("accelerator", "the accelerator's name");
    profile.gpus_per_worker = static_cast<int>(reader.whole("gpusPerWorker", 1, 4096));
    profile.pipeline_parallel = static_cast<int>(reader.whole("pipelineParallel", 1, 1024, 1));
    if (profile.gpus_per_worker % profile.pipeline_parallel != 0) {
      mistake_.keep(reader.line(),
                    fmt::format("spec.pipelineParallel: found {}, allowed is a divisor of gpusPerWorker, which is {}",
                                profile.pipeline_parallel, profile.gpus_per_worker));
    }
    if (reader.find("kvCapacityTokens") != nullptr) {
      profile.kv_capacity_tokens =
          static_cast<double>(reader.whole("kvCapacityTokens", 1, static_cast<std::int64_t>(kMaxTokens)));
    }
    if (const auto* source = reader.find("source")) read_source(*source, profile.source);
    if (const auto* fit = reader.require("fit", "a map with type")) read_fit(*fit, profile);
    if (const auto* transfer = reader.find("transfer")) profile.transfer = read_transfer(*transfer);
    if (const auto* error = reader.find("error")) read_error(*error, profile);
    end(reader);
    return profile;
  }

 private:
  void end(YamlReader& reader) const {
    if (strict_) reader.finish();
  }

  // A quoted decimal number in the range.
  double decimal(YamlReader& reader, const char* key, NumberRange range, std::optional<double> otherwise = std::nullopt) {
    const std::string allowed = fmt::format("a quoted decimal from {:g} to {:g}", range.low, range.high);
    const YamlValue* value = otherwise ? reader.find(key) : reader.require(key, allowed);
    if (value == nullptr) return otherwise.value_or(range.low);
    const auto number = value->kind == YamlValue::Kind::kText && value->quoted ? parse_coefficient(value->text) : std::nullopt;
    if (number && range.low <= *number && *number <= range.high) return *number;
    reader.refuse(key, *value, allowed);
    return range.low;
  }

  void read_source(const YamlValue& value, FitSource& source) {
    YamlReader in(value, "spec.source", mistake_);
    source.file = in.text("file", "a file's name", "");
    source.format = in.text("format", "a format's name", "");
    source.rows = in.whole("rows", 0, kMaxSize, 0);
    source.left_out = in.whole("rowsLeftOut", 0, kMaxSize, 0);
    end(in);
  }

  MeasuredTransfer read_transfer(const YamlValue& value) {
    YamlReader in(value, "spec.transfer", mistake_);
    MeasuredTransfer transfer;
    transfer.bandwidth_bytes_per_s = decimal(in, "bandwidthBytesPerSecond", {1, kMaxBytes});
    transfer.latency_s = decimal(in, "latencySeconds", {0, kMaxSeconds}, 0);
    if (in.find("bytesPerToken") != nullptr) transfer.bytes_per_token = decimal(in, "bytesPerToken", {1, kMaxBytes});
    transfer.samples = in.whole("samples", 1, kMaxSize, 0);
    end(in);
    return transfer;
  }

  void read_error(const YamlValue& value, PerformanceProfile& profile) {
    YamlReader in(value, "spec.error", mistake_);
    profile.folds = static_cast<int>(in.whole("folds", 2, 1000));
    each(in, "parts", 16, [&](YamlReader& part) {
      FitError error;
      error.part = part.text("name", "the part's name");
      error.samples = part.whole("samples", 1, kMaxSize);
      error.mape = decimal(part, "meanError", {0, 1e6});
      error.median_ape = decimal(part, "medianError", {0, 1e6});
      error.max_ape = decimal(part, "maxError", {0, 1e6});
      if (part.find("unseenMeanError") != nullptr) error.unseen_mape = decimal(part, "unseenMeanError", {0, 1e6});
      profile.errors.push_back(std::move(error));
    });
    end(in);
  }

  // The maps of a list, one to `most` of them.
  void each(YamlReader& reader, const char* key, std::size_t most, const std::function<void(YamlReader&)>& read) {
    const std::string allowed = fmt::format("a list of 1 to {} maps", most);
    const YamlValue* list = reader.require(key, allowed);
    if (list == nullptr) return;
    if (list->kind != YamlValue::Kind::kList || list->items.empty()) return reader.refuse(key, *list, allowed);
    if (list->items.size() > most) {
      mistake_.keep(list->line,
                    fmt::format("{}: found {} items, allowed is {}", reader.path_of(key), list->items.size(), allowed));
      return;
    }
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      YamlReader item(list->items[i], fmt::format("{}[{}]", reader.path_of(key), i), mistake_);
      read(item);
      end(item);
    }
  }

  void read_fit(const YamlValue& value, PerformanceProfile& profile) {
    YamlReader reader(value, "spec.fit", mistake_);
    const std::size_t type = reader.choice("type", kTypes);
    static constexpr std::array kKeys = {"linear", "profile", "operators"};
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      if (i == type) continue;
      if (const auto* other = reader.find(kKeys[i])) {
        mistake_.keep(other->line, fmt::format("spec.fit.{}: belongs to type {}, found {}", kKeys[i], kTypes[i], kTypes[type]));
      }
    }
    const auto* fit = reader.require(kKeys[type], fmt::format("the fit of type {}", kTypes[type]));
    end(reader);
    if (fit == nullptr) return;
    if (type == 0) profile.fit = read_lines(*fit);
    if (type == 1) profile.fit = read_cells(*fit);
    if (type == 2) profile.fit = read_operators(*fit);
  }

  LinearPhase read_phase(YamlReader& parent, const char* key) {
    LinearPhase phase;
    const auto* value = parent.require(key, "a map with coefficients and range");
    if (value == nullptr) return phase;
    YamlReader reader(*value, parent.path_of(key), mistake_);
    for (const CoefficientField& field : kCoefficientFields) {
      phase.coefficients.*field.value = decimal(reader, field.name, {0, kMaxSeconds}, 0);
    }
    if (const auto* range = reader.require("range", "a map with sequences, meanTokens and tokens")) {
      YamlReader in(*range, reader.path_of("range"), mistake_);
      for (const RangeField& field : kRangeFields) {
        const auto* limits = in.require(field.name, "a map with from and to");
        if (limits == nullptr) continue;
        YamlReader of(*limits, in.path_of(field.name), mistake_);
        phase.range.*field.from = decimal(of, "from", {0, kMaxTokens});
        phase.range.*field.to = decimal(of, "to", {phase.range.*field.from, kMaxTokens});
        end(of);
      }
      end(in);
    }
    end(reader);
    return phase;
  }

  FittedLines read_lines(const YamlValue& value) {
    YamlReader reader(value, "spec.fit.linear", mistake_);
    FittedLines lines;
    lines.form = static_cast<LinearForm>(reader.choice("form", kForms));
    lines.prefill = read_phase(reader, "prefill");
    lines.decode = read_phase(reader, "decode");
    end(reader);
    return lines;
  }

  MeasuredCells read_cells(const YamlValue& value) {
    YamlReader reader(value, "spec.fit.profile", mistake_);
    MeasuredCells measured;
    measured.reading = static_cast<ProfileReading>(reader.choice("reading", kReadings));
    each(reader, "points", kMaxPoints, [&](YamlReader& point) {
      MeasuredCell cell;
      cell.prompt_tokens = static_cast<double>(point.whole("promptTokens", 1, kMaxSize));
      cell.batch_size = static_cast<double>(point.whole("batchSize", 1, kMaxSize));
      cell.output_tokens = static_cast<double>(point.whole("outputTokens", 1, kMaxSize));
      cell.prompt_s = decimal(point, "promptSeconds", {kLeastSeconds, kMaxSeconds});
      cell.token_s = decimal(point, "tokenSeconds", {kLeastSeconds, kMaxSeconds});
      cell.end_to_end_s = decimal(point, "endToEndSeconds", {0, kMaxSeconds}, 0);
      cell.runs = point.whole("runs", 1, kMaxSize, 1);
      measured.cells.push_back(cell);
    });
    end(reader);
    return measured;
  }

  // The rows of a table, if it is there.
  void read_table(YamlReader& tables, const char* key, std::initializer_list<const char*> columns,
                  const std::function<Result<void>(const CsvRows&, std::size_t)>& read_row) {
    const YamlValue* value = tables.find(key);
    if (value == nullptr) return;
    if (value->kind != YamlValue::Kind::kText) return tables.refuse(key, *value, "CSV text");
    const auto refuse = [&](const Error& error) {
      mistake_.keep(value->line, fmt::format("{}: {}", tables.path_of(key), error.message));
    };
    const auto csv = CsvRows::parse(value->text, columns);
    if (!csv.ok()) return refuse(csv.error());
    for (std::size_t row = 0; row < csv->rows(); ++row) {
      if (const auto done = read_row(*csv, row); !done.ok()) return refuse(done.error());
    }
  }

  MeasuredOperators read_operators(const YamlValue& value) {
    YamlReader reader(value, "spec.fit.operators", mistake_);
    MeasuredOperators measured;
    measured.weights = static_cast<GemmKind>(reader.choice("weights", kWeights));
    if (const auto* shape = reader.require("shape", "a map with the model's sizes")) {
      YamlReader in(*shape, "spec.fit.operators.shape", mistake_);
      for (const ShapeField& field : kShapeFields) measured.shape.*field.value = in.whole(field.name, 1, kMaxSize);
      end(in);
    }
    if (const auto* overhead = reader.find("overhead")) {
      YamlReader in(*overhead, "spec.fit.operators.overhead", mistake_);
      for (const OverheadField& field : kOverheadFields) {
        measured.overhead.*field.value = decimal(in, field.name, {0, kMaxBytes}, measured.overhead.*field.value);
      }
      end(in);
    }
    if (const auto* tables = reader.require("tables", "a map with tables of operators")) read_tables(*tables, measured);
    end(reader);
    return measured;
  }

  void read_tables(const YamlValue& value, MeasuredOperators& measured) {
    YamlReader reader(value, "spec.fit.operators.tables", mistake_);
    OperatorTables& tables = measured.tables;
    for (std::size_t kind = 0; kind < kGemmTables.size(); ++kind) {
      read_table(reader, kGemmTables[kind], {"m", "n", "k", "seconds"}, [&](const CsvRows& csv, std::size_t i) -> Result<void> {
        GemmRow row;
        row.kind = static_cast<GemmKind>(kind);
        WINDLASS_ASSIGN_OR_RETURN(row.m, csv.number(i, "m", 1, kMaxBytes));
        WINDLASS_ASSIGN_OR_RETURN(row.n, csv.number(i, "n", 1, kMaxBytes));
        WINDLASS_ASSIGN_OR_RETURN(row.k, csv.number(i, "k", 1, kMaxBytes));
        WINDLASS_ASSIGN_OR_RETURN(row.time_s, csv.number(i, "seconds", kLeastSeconds, kMaxSeconds));
        tables.gemm.push_back(row);
        return {};
      });
    }
    const AttentionKey key{static_cast<int>(measured.shape.head_dim), false, 0};
    for (const auto& [name, rows] : {std::pair("contextAttention", &tables.context_attention),
                                     std::pair("generationAttention", &tables.generation_attention)}) {
      read_table(reader, name, {"batch", "tokens", "heads", "kvHeads", "seconds"},
                 [&, rows = rows](const CsvRows& csv, std::size_t i) -> Result<void> {
                   AttentionRow row;
                   row.key = key;
                   WINDLASS_ASSIGN_OR_RETURN(row.batch, csv.number(i, "batch", 1, kMaxBytes));
                   WINDLASS_ASSIGN_OR_RETURN(row.length, csv.number(i, "tokens", 1, kMaxBytes));
                   WINDLASS_ASSIGN_OR_RETURN(row.heads, csv.number(i, "heads", 1, kMaxBytes));
                   WINDLASS_ASSIGN_OR_RETURN(row.kv_heads, csv.number(i, "kvHeads", 1, row.heads));
                   WINDLASS_ASSIGN_OR_RETURN(row.time_s, csv.number(i, "seconds", kLeastSeconds, kMaxSeconds));
                   rows->push_back(row);
                   return {};
                 });
    }
    read_table(reader, "allReduce", {"implementation", "gpus", "bytes", "seconds"},
               [&](const CsvRows& csv, std::size_t i) -> Result<void> {
                 CollectiveRow row;
                 row.operation = "all_reduce";
                 WINDLASS_ASSIGN_OR_RETURN(row.implementation, csv.text(i, "implementation"));
                 WINDLASS_ASSIGN_OR_RETURN(row.gpus, csv.integer(i, "gpus", 2, 4096));
                 WINDLASS_ASSIGN_OR_RETURN(row.bytes, csv.number(i, "bytes", 1, kMaxBytes));
                 WINDLASS_ASSIGN_OR_RETURN(row.time_s, csv.number(i, "seconds", kLeastSeconds, kMaxSeconds));
                 tables.collectives.push_back(std::move(row));
                 return {};
               });
    end(reader);
  }

  YamlMistake& mistake_;
  bool strict_;
};

// ---- writing

json phase_json(const LinearPhase& phase) {
  json out = json::object();
  for (const CoefficientField& field : kCoefficientFields) out[field.name] = print_coefficient(phase.coefficients.*field.value);
  for (const RangeField& field : kRangeFields) {
    out["range"][field.name] = {{"from", print_coefficient(phase.range.*field.from)},
                                {"to", print_coefficient(phase.range.*field.to)}};
  }
  return out;
}

json fit_json(const FittedLines& lines) {
  return {{"form", kForms[static_cast<std::size_t>(lines.form)]},
          {"prefill", phase_json(lines.prefill)},
          {"decode", phase_json(lines.decode)}};
}

json fit_json(const MeasuredCells& measured) {
  json points = json::array();
  for (const MeasuredCell& cell : measured.cells) {
    points.push_back({{"promptTokens", std::llround(cell.prompt_tokens)},
                      {"batchSize", std::llround(cell.batch_size)},
                      {"outputTokens", std::llround(cell.output_tokens)},
                      {"promptSeconds", print_coefficient(cell.prompt_s)},
                      {"tokenSeconds", print_coefficient(cell.token_s)},
                      {"runs", cell.runs}});
    if (cell.end_to_end_s > 0) points.back()["endToEndSeconds"] = print_coefficient(cell.end_to_end_s);
  }
  return {{"reading", kReadings[static_cast<std::size_t>(measured.reading)]}, {"points", std::move(points)}};
}

void add_attention(json& tables, const char* name, const std::vector<AttentionRow>& rows) {
  if (rows.empty()) return;
  std::string csv = "batch,tokens,heads,kvHeads,seconds\n";
  for (const AttentionRow& row : rows) {
    csv += fmt::format("{},{},{},{},{}\n", row.batch, row.length, row.heads, row.kv_heads, row.time_s);
  }
  tables[name] = std::move(csv);
}

json fit_json(const MeasuredOperators& measured) {
  json shape, overhead;
  for (const ShapeField& field : kShapeFields) shape[field.name] = measured.shape.*field.value;
  for (const OverheadField& field : kOverheadFields) overhead[field.name] = print_coefficient(measured.overhead.*field.value);
  json tables = json::object();
  for (std::size_t kind = 0; kind < kGemmTables.size(); ++kind) {
    std::string csv;
    for (const GemmRow& row : measured.tables.gemm) {
      if (row.kind == static_cast<GemmKind>(kind)) csv += fmt::format("{},{},{},{}\n", row.m, row.n, row.k, row.time_s);
    }
    if (!csv.empty()) tables[kGemmTables[kind]] = "m,n,k,seconds\n" + csv;
  }
  add_attention(tables, "contextAttention", measured.tables.context_attention);
  add_attention(tables, "generationAttention", measured.tables.generation_attention);
  if (!measured.tables.collectives.empty()) {
    std::string csv = "implementation,gpus,bytes,seconds\n";
    for (const CollectiveRow& row : measured.tables.collectives) {
      csv += fmt::format("{},{},{},{}\n", row.implementation, row.gpus, row.bytes, row.time_s);
    }
    tables["allReduce"] = std::move(csv);
  }
  return {{"weights", kWeights[static_cast<std::size_t>(measured.weights)]},
          {"shape", std::move(shape)},
          {"overhead", std::move(overhead)},
          {"tables", std::move(tables)}};
}

json transfer_json(const MeasuredTransfer& transfer) {
  json out = {{"bandwidthBytesPerSecond", print_coefficient(transfer.bandwidth_bytes_per_s)},
              {"latencySeconds", print_coefficient(transfer.latency_s)}};
  if (transfer.bytes_per_token > 0) out["bytesPerToken"] = print_coefficient(transfer.bytes_per_token);
  if (transfer.samples > 0) out["samples"] = transfer.samples;
  return out;
}

// Errors are no coefficients: six digits tell all that a few hundred samples know.
std::string share(double value) { return fmt::format("{:.6g}", value); }

}  // namespace

bool is_performance_profile(std::string_view text) {
  return text.find("PerformanceProfile") != std::string_view::npos && text.find("windlass.dev/") != std::string_view::npos;
}

Result<PerformanceProfile> parse_performance_profile(std::string_view text, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(text, source));
  YamlMistake mistake;
  YamlReader reader(root, "", mistake);
  static constexpr std::array kVersions = {"windlass.dev/v1alpha1"};
  static constexpr std::array kKinds = {"PerformanceProfile"};
  (void)reader.choice("apiVersion", kVersions);
  (void)reader.choice("kind", kKinds);
  (void)reader.find("metadata");
  (void)reader.find("status");
  PerformanceProfile profile;
  if (const auto* spec = reader.require("spec", "a map with model, accelerator, gpusPerWorker and fit")) {
    profile = SpecReader(mistake, true).read(*spec);
  }
  reader.finish();
  if (!mistake.what.empty()) return mistake.error(source);
  return profile;
}

Result<PerformanceProfile> performance_profile_from_json(const json& spec) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(spec.dump(1), "spec"));
  YamlMistake mistake;
  PerformanceProfile profile = SpecReader(mistake, false).read(root);
  if (!mistake.what.empty()) return Error{ErrorCode::kInvalidArgument, mistake.what};
  return profile;
}

json to_json(const PerformanceProfile& profile) {
  static constexpr std::array kKeys = {"linear", "profile", "operators"};
  json out = {{"model", {{"name", profile.model}}},
              {"accelerator", profile.accelerator},
              {"gpusPerWorker", profile.gpus_per_worker},
              {"pipelineParallel", profile.pipeline_parallel}};
  if (profile.kv_capacity_tokens) out["kvCapacityTokens"] = static_cast<std::int64_t>(*profile.kv_capacity_tokens);
  if (!profile.source.format.empty()) {
    out["source"] = {
        {"format", profile.source.format}, {"rows", profile.source.rows}, {"rowsLeftOut", profile.source.left_out}};
    if (!profile.source.file.empty()) out["source"]["file"] = profile.source.file;
  }
  out["fit"]["type"] = fit_type(profile);
  out["fit"][kKeys[profile.fit.index()]] = std::visit([](const auto& fit) { return fit_json(fit); }, profile.fit);
  if (profile.transfer) out["transfer"] = transfer_json(*profile.transfer);
  if (profile.errors.empty()) return out;
  out["error"]["folds"] = profile.folds;
  for (const FitError& error : profile.errors) {
    json part = {{"name", error.part},
                 {"samples", error.samples},
                 {"meanError", share(error.mape)},
                 {"medianError", share(error.median_ape)},
                 {"maxError", share(error.max_ape)}};
    if (error.unseen_mape) part["unseenMeanError"] = share(*error.unseen_mape);
    out["error"]["parts"].push_back(std::move(part));
  }
  return out;
}

std::string print_coefficient(double value) { return fmt::format("{:.17g}", value); }

std::optional<double> parse_coefficient(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value + 0.0;
}

}  // namespace windlass::planner
