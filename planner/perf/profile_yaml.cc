// Reads and writes profiles: see profile_yaml.h. One table of fields reads files and JSON (which is YAML), and writes JSON.
#include "planner/perf/profile_yaml.h"

#include <array>
#include <charconv>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/yaml_table.h"
#include "planner/perf/csv_rows.h"

namespace windlass::planner {
namespace {

using nlohmann::json;

using yaml::choice, yaml::hook, yaml::list, yaml::map, yaml::part, yaml::section, yaml::text, yaml::whole;

constexpr NumberRange kTokens{0, 1e12};
constexpr NumberRange kNotNegative_s{0, 1e9};
constexpr NumberRange kPositive_s{1e-12, 1e9};
constexpr NumberRange kSizes{1, 1e15};
constexpr NumberRange kErrors{0, 1e6};
constexpr std::int64_t kMaxSize = 1'000'000'000;
constexpr std::size_t kMaxPoints = 4096;
constexpr std::array kTypes = {"Linear", "Profile", "Operators"};
constexpr std::array kFits = {"linear", "profile", "operators"};  // their keys
constexpr std::array kForms = {"Aladdin", "Huawei"};
constexpr std::array kReadings = {"BatchTokens", "BatchShape"};
constexpr std::array kWeights = {"BFloat16", "FP8", "FP8Block"};

// A quoted decimal number in the range.
struct Decimal {
  NumberRange range;
  int digits;  // digits written

  [[nodiscard]] double read(YamlReader& reader, const char* key) const {
    const std::string allowed = fmt::format("a quoted decimal from {:g} to {:g}", range.low, range.high);
    const YamlValue* value = reader.require(key, allowed);
    if (value == nullptr) return range.low;
    const auto number = value->kind == YamlValue::Kind::kText && value->quoted ? parse_coefficient(value->text) : std::nullopt;
    if (number && range.low <= *number && *number <= range.high) return *number;
    reader.refuse(key, *value, allowed);
    return range.low;
  }
  [[nodiscard]] std::string written(double value) const { return fmt::format("{:.{}g}", value, digits); }
};

template <class Owner, class Value>
auto decimal(const char* key, Value Owner::*member, NumberRange range, int digits = 17) {
  return yaml::Field<Owner, Value, Decimal>{key, member, {range, digits}};
}

// ---- fitted lines

// The range of a phase's samples in one direction.
auto limits(const char* key, double PhaseRange::*from, double PhaseRange::*to) {
  const auto read_to = [=](YamlReader& reader, PhaseRange& range) {
    decimal("to", to, {range.*from, kTokens.high}).required().read(reader, range, range);
  };
  const auto write_to = [=](json& out, const PhaseRange& range) { decimal("to", to, kTokens).write(out, range); };
  return section(key, map(decimal("from", from, kTokens).required(), hook(read_to, write_to)))
      .required("a map with from and to");
}

auto phase(const char* key, LinearPhase FittedLines::*member) {
  using C = PhaseCoefficients;
  using R = PhaseRange;
  const auto range = map(limits("sequences", &R::fewest_sequences, &R::max_sequences),
                         limits("meanTokens", &R::fewest_mean_tokens, &R::max_mean_tokens),
                         limits("tokens", &R::fewest_tokens, &R::max_tokens));
  return section(key, member,
                 map(part(&LinearPhase::coefficients, decimal("constantSeconds", &C::constant_s, kNotNegative_s),
                          decimal("secondsPerToken", &C::per_token_s, kNotNegative_s),
                          decimal("secondsPerSequence", &C::per_sequence_s, kNotNegative_s),
                          decimal("secondsPerMeanToken", &C::per_mean_token_s, kNotNegative_s)),
                     section("range", &LinearPhase::range, range).required("a map with sequences, meanTokens and tokens")))
      .required("a map with coefficients and range");
}

auto fit_fields(const FittedLines&) {
  return map(choice("form", &FittedLines::form, kForms).required(), phase("prefill", &FittedLines::prefill),
             phase("decode", &FittedLines::decode));
}

// ---- measured cells

auto fit_fields(const MeasuredCells&) {
  using C = MeasuredCell;
  const auto cell =
      map(whole("promptTokens", &C::prompt_tokens, 1, kMaxSize).required(),
          whole("batchSize", &C::batch_size, 1, kMaxSize).required(),
          whole("outputTokens", &C::output_tokens, 1, kMaxSize).required(),
          decimal("promptSeconds", &C::prompt_s, kPositive_s).required(),
          decimal("tokenSeconds", &C::token_s, kPositive_s).required(),
          decimal("endToEndSeconds", &C::end_to_end_s, kNotNegative_s).rare(), whole("runs", &C::runs, 1, kMaxSize));
  return map(choice("reading", &MeasuredCells::reading, kReadings).required(),
             list("points", &MeasuredCells::cells, kMaxPoints, "maps", cell).required());
}

// ---- measured operators

// A column of a CSV table.
template <class Row, class Value>
struct Column {
  const char* name;
  Value Row::*member;
  NumberRange range = kSizes;
  Value Row::*most = nullptr;  // another column that is its upper limit

  Result<void> read(const CsvRows& csv, std::size_t i, Row& row) const {
    if constexpr (std::is_same_v<Value, std::string>) {
      WINDLASS_ASSIGN_OR_RETURN(row.*member, csv.text(i, name));
    } else if constexpr (std::is_same_v<Value, int>) {
      WINDLASS_ASSIGN_OR_RETURN(row.*member, csv.integer(i, name, static_cast<int>(range.low), static_cast<int>(range.high)));
    } else {
      WINDLASS_ASSIGN_OR_RETURN(row.*member, csv.number(i, name, range.low, most != nullptr ? row.*most : range.high));
    }
    return {};
  }
};

// An optional CSV table. Values of a row that are not in its columns come from `like`.
template <class Row, class... Values>
auto table(const char* key, std::vector<Row> OperatorTables::*rows, const Row& like, Column<Row, Values>... columns) {
  const auto read_rows = [=](const std::string& text, MeasuredOperators& measured) -> Result<void> {
    WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {columns.name...}));
    for (std::size_t i = 0; i < csv.rows(); ++i) {
      Row& row = (measured.tables.*rows).emplace_back(like);
      if constexpr (std::is_same_v<Row, AttentionRow>) row.key.head_dim = static_cast<int>(measured.shape.head_dim);
      Result<void> done;
      (void)((done = columns.read(csv, i, row), done.ok()) && ...);
      WINDLASS_RETURN_IF_ERROR(done);
    }
    return {};
  };
  const auto read = [=](YamlReader& reader, MeasuredOperators& measured) {
    const YamlValue* value = reader.find(key);
    if (value == nullptr) return;
    if (value->kind != YamlValue::Kind::kText) return reader.refuse(key, *value, "CSV text");
    const auto done = read_rows(value->text, measured);
    if (!done.ok()) reader.wrong_at(value->line, key, done.error().message);
  };
  const auto write = [=](json& out, const MeasuredOperators& measured) {
    std::string text;
    for (const Row& row : measured.tables.*rows) {
      if constexpr (std::is_same_v<Row, GemmRow>) {
        if (row.kind != like.kind) continue;
      }
      text += fmt::format("{}\n", fmt::join(std::tuple(row.*columns.member...), ","));
    }
    if (!text.empty()) out[key] = fmt::format("{}\n{}", fmt::join({columns.name...}, ","), text);
  };
  return hook(read, write);
}

auto gemm_table(const char* key, GemmKind kind) {
  using Number = Column<GemmRow, double>;
  return table(key, &OperatorTables::gemm, {.kind = kind}, Number{"m", &GemmRow::m}, Number{"n", &GemmRow::n},
               Number{"k", &GemmRow::k}, Number{"seconds", &GemmRow::time_s, kPositive_s});
}

auto attention_table(const char* key, std::vector<AttentionRow> OperatorTables::*rows) {
  using Row = AttentionRow;
  using Number = Column<Row, double>;
  return table(key, rows, {}, Number{"batch", &Row::batch}, Number{"tokens", &Row::length}, Number{"heads", &Row::heads},
               Number{"kvHeads", &Row::kv_heads, kSizes, &Row::heads}, Number{"seconds", &Row::time_s, kPositive_s});
}

auto all_reduce_table() {
  using Row = CollectiveRow;
  return table("allReduce", &OperatorTables::collectives, {.operation = "all_reduce", .implementation = {}},
               Column<Row, std::string>{"implementation", &Row::implementation},
               Column<Row, int>{"gpus", &Row::gpus, {2, 4096}}, Column<Row, double>{"bytes", &Row::bytes},
               Column<Row, double>{"seconds", &Row::time_s, kPositive_s});
}

auto fit_fields(const MeasuredOperators&) {
  const auto size = [](const char* key, std::int64_t OperatorShape::*member) {
    return whole(key, member, 1, kMaxSize).required();
  };
  const auto overhead = [](const char* key, double EngineOverhead::*member) { return decimal(key, member, {0, kSizes.high}); };
  using M = MeasuredOperators;
  using S = OperatorShape;
  using O = EngineOverhead;
  return map(
      choice("weights", &M::weights, kWeights).required(),
      section(
          "shape", &M::shape,
          map(size("layers", &S::layers), size("hidden", &S::hidden), size("heads", &S::heads), size("kvHeads", &S::kv_heads),
              size("headDim", &S::head_dim), size("intermediate", &S::intermediate), size("vocab", &S::vocab)))
          .required("a map with the model's sizes"),
      section("overhead", &M::overhead,
              map(overhead("iterationSeconds", &O::iteration_s), overhead("sequenceSeconds", &O::sequence_s),
                  overhead("prefillSeconds", &O::prefill_s), overhead("eagerLayerSeconds", &O::eager_layer_s),
                  overhead("largestGraphTokens", &O::largest_graph_tokens), overhead("memoryShare", &O::memory_share),
                  overhead("reservedBytes", &O::reserved_bytes))),
      section("tables", map(gemm_table("gemmBFloat16", GemmKind::kBFloat16), gemm_table("gemmFP8", GemmKind::kFloat8),
                            gemm_table("gemmFP8Block", GemmKind::kFloat8Block),
                            attention_table("contextAttention", &OperatorTables::context_attention),
                            attention_table("generationAttention", &OperatorTables::generation_attention), all_reduce_table()))
          .required("a map with tables of operators"));
}

// ---- the whole profile

// The fit of the given type; fits of other types are refused.
void read_fit(YamlReader& reader, PerformanceProfile& profile) {
  const std::size_t type = reader.choice("type", kTypes);
  for (std::size_t i = 0; i < kFits.size(); ++i) {
    if (i != type) reader.belongs(kFits[i], fmt::format("type {} (got {})", kTypes[i], kTypes[type]));
  }
  if (type == 1) profile.fit = MeasuredCells();
  if (type == 2) profile.fit = MeasuredOperators();
  const std::string what = fmt::format("the fit of type {}", kTypes[type]);
  std::visit([&](auto& fit) { section(kFits[type], fit_fields(fit)).required(what.c_str()).read(reader, fit, profile); },
             profile.fit);
}

void write_fit(json& out, const PerformanceProfile& profile) {
  out["type"] = fit_type(profile);
  std::visit([&](const auto& fit) { fit_fields(fit).write(out[kFits[profile.fit.index()]], fit); }, profile.fit);
}

void check_stages(YamlReader& reader, const PerformanceProfile& profile) {
  if (profile.gpus_per_worker % profile.pipeline_parallel == 0) return;
  reader.wrong("pipelineParallel", fmt::format("must be a divisor of gpusPerWorker, {} (got {})", profile.gpus_per_worker,
                                               profile.pipeline_parallel));
}

// Errors are not coefficients: six digits are enough for a few hundred samples.
auto error(const char* key, double FitError::*member) { return decimal(key, member, kErrors, 6).required(); }

auto profile_fields() {
  using P = PerformanceProfile;
  using T = MeasuredTransfer;
  using E = FitError;
  return map(
      section("model", map(text("name", &P::model, "the model's name").required())).required("a map with name"),
      text("accelerator", &P::accelerator, "the accelerator's name").required(),
      whole("gpusPerWorker", &P::gpus_per_worker, 1, 4096).required(),
      whole("pipelineParallel", &P::pipeline_parallel, 1, 1024), hook(check_stages),
      whole("kvCapacityTokens", &P::kv_capacity_tokens, 1, static_cast<std::int64_t>(kTokens.high)),
      section("source", &P::source,
              map(text("file", &FitSource::file, "a file's name").rare(), text("format", &FitSource::format, "a format's name"),
                  whole("rows", &FitSource::rows, 0, kMaxSize), whole("rowsLeftOut", &FitSource::left_out, 0, kMaxSize))),
      section("fit", map(hook(read_fit, write_fit))).required("a map with type"),
      section(
          "transfer", &P::transfer,
          map(decimal("bandwidthBytesPerSecond", &T::bandwidth_bytes_per_s, kSizes).required(),
              decimal("latencySeconds", &T::latency_s, kNotNegative_s),
              decimal("bytesPerToken", &T::bytes_per_token, kSizes).rare(), whole("samples", &T::samples, 1, kMaxSize).rare())),
      section("error", map(whole("folds", &P::folds, 2, 1000).required(),
                           list("parts", &P::errors, 16, "maps",
                                map(text("name", &E::part, "the part's name").required(),
                                    whole("samples", &E::samples, 1, kMaxSize).required(), error("meanError", &E::mape),
                                    error("medianError", &E::median_ape), error("maxError", &E::max_ape),
                                    decimal("unseenMeanError", &E::unseen_mape, kErrors, 6)))
                               .required())));
}

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
  section("spec", profile_fields())
      .required("a map with model, accelerator, gpusPerWorker and fit")
      .read(reader, profile, profile);
  reader.finish();
  if (!mistake.what.empty()) return mistake.error(source);
  return profile;
}

Result<PerformanceProfile> performance_profile_from_json(const json& spec) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(spec.dump(1), "spec"));
  YamlMistake mistake;
  mistake.pass_over_keys = true;
  YamlReader reader(root, "spec", mistake);
  PerformanceProfile profile;
  profile_fields().read_all(reader, profile, profile);
  if (!mistake.what.empty()) return Error{ErrorCode::kInvalidArgument, mistake.what};
  return profile;
}

json to_json(const PerformanceProfile& profile) {
  json out;
  profile_fields().write(out, profile);
  if (profile.source.format.empty()) out.erase("source");
  if (profile.errors.empty()) out.erase("error");
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
