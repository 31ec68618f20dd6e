// Implements end_to_end_tables.h.
#include "tests/bench/fidelity/end_to_end_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "controller/cli/console/thread_executor.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/csv_rows.h"
#include "planner/perf/time_errors.h"
#include "tests/bench/fidelity/left_out.h"
#include "tests/bench/fidelity/lines.h"

namespace windlass::bench {
namespace {

struct Pair {
  double tpot_s = 0, ttft_s = 0;
};
using ByRow = std::map<std::size_t, Pair>;

// Everything that several tables need, made once.
class Study {
 public:
  static Result<std::shared_ptr<Study>> make(const std::string& data) {
    WINDLASS_ASSIGN_OR_RETURN(EndToEnd rows, EndToEnd::load(data));
    auto study = std::shared_ptr<Study>(new Study(std::move(rows)));
    WINDLASS_ASSIGN_OR_RETURN(study->counted_, counted_rows(study->data_));
    for (const std::size_t row : study->counted_.rows) study->by_engine_[study->row(row).engine].push_back(row);
    for (const auto& [engine, rows_of_it] : study->by_engine_) {
      WINDLASS_ASSIGN_OR_RETURN(study->costs_[engine], fit_costs(study->predictions_, rows_of_it));
    }
    return study;
  }

  [[nodiscard]] const EndToEndRow& row(std::size_t index) const { return data_.rows()[index]; }
  [[nodiscard]] const std::vector<EndToEndRow>& rows() const { return data_.rows(); }
  [[nodiscard]] const CountedRows& counted() const { return counted_; }
  [[nodiscard]] const std::map<std::string, std::vector<std::size_t>>& by_engine() const { return by_engine_; }
  [[nodiscard]] const std::map<std::string, EngineCosts>& costs() const { return costs_; }
  [[nodiscard]] Predictions& predictions() { return predictions_; }
  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] const std::vector<planner::Replaced>& replaced() const { return data_.replaced(); }

  // With the costs fitted to all rows.
  [[nodiscard]] Result<ByRow> predicted(Kernels kernels = Kernels::kMeasured, Change change = nullptr) {
    Predictions changed(data_, executor_, kernels, change);
    Predictions& of = kernels == Kernels::kMeasured && change == nullptr ? predictions_ : changed;
    ByRow all;
    for (const auto& [engine, rows] : by_engine_) {
      WINDLASS_ASSIGN_OR_RETURN(const auto found, of.of(rows, costs_.at(engine)));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (found[i].fits) all[rows[i]] = {found[i].mean_tpot_s, found[i].mean_ttft_s};
      }
    }
    return all;
  }

  [[nodiscard]] Result<const std::vector<LeftOut>*> left_out() {
    if (!left_out_) {
      WINDLASS_ASSIGN_OR_RETURN(left_out_, leave_out(predictions_, counted_.rows, latents()));
    }
    return &*left_out_;
  }

 private:
  explicit Study(EndToEnd data) : data_(std::move(data)), predictions_(data_, executor_) {}

  EndToEnd data_;
  cli::ThreadExecutor executor_;
  Predictions predictions_;
  CountedRows counted_;
  std::map<std::string, std::vector<std::size_t>> by_engine_;
  std::map<std::string, EngineCosts> costs_;
  std::optional<std::vector<LeftOut>> left_out_;
};

struct BothErrors {
  Errors tpot, ttft;
};
BothErrors both_errors(const Study& study, const ByRow& predicted, const std::function<bool(const EndToEndRow&)>& counts) {
  std::vector<double> tpot, tpot_measured, ttft, ttft_measured;
  for (const auto& [index, pair] : predicted) {
    const EndToEndRow& row = study.row(index);
    if (!counts(row)) continue;
    tpot.push_back(pair.tpot_s);
    tpot_measured.push_back(row.tpot_s);
    ttft.push_back(pair.ttft_s);
    ttft_measured.push_back(row.ttft_s);
  }
  if (tpot.empty()) return {};
  return {errors_of(tpot, tpot_measured), errors_of(ttft, ttft_measured)};
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string median_and_p90(const Errors& errors) {
  return errors.rows == 0 ? "" : fmt::format("{} ({})", percent(errors.median), percent(errors.p90));
}

// ---- what each cause is worth

struct Cause {
  const char* name;
  Kernels kernels;
  Change change;
};

const std::vector<Cause>& causes() {
  using R = LoadRecipe;
  using C = EngineCosts;
  static const std::vector<Cause> kCauses = {
      {"everything", Kernels::kMeasured, nullptr},
      {"the engines' CPU takes no time", Kernels::kMeasured,
       [](R&, C& costs) { costs.iteration_s = costs.sequence_s = costs.prefill_s = costs.eager_layer_s = 0; }},
      {"the front end takes no time", Kernels::kMeasured, [](R&, C& costs) { costs.request_s = costs.token_s = 0; }},
      {"every engine has a budget of 8,192 tokens", Kernels::kMeasured,
       [](R& recipe, C&) {
         recipe.budget_tokens = 8192;
         recipe.budget_prompts = 0;
         recipe.budget_clients = false;
       }},
      {"every cache has 16 bits", Kernels::kMeasured, [](R& recipe, C&) { recipe.float8_cache = false; }},
      {"no iteration is scheduled ahead, no CPU time overlaps", Kernels::kMeasured,
       [](R& recipe, C&) { recipe.schedules_ahead = false; }},
      {"prompts share every iteration with decodes", Kernels::kMeasured,
       [](R& recipe, C&) { recipe.batching = planner::Batching::kSarathi; }},
      {"answers differ in length, by up to 1 %", Kernels::kMeasured, [](R& recipe, C&) { recipe.output_jitter = 0.01; }},
      {"each client sends ten times as many requests", Kernels::kMeasured,
       [](R& recipe, C&) {
         recipe.rounds *= 10;
         recipe.max_requests = 1 << 20;
       }},
      {"the chat template adds nothing", Kernels::kMeasured, [](R& recipe, C&) { recipe.template_tokens = 0; }},
      {"no set has missing slots", Kernels::kMeasured,
       [](R& recipe, C&) {
         recipe.missing_slots = 0;
         recipe.max_sequences = 1 << 20;
       }},
      {"tables as published", Kernels::kAsPublished, nullptr},
      {"tables of the other GPU, by roofline", Kernels::kOtherGpu, nullptr},
      {"no tables: the data sheet with fitted efficiencies", Kernels::kRoofline, nullptr}};
  return kCauses;
}

constexpr std::array kEngines = {"trtllm", "vllm", "sglang"};

std::string name_of(const std::string& engine) {
  return engine == "trtllm" ? "TensorRT-LLM" : engine == "vllm" ? "vLLM" : "SGLang";
}

bool on_h200(const EndToEndRow& row) { return row.gpu == "h200_sxm"; }

Result<std::string> causes_table(Study& study) {
  std::string text =
      "| median error (P90), fitted to these rows | TPOT, TensorRT-LLM | TTFT, TensorRT-LLM | TPOT, vLLM | TTFT, vLLM | TPOT, "
      "SGLang | TTFT, SGLang | TPOT, SGLang on H200 | TTFT, SGLang on H200 | rows |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const Cause& cause : causes()) {
    WINDLASS_ASSIGN_OR_RETURN(const ByRow predicted, study.predicted(cause.kernels, cause.change));
    text += fmt::format("| {} |", cause.name);
    for (const char* engine : kEngines) {
      const auto errors =
          both_errors(study, predicted, [&](const EndToEndRow& row) { return row.engine == engine && !on_h200(row); });
      text += fmt::format(" {} | {} |", median_and_p90(errors.tpot), median_and_p90(errors.ttft));
    }
    const auto h200 = both_errors(study, predicted, on_h200);
    text += fmt::format(" {} | {} | {} |\n", median_and_p90(h200.tpot), median_and_p90(h200.ttft), predicted.size());
  }
  return text;
}

Result<std::string> costs_table(Study& study) {
  std::string text =
      "| fitted, ms | an iteration | more with prompts | a sequence | a layer without CUDA graph | front end, a request | a "
      "token "
      "| client's turn |\n|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [engine, c] : study.costs()) {
    text += fmt::format("| {} ({} rows) | {:.1f} | {:.1f} | {:.3f} | {:.2f} | {:.1f} | {:.3f} | {:.1f} |\n", name_of(engine),
                        study.by_engine().at(engine).size(), 1e3 * c.iteration_s, 1e3 * c.prefill_s, 1e3 * c.sequence_s,
                        1e3 * c.eager_layer_s, 1e3 * c.request_s, 1e3 * c.token_s, 1e3 * c.turnaround_s);
  }
  return text;
}

Result<std::string> rejected_table(Study& study) {
  std::string text = "| H200's table | rows replaced | why |\n|---|---:|---|\n";
  for (const planner::Replaced& one : study.replaced()) {
    text += fmt::format("| {} | {} of {} | {} |\n", one.table, one.rows, one.of, one.why);
  }
  std::map<std::string, std::pair<int, int>> sets;
  for (const std::size_t index : study.counted().suspicious) {
    const EndToEndRow& row = study.row(index);
    auto& [all, suspicious] = sets[set_of(row)];
    ++all;
    WINDLASS_ASSIGN_OR_RETURN(const double share, speed_of_light_share(row));
    suspicious += share > kSuspiciousShare ? 1 : 0;
  }
  text += "\n| set left out of every figure | rows | of these beyond 75 % of the data sheet |\n|---|---:|---:|\n";
  for (const auto& [name, counts] : sets) text += fmt::format("| {} | {} | {} |\n", name, counts.first, counts.second);
  double highest = 0;
  for (const std::size_t index : study.counted().rows) {
    WINDLASS_ASSIGN_OR_RETURN(const double share, speed_of_light_share(study.row(index)));
    highest = std::max(highest, share);
  }
  text += fmt::format("\nThe highest share in any other set is {:.0f} %.\n", 100 * highest);
  if (!study.counted().unfit.empty()) {
    text +=
        fmt::format("\nRows left out because not one request fits the predicted memory: {}.\n", study.counted().unfit.size());
  }
  return text;
}

// ---- rows that were not fitted

struct Group {
  std::string name, kind;
  std::vector<const LeftOutRow*> rows;
};

// "85.7 % x1.15": the share of the rows inside their interval, and the median half-width.
std::string coverage_of(const Study& study, const std::vector<const LeftOutRow*>& rows, Metric metric) {
  std::vector<double> factors;
  double inside = 0;
  for (const LeftOutRow* row : rows) {
    const bool tpot = metric == Metric::kTpot;
    const std::optional<double>& factor = tpot ? row->tpot_factor : row->ttft_factor;
    if (!factor) continue;
    const double predicted_s = tpot ? row->tpot_s : row->ttft_s;
    const double measured_s = tpot ? study.row(row->row).tpot_s : study.row(row->row).ttft_s;
    inside += measured_s <= predicted_s * *factor && measured_s >= predicted_s / *factor ? 1 : 0;
    factors.push_back(*factor);
  }
  if (factors.empty()) return "none";
  std::sort(factors.begin(), factors.end());
  return fmt::format("{} x{:.2f}", percent(inside / static_cast<double>(factors.size())), factors[factors.size() / 2]);
}

std::string left_out_line(const Study& study, const Group& group) {
  ByRow predicted;
  for (const LeftOutRow* row : group.rows) predicted[row->row] = {row->tpot_s, row->ttft_s};
  const BothErrors errors = both_errors(study, predicted, [](const EndToEndRow&) { return true; });
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", group.name, group.rows.size(),
                     percent(errors.tpot.median), percent(errors.tpot.p90), percent(errors.tpot.median_log),
                     coverage_of(study, group.rows, Metric::kTpot), percent(errors.ttft.median), percent(errors.ttft.p90),
                     percent(errors.ttft.median_log), coverage_of(study, group.rows, Metric::kTtft));
}

std::string left_out_table(const Study& study, const std::vector<LeftOut>& all, bool each_group) {
  std::string text =
      "| left out | rows | TPOT, median error | P90 | median log error | inside the interval, half-width | TTFT, median error "
      "| P90 | "
      "median log error | inside, half-width |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  std::vector<Group> kinds;
  std::string groups;
  for (const LeftOut& of : all) {
    if (kinds.empty() || kinds.back().kind != of.kind) kinds.push_back({"all, each " + of.kind + " in turn", of.kind, {}});
    std::map<std::string, Group> by_engine;
    for (const LeftOutRow& row : of.rows) {
      kinds.back().rows.push_back(&row);
      Group& group = by_engine[study.row(row.row).engine];
      const std::string engine = name_of(study.row(row.row).engine);
      group.name = of.kind == "engine" ? engine : fmt::format("{}, {}", of.group, engine);
      group.rows.push_back(&row);
    }
    for (const auto& [engine, group] : by_engine) groups += left_out_line(study, group);
  }
  for (const Group& kind : kinds) text += left_out_line(study, kind);
  return each_group ? text + groups : text;
}

Result<std::string> kernels_left_out(Study& study) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<LeftOut>* all, study.left_out());
  return left_out_table(study, *all, true);
}

// ---- the lines from which `windlass plan` and `simulate` start

// Error kInternal: the product's costs are no longer those fitted to the rows.
Result<void> check_product_costs(const Study& study) {
  using planner::EngineType;
  const std::map<std::string, EngineType> types = {
      {"trtllm", EngineType::kTensorRTLLM}, {"vllm", EngineType::kVLLM}, {"sglang", EngineType::kSGLang}};
  for (const auto& [engine, costs] : study.costs()) {
    const planner::EngineOverhead has = planner::overhead_of(types.at(engine)).value();
    if (has.iteration_s == costs.iteration_s && has.prefill_s == costs.prefill_s && has.sequence_s == costs.sequence_s &&
        has.eager_layer_s == costs.eager_layer_s) {
      continue;
    }
    return Error{ErrorCode::kInternal, fmt::format("planner/perf/engine_overhead.cc: must have the costs of {} in the table "
                                                   "end-to-end-costs (has others)",
                                                   name_of(engine))};
  }
  return {};
}

Result<std::string> lines_table(Study& study) {
  WINDLASS_RETURN_IF_ERROR(check_product_costs(study));
  std::string text =
      "| median error (P90) | rows | TPOT | TPOT by fixed shares | TTFT | TTFT by fixed shares |\n"
      "|---|---:|---:|---:|---:|---:|\n";
  for (const auto& [engine, rows] : study.by_engine()) {
    std::array<ByRow, 2> predicted;
    for (const bool known : {true, false}) {
      const std::optional<EngineCosts> costs = known ? std::optional(study.costs().at(engine)) : std::nullopt;
      WINDLASS_ASSIGN_OR_RETURN(const auto results, predict_by_lines(study.rows(), rows, costs, study.executor()));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (results[i].fits) predicted[known ? 0 : 1][rows[i]] = {results[i].mean_tpot_s, results[i].mean_ttft_s};
      }
    }
    for (const bool h200 : {false, true}) {
      const auto counts = [&](const EndToEndRow& row) { return on_h200(row) == h200; };
      const BothErrors line = both_errors(study, predicted[0], counts), shares = both_errors(study, predicted[1], counts);
      if (line.tpot.rows == 0) continue;
      text += fmt::format("| {}{} | {} | {} | {} | {} | {} |\n", name_of(engine), h200 ? " on H200" : "", line.tpot.rows,
                          median_and_p90(line.tpot), median_and_p90(shares.tpot), median_and_p90(line.ttft),
                          median_and_p90(shares.ttft));
    }
  }
  return text;
}

// The factors that cover nine of ten errors of the rows whose `kind` was left out.
planner::TimeErrors factors_of(const Study& study, const std::vector<LeftOut>& all, const std::string& kind) {
  std::vector<double> tpot, ttft;
  for (const LeftOut& of : all) {
    if (of.kind != kind) continue;
    for (const LeftOutRow& row : of.rows) {
      tpot.push_back(std::abs(std::log(row.tpot_s / study.row(row.row).tpot_s)));
      ttft.push_back(std::abs(std::log(row.ttft_s / study.row(row.row).ttft_s)));
    }
  }
  return {std::exp(conformal_bound(tpot).value_or(0)), std::exp(conformal_bound(ttft).value_or(0))};
}

// Error kInternal: the product's factors are no longer those of the rows.
Result<std::string> lines_left_out(Study& study) {
  WINDLASS_ASSIGN_OR_RETURN(const auto all, leave_out_of_lines(study.predictions(), study.counted().rows, study.executor()));
  std::string text = left_out_table(study, all, false);
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, planner::model_shape_by_name("llama3-8b"));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec h100, planner::accelerator_by_name("h100-80gb"));
  for (const auto& [kind, engine] :
       {std::pair("model", planner::EngineType::kVLLM), {"engine", planner::EngineType::kWindlass}}) {
    const planner::TimeErrors factors = factors_of(study, all, kind), has = planner::sheet_errors(shape, h100, engine);
    text += fmt::format("{}With each {} left out, nine of ten are within a factor of {:.2f} for TPOT and {:.2f} for TTFT.\n",
                        std::string_view(kind) == "model" ? "\n" : "", kind, factors.tpot, factors.ttft);
    if (std::abs(has.tpot - factors.tpot) < 0.005 && std::abs(has.ttft - factors.ttft) < 0.005) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("planner/perf/time_errors.cc: must have the factors {:.2f} and {:.2f} where the "
                             "{} was left out (has {:.2f} and {:.2f})",
                             factors.tpot, factors.ttft, kind, has.tpot, has.ttft)};
  }
  return text;
}

// Predicted with its interval against measured, for each row of an engine while its TP degree was left out.
Result<std::string> left_out_chart(Study& study, const std::string& engine, Metric metric) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<LeftOut>* all, study.left_out());
  charts::Chart chart;
  const bool tpot = metric == Metric::kTpot;
  chart.title = fmt::format("{} of {}, its TP degree left out: predicted with 90 % interval, against measured",
                            tpot ? "TPOT" : "TTFT", name_of(engine));
  chart.x_label = "measured, ms";
  chart.y_label = "predicted, ms";
  chart.x_log = chart.y_log = true;
  double low = 1e300, high = 0;
  for (const LeftOut& of : *all) {
    if (of.kind != "TP") continue;
    charts::ChartSeries series;
    series.name = of.group;
    series.joined = false;
    for (const LeftOutRow& row : of.rows) {
      const EndToEndRow& measured = study.row(row.row);
      if (measured.engine != engine) continue;
      const std::optional<double>& factor = tpot ? row.tpot_factor : row.ttft_factor;
      const double predicted_ms = 1e3 * (tpot ? row.tpot_s : row.ttft_s);
      const double measured_ms = 1e3 * (tpot ? measured.tpot_s : measured.ttft_s);
      charts::ChartPoint point{measured_ms, predicted_ms, {}, {}};
      if (factor) {
        point.low = predicted_ms / *factor;
        point.high = predicted_ms * *factor;
      }
      series.points.push_back(point);
      low = std::min({low, measured_ms, predicted_ms});
      high = std::max({high, measured_ms, predicted_ms});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  charts::ChartSeries equal;
  equal.name = "equal";
  equal.points = {{low, low, {}, {}}, {high, high, {}, {}}};
  equal.marked = false;
  chart.series.push_back(std::move(equal));
  return charts::svg_of(chart);
}

// ---- next to aiconfigurator

Result<ByRow> read_aiconfigurator(const Study& study, const std::string& path) {
  ByRow found;
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  WINDLASS_ASSIGN_OR_RETURN(const planner::CsvRows csv, planner::CsvRows::parse(text, {"row", "ttft_ms", "tpot_ms"}));
  constexpr double kMaxMs = 1e9;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    if (csv.text(i, "ttft_ms").value_or("").empty()) continue;  // it refused the row
    WINDLASS_ASSIGN_OR_RETURN(const int row, csv.integer(i, "row", 0, static_cast<int>(study.rows().size()) - 1));
    WINDLASS_ASSIGN_OR_RETURN(const double ttft_ms, csv.number(i, "ttft_ms", 0, kMaxMs));
    WINDLASS_ASSIGN_OR_RETURN(const double tpot_ms, csv.number(i, "tpot_ms", 0, kMaxMs));
    found[static_cast<std::size_t>(row)] = {tpot_ms * 1e-3, ttft_ms * 1e-3};
  }
  return found;
}

Result<std::string> peers_table(Study& study, const std::string& path) {
  if (path.empty()) return std::string("Not made: give `latency_fidelity --aiconfigurator FILE`.\n");
  WINDLASS_ASSIGN_OR_RETURN(ByRow peer, read_aiconfigurator(study, path));
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<LeftOut>* all, study.left_out());
  std::string text =
      "| set | rows | TPOT, aiconfigurator | Windlass, TP degree left out | Windlass, model left out | TTFT, aiconfigurator | "
      "Windlass, TP degree left out | Windlass, model left out |\n|---|---:|---:|---:|---:|---:|---:|---:|\n";
  const auto of_kind = [&](const std::string& kind) {
    ByRow rows;
    for (const LeftOut& of : *all) {
      if (of.kind != kind) continue;
      for (const LeftOutRow& row : of.rows) {
        if (peer.contains(row.row)) rows[row.row] = {row.tpot_s, row.ttft_s};
      }
    }
    return rows;
  };
  const ByRow by_tp = of_kind("TP"), by_model = of_kind("model");
  std::erase_if(peer, [&](const auto& entry) { return !by_tp.contains(entry.first); });
  if (peer.empty()) return Error{ErrorCode::kInvalidArgument, path + ": must have predictions for the rows (got none)"};
  std::map<std::string, std::size_t> sets;
  const auto name_of_set = [](const EndToEndRow& row) {
    return fmt::format("{}, {}, {}", name_of(row.engine), short_model(row), row.gpu);
  };
  for (const auto& [row, pair] : peer) ++sets[name_of_set(study.row(row))];
  for (const auto& [name, rows] : sets) {
    const std::string& set = name;
    const auto of = [&](const ByRow& predicted) {
      return both_errors(study, predicted, [&](const EndToEndRow& row) { return name_of_set(row) == set; });
    };
    const BothErrors theirs = of(peer), tp = of(by_tp), model = of(by_model);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", set, rows, median_and_p90(theirs.tpot),
                        median_and_p90(tp.tpot), median_and_p90(model.tpot), median_and_p90(theirs.ttft),
                        median_and_p90(tp.ttft), median_and_p90(model.ttft));
  }
  text += fmt::format("\naiconfigurator refused {} of {} rows, which are in no column.\n",
                      study.counted().rows.size() - peer.size(), study.counted().rows.size());
  return text;
}

Result<std::string> rows_table(Study& study) {
  WINDLASS_ASSIGN_OR_RETURN(const ByRow predicted, study.predicted());
  std::string text =
      "| GPU | engine | version | model | TP | input | output | clients | TTFT ms | predicted | TPOT ms | predicted "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [index, pair] : predicted) {
    const EndToEndRow& row = study.row(index);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.0f} | {:.0f} | {:.2f} | {:.2f} |\n", row.gpu, row.engine,
                        row.version, row.model, row.tensor_parallel, row.input_tokens, row.output_tokens, row.clients,
                        row.ttft_s * 1e3, pair.ttft_s * 1e3, row.tpot_s * 1e3, pair.tpot_s * 1e3);
  }
  return text;
}

}  // namespace

std::vector<LatencyTable> end_to_end_tables(const std::string& aiconfigurator_csv) {
  using Made = std::function<Result<std::string>(Study&)>;
  const auto shared = std::make_shared<std::map<std::string, std::shared_ptr<Study>>>();  // by `data`
  std::vector<LatencyTable> tables;
  const auto add = [&](std::string name, Made made) {
    tables.push_back({std::move(name), [shared, made = std::move(made)](const std::string& data) -> Result<std::string> {
                        std::shared_ptr<Study>& study = (*shared)[data];
                        if (study == nullptr) {
                          WINDLASS_ASSIGN_OR_RETURN(study, Study::make(data));
                        }
                        return made(*study);
                      }});
  };
  add("end-to-end", causes_table);
  add("end-to-end-costs", costs_table);
  add("end-to-end-rejected", rejected_table);
  add("left-out", kernels_left_out);
  add("lines", lines_table);
  add("lines-left-out", lines_left_out);
  add("left-out-peers", [aiconfigurator_csv](Study& study) { return peers_table(study, aiconfigurator_csv); });
  add("end-to-end-rows", rows_table);
  for (const char* engine : kEngines) {
    add(fmt::format("latency-tpot-{}.svg", engine),
        [engine](Study& study) { return left_out_chart(study, engine, Metric::kTpot); });
    add(fmt::format("latency-ttft-{}.svg", engine),
        [engine](Study& study) { return left_out_chart(study, engine, Metric::kTtft); });
  }
  return tables;
}

}  // namespace windlass::bench
