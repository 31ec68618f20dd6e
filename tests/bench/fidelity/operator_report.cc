// Implements operator_report.h.
#include "tests/bench/fidelity/operator_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "planner/perf/cross_validation.h"
#include "planner/perf/error_summary.h"
#include "planner/perf/robust_median.h"
#include "tests/bench/fidelity/random_forest.h"
#include "tests/bench/fidelity/roofline_fit.h"

namespace windlass::bench {

namespace {

using planner::AttentionKey;
using planner::AttentionPhase;
using planner::AttentionRow;
using planner::GemmKind;
using planner::GemmRow;

constexpr int kFolds = 5;
constexpr std::uint64_t kSeed = 1;

FidelityLine line(std::string group, const std::vector<double>& actual, const std::vector<double>& predicted) {
  const planner::ErrorSummary summary = planner::error_summary(actual, predicted);
  return {std::move(group), summary.samples, summary.median_ape, summary.mape};
}

// One row per distinct key, with the median time, ordered by key.
template <class Row, class KeyOf>
std::vector<Row> distinct(const std::vector<Row>& rows, const KeyOf& key_of) {
  std::map<decltype(key_of(rows.front())), std::pair<Row, std::vector<double>>> groups;
  for (const Row& row : rows) {
    auto& group = groups.try_emplace(key_of(row), row, std::vector<double>{}).first->second;
    group.second.push_back(row.time_s);
  }
  std::vector<Row> result;
  for (auto& [key, group] : groups) {
    group.first.time_s = planner::median_of(group.second);
    result.push_back(group.first);
  }
  return result;
}

using Splits = std::vector<planner::Split>;

// Folds over whole columns of a table: a fold holds out all rows with one `column_of`, like shapes that were not measured at
// any size.
template <class Row, class ColumnOf>
Splits column_folds(const std::vector<Row>& rows, const ColumnOf& column_of) {
  std::map<std::pair<double, double>, std::size_t> columns;
  for (const Row& row : rows) columns.emplace(column_of(row), columns.size());
  std::vector<std::size_t> fold_of(columns.size());
  const Splits folds = planner::k_folds(columns.size(), kFolds, kSeed);
  for (std::size_t fold = 0; fold < folds.size(); ++fold) {
    for (const std::size_t column : folds[fold].test) fold_of[column] = fold;
  }
  Splits result(folds.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t fold = fold_of[columns.at(column_of(rows[i]))];
    for (std::size_t f = 0; f < result.size(); ++f) (f == fold ? result[f].test : result[f].train).push_back(i);
  }
  return result;
}

struct Predictions {
  std::vector<double> actual;
  std::vector<double> predicted;
  [[nodiscard]] std::vector<double> errors() const {
    std::vector<double> result;
    for (std::size_t i = 0; i < actual.size(); ++i) result.push_back(std::abs(predicted[i] / actual[i] - 1));
    return result;
  }
};

// Predicts every row with a model built from the other folds.
template <class Row, class Make>
Predictions held_out_predictions(const std::vector<Row>& rows, const Make& make, const Splits& splits) {
  Predictions result;
  for (const planner::Split& split : splits) {
    std::vector<Row> train;
    for (const std::size_t i : split.train) train.push_back(rows[i]);
    const auto predict = make(train);
    for (const std::size_t i : split.test) {
      result.actual.push_back(rows[i].time_s);
      result.predicted.push_back(predict(rows[i]));
    }
  }
  return result;
}
template <class Row, class Make>
FidelityLine held_out(std::string group, const std::vector<Row>& rows, const Make& make) {
  const Predictions found = held_out_predictions(rows, make, planner::k_folds(rows.size(), kFolds, kSeed));
  return line(std::move(group), found.actual, found.predicted);
}

std::map<GemmKind, std::vector<GemmRow>> products_of(const MeasuredGpu& gpu) {
  std::map<GemmKind, std::vector<GemmRow>> result;
  for (const GemmRow& row : gpu.tables.gemm) result[row.kind].push_back(row);
  for (auto& [kind, rows] : result) {
    rows = distinct(rows, [](const GemmRow& row) { return std::tuple(row.m, row.n, row.k); });
  }
  return result;
}

std::map<AttentionKey, std::vector<AttentionRow>> attentions_of(const std::vector<AttentionRow>& all) {
  std::map<AttentionKey, std::vector<AttentionRow>> result;
  for (const AttentionRow& row : all) result[row.key].push_back(row);
  for (auto& [key, rows] : result) {
    rows = distinct(rows, [](const AttentionRow& row) { return std::tuple(row.batch, row.length, row.heads, row.kv_heads); });
  }
  return result;
}

std::string name_of(AttentionPhase phase, const AttentionKey& key) {
  return fmt::format("{} attention d{} {} cache{}", phase == AttentionPhase::kContext ? "context" : "generation", key.head_dim,
                     key.float8_cache ? "fp8" : "bf16",
                     key.window_tokens > 0 ? fmt::format(" window {}", key.window_tokens) : "");
}

const std::vector<AttentionRow>& rows_of(const MeasuredGpu& gpu, AttentionPhase phase) {
  return phase == AttentionPhase::kContext ? gpu.tables.context_attention : gpu.tables.generation_attention;
}

double attention_roofline(const MeasuredGpu& gpu, const planner::AcceleratorEfficiency& efficiency, AttentionPhase phase,
                          const AttentionRow& row) {
  const auto price =
      phase == AttentionPhase::kContext ? planner::context_attention_roofline_s : planner::generation_attention_roofline_s;
  return price(gpu.hardware, efficiency, row.key, row.batch, row.length, row.heads, row.kv_heads);
}

constexpr std::array<AttentionPhase, 2> kPhases = {AttentionPhase::kContext, AttentionPhase::kGeneration};

// Interpolates log(time / reference) over log sizes.
struct Surface {
  planner::LocalRegression regression;
  [[nodiscard]] double factor(const std::vector<double>& sizes) const { return std::exp(regression.at(logs(sizes))); }
  static std::vector<double> logs(const std::vector<double>& sizes) {
    std::vector<double> result;
    for (const double size : sizes) result.push_back(std::log(size));
    return result;
  }
};

template <class Row, class SizesOf, class ReferenceOf>
Surface make_surface(const std::vector<Row>& rows, const SizesOf& sizes_of, const ReferenceOf& reference_of,
                     const planner::LocalRegression::Options& options) {
  std::vector<double> points;
  std::vector<double> values;
  int dimensions = 0;
  for (const Row& row : rows) {
    const std::vector<double> x = Surface::logs(sizes_of(row));
    dimensions = static_cast<int>(x.size());
    points.insert(points.end(), x.begin(), x.end());
    values.push_back(std::log(row.time_s / reference_of(row)));
  }
  return {planner::LocalRegression(dimensions, std::move(points), std::move(values), options)};
}

// Fits a plane through neighbours in all directions; a huge ridge leaves their weighted mean.
template <class Row, class SizesOf, class ReferenceOf>
Predictions held_out_surface(const std::vector<Row>& rows, const SizesOf& sizes_of, const ReferenceOf& reference_of,
                             const planner::LocalRegression::Options& options, const Splits& splits) {
  const auto make = [&](const std::vector<Row>& train) {
    return [&, surface = make_surface(train, sizes_of, reference_of, options)](const Row& row) {
      return reference_of(row) * surface.factor(sizes_of(row));
    };
  };
  return held_out_predictions(rows, make, splits);
}

constexpr double kMeanOfNeighbours = 1e9;

// A random forest over the same sizes and reference.
template <class Row, class SizesOf, class ReferenceOf>
Predictions held_out_forest(const std::vector<Row>& rows, const SizesOf& sizes_of, const ReferenceOf& reference_of,
                            const Splits& splits) {
  const auto make = [&](const std::vector<Row>& train) {
    std::vector<double> points;
    std::vector<double> values;
    int dimensions = 0;
    for (const Row& row : train) {
      const std::vector<double> x = Surface::logs(sizes_of(row));
      dimensions = static_cast<int>(x.size());
      points.insert(points.end(), x.begin(), x.end());
      values.push_back(std::log(row.time_s / reference_of(row)));
    }
    return [&, forest = RandomForest(dimensions, points, values, {})](const Row& row) {
      return reference_of(row) * std::exp(forest.at(Surface::logs(sizes_of(row))));
    };
  };
  return held_out_predictions(rows, make, splits);
}

constexpr const char* kPlane = "plane by 12 neighbours in all sizes";
constexpr const char* kPlaneInNK = "plane by 8 neighbours in n and k";

// Errors of each tried way of interpolation, on one table and one kind of folds; `blank` names table and folds.
template <class Row, class SizesOf, class ReferenceOf>
void add_rivals(std::vector<Candidate>& to, const Candidate& blank, const std::vector<Row>& rows, const SizesOf& sizes,
                const ReferenceOf& reference, const Splits& splits) {
  const auto one = [](const Row&) { return 1.0; };
  const auto add = [&](const char* way, const Predictions& found) {
    to.push_back(blank);
    to.back().way = way;
    to.back().errors = found.errors();
  };
  add(kPlane, held_out_surface(rows, sizes, reference, {.neighbours = 12}, splits));
  add("mean of 8 neighbours", held_out_surface(rows, sizes, reference, {.neighbours = 8, .ridge = kMeanOfNeighbours}, splits));
  add("random forest", held_out_forest(rows, sizes, reference, splits));
  add("plane, on times", held_out_surface(rows, sizes, one, {.neighbours = 12}, splits));
  add("random forest, on times", held_out_forest(rows, sizes, one, splits));
}

}  // namespace

std::vector<FidelityLine> interpolation_lines(const MeasuredGpu& gpu) {
  const planner::AcceleratorEfficiency efficiency = planner::efficiency_of(gpu.accelerator, true).efficiency;
  std::vector<FidelityLine> lines;
  for (const auto& [kind, rows] : products_of(gpu)) {
    lines.push_back(
        held_out(fmt::format("{} GEMM {}", gpu.folder, planner::to_string(kind)), rows, [&](const std::vector<GemmRow>& train) {
          return [table = planner::GemmTable(train, gpu.hardware, efficiency)](const GemmRow& row) {
            return table.at(row.m, row.n, row.k).s;
          };
        }));
  }
  for (const AttentionPhase phase : kPhases) {
    for (const auto& [key, rows] : attentions_of(rows_of(gpu, phase))) {
      const double impossible = planner::impossible_share(rows, phase, gpu.hardware);
      const std::string mark = impossible > 0.01 ? fmt::format(" ({:.0f} % beyond peak)", 100 * impossible) : "";
      lines.push_back(held_out(
          fmt::format("{} {}{}", gpu.folder, name_of(phase, key), mark), rows, [&](const std::vector<AttentionRow>& train) {
            return [table = planner::AttentionTable(phase, train, gpu.hardware, efficiency)](const AttentionRow& row) {
              return table.at(row.batch, row.length, row.heads, row.kv_heads).s;
            };
          }));
    }
  }
  std::map<std::tuple<std::string, std::string, double>, std::vector<planner::CollectiveRow>> collectives;
  for (const planner::CollectiveRow& row : gpu.tables.collectives) {
    collectives[{row.implementation, row.operation, row.element_bytes}].push_back(row);
  }
  for (auto& [key, all] : collectives) {
    const auto rows = distinct(all, [](const planner::CollectiveRow& row) { return std::tuple(row.gpus, row.bytes); });
    const auto& [implementation, operation, element_bytes] = key;
    lines.push_back(held_out(fmt::format("{} {} {} {}-bit", gpu.folder, implementation, operation, 8 * element_bytes), rows,
                             [&](const std::vector<planner::CollectiveRow>& train) {
                               std::map<int, std::vector<planner::PiecewiseLinear::Point>> points;
                               for (const planner::CollectiveRow& row : train)
                                 points[row.gpus].push_back({row.bytes, row.time_s});
                               std::map<int, planner::PiecewiseLinear> curves;
                               for (auto& [gpus, of_gpus] : points)
                                 curves.emplace(gpus, planner::PiecewiseLinear(std::move(of_gpus)));
                               return [curves](const planner::CollectiveRow& row) {
                                 const planner::PiecewiseLinear& curve = curves.at(row.gpus);
                                 return curve.at(std::max(row.bytes, curve.points().front().x));
                               };
                             }));
  }
  return lines;
}

std::vector<Candidate> candidates(const MeasuredGpu& gpu) {
  const planner::AcceleratorEfficiency efficiency = planner::efficiency_of(gpu.accelerator, true).efficiency;
  std::vector<Candidate> result;
  for (const auto& [kind, rows] : products_of(gpu)) {
    const auto sizes = [](const GemmRow& row) { return std::vector<double>{row.m, row.n, row.k}; };
    const auto reference = [&](const GemmRow& row) {
      return planner::gemm_roofline_s(gpu.hardware, efficiency, row.kind, row.m, row.n, row.k);
    };
    const auto in_n_and_k = [&](const std::vector<GemmRow>& train) {
      return [table = planner::GemmTable(train, gpu.hardware, efficiency)](const GemmRow& row) {
        return table.at(row.m, row.n, row.k).s;
      };
    };
    const auto add = [&](const char* folds, const Splits& splits) {
      Candidate blank{gpu.folder, fmt::format("GEMM {}", planner::to_string(kind)), folds, kPlaneInNK, {}};
      result.push_back(blank);
      result.back().errors = held_out_predictions(rows, in_n_and_k, splits).errors();
      add_rivals(result, blank, rows, sizes, reference, splits);
    };
    add("rows", planner::k_folds(rows.size(), kFolds, kSeed));
    add("shapes", column_folds(rows, [](const GemmRow& row) { return std::pair(row.n, row.k); }));
  }
  for (const AttentionPhase phase : kPhases) {
    for (const auto& [key, rows] : attentions_of(rows_of(gpu, phase))) {
      if (key.float8_cache || key.window_tokens > 0 || key.head_dim != 128) continue;
      if (planner::impossible_share(rows, phase, gpu.hardware) > planner::kMaxImpossibleRows) continue;
      const auto sizes = [](const AttentionRow& row) {
        return std::vector<double>{row.batch, row.length, row.heads, row.kv_heads};
      };
      const auto reference = [&, phase = phase](const AttentionRow& row) {
        return attention_roofline(gpu, efficiency, phase, row);
      };
      const Candidate blank{
          gpu.folder, phase == AttentionPhase::kContext ? "context attention" : "generation attention", "rows", {}, {}};
      add_rivals(result, blank, rows, sizes, reference, planner::k_folds(rows.size(), kFolds, kSeed));
      Candidate by_heads = blank;
      by_heads.folds = "heads";
      add_rivals(result, by_heads, rows, sizes, reference,
                 column_folds(rows, [](const AttentionRow& row) { return std::pair(row.heads, row.kv_heads); }));
    }
  }
  return result;
}

std::string as_candidate_table(const std::vector<Candidate>& all) {
  const std::array<const char*, 6> ways = {
      kPlaneInNK, kPlane, "mean of 8 neighbours", "random forest", "plane, on times", "random forest, on times"};
  // Tables in order of appearance, then those of all GPUs.
  std::vector<std::string> order, pooled_order;
  std::map<std::string, std::map<std::string, std::vector<double>>> errors;  // by line and way of interpolation
  for (const Candidate& candidate : all) {
    const std::string of_all = fmt::format("all: {}, {}", candidate.table, candidate.folds);
    const std::string own = fmt::format("{} {}, {}", candidate.gpu, candidate.table, candidate.folds);
    if (!errors.contains(own)) order.push_back(own);
    if (!errors.contains(of_all)) pooled_order.push_back(of_all);
    errors[own][candidate.way] = candidate.errors;
    std::vector<double>& pool = errors[of_all][candidate.way];
    pool.insert(pool.end(), candidate.errors.begin(), candidate.errors.end());
  }
  order.insert(order.end(), pooled_order.begin(), pooled_order.end());
  std::string text = "| median error (mean), held out | points |", rule = "|---|---:|";
  for (const char* way : ways) {
    text += fmt::format(" {} |", way);
    rule += "---:|";
  }
  text += "\n" + rule + "\n";
  for (const std::string& name : order) {
    text += fmt::format("| {} | {} |", name, errors[name].begin()->second.size());
    for (const char* way : ways) {
      const auto found = errors[name].find(way);
      if (found == errors[name].end()) {
        text += " |";
        continue;
      }
      double sum = 0;
      for (const double error : found->second) sum += error;
      const double mean = sum / static_cast<double>(found->second.size());
      text += fmt::format(" {:.1f} % ({:.1f} %) |", 100 * planner::median_of(found->second), 100 * mean);
    }
    text += "\n";
  }
  return text;
}

std::vector<FidelityLine> roofline_lines(const MeasuredGpu& gpu) {
  const planner::AcceleratorEfficiency efficiency = planner::efficiency_of(gpu.accelerator, true).efficiency;
  std::vector<FidelityLine> lines;
  const auto add = [&](const std::string& name, const auto& rows, const auto& price) {
    if (rows.empty()) return;
    constexpr double kFloors = 3;
    double floor_s = rows.front().time_s;
    for (const auto& row : rows) floor_s = std::min(floor_s, row.time_s);
    std::vector<double> actual;
    std::vector<double> predicted;
    std::vector<double> long_actual;
    std::vector<double> long_predicted;
    for (const auto& row : rows) {
      actual.push_back(row.time_s);
      predicted.push_back(price(row));
      if (row.time_s <= kFloors * floor_s) continue;
      long_actual.push_back(row.time_s);
      long_predicted.push_back(predicted.back());
    }
    lines.push_back(line(name, actual, predicted));
    if (!long_actual.empty()) lines.push_back(line(name + ", above 3 x the floor", long_actual, long_predicted));
  };
  for (const auto& [kind, rows] : products_of(gpu)) {
    add(fmt::format("{} GEMM {}", gpu.folder, planner::to_string(kind)), rows,
        [&](const GemmRow& row) { return planner::gemm_roofline_s(gpu.hardware, efficiency, row.kind, row.m, row.n, row.k); });
  }
  for (const AttentionPhase phase : kPhases) {
    const auto price = [&](const AttentionRow& row) { return attention_roofline(gpu, efficiency, phase, row); };
    for (const auto& [key, rows] : attentions_of(rows_of(gpu, phase))) {
      if (key.window_tokens > 0) continue;
      const std::string name = fmt::format("{} {}", gpu.folder, name_of(phase, key));
      add(name, rows, price);
      const std::vector<AttentionRow> consistent = consistent_rows(rows, phase, gpu.hardware);
      if (consistent.size() != rows.size()) add(name + ", rows that agree with their sizes", consistent, price);
    }
  }
  return lines;
}

std::vector<FidelityLine> vidur_lines(const std::vector<planner::VidurSample>& samples) {
  // Operators that only move data between layouts take 0 or 1 us, the profile's resolution: skip times of 0, which have no
  // relative error.
  std::map<std::tuple<std::string, int, int>, std::vector<planner::VidurSample>> operators;
  for (const planner::VidurSample& sample : samples) {
    if (sample.time_s > 0) operators[{sample.name, sample.gpus, sample.gpus_per_node}].push_back(sample);
  }
  std::vector<FidelityLine> lines;
  struct Total {
    double errors = 0;
    std::size_t points = 0;
  };
  std::map<std::string, Total> totals;
  for (const auto& [key, all] : operators) {
    const auto& [name, gpus, per_node] = key;
    const std::vector<planner::VidurSample> rows = distinct(all, [](const planner::VidurSample& sample) { return sample.x; });
    if (rows.size() < 2 * kFolds) continue;
    FidelityLine result;
    const std::string group = per_node > 0 ? fmt::format("{}, {} GPUs, {} a node", name, gpus, per_node) : name;
    if (rows.front().x.size() == 1) {
      result = held_out(group, rows, [](const std::vector<planner::VidurSample>& train) {
        std::vector<planner::PiecewiseLinear::Point> points;
        for (const planner::VidurSample& sample : train) points.push_back({sample.x[0], sample.time_s});
        return [curve = planner::PiecewiseLinear(std::move(points))](const planner::VidurSample& sample) {
          return curve.at(sample.x[0]);
        };
      });
    } else {
      const auto sizes = [](const planner::VidurSample& sample) {
        return std::vector<double>{sample.x[0] + 1, sample.x[1] + 1};
      };
      const Predictions found = held_out_surface(
          rows, sizes, [](const planner::VidurSample&) { return 1.0; }, {.neighbours = 12},
          planner::k_folds(rows.size(), kFolds, kSeed));
      result = line(group, found.actual, found.predicted);
    }
    const std::string kind = name.starts_with("cpu") ? "CPU" : per_node > 0 ? "communication" : "compute";
    totals[kind].errors += result.mean * static_cast<double>(result.points);
    totals[kind].points += result.points;
    lines.push_back(result);
  }
  for (const auto& [kind, total] : totals) {
    const double mean = total.errors / static_cast<double>(total.points);
    lines.push_back({fmt::format("all {} operators (MAPE)", kind), total.points, std::nan(""), mean});
  }
  return lines;
}

std::string as_table(const std::vector<FidelityLine>& lines) {
  std::string text = "| | points | median error | mean error |\n|---|---:|---:|---:|\n";
  for (const FidelityLine& entry : lines) {
    text += fmt::format("| {} | {} | {} | {:.1f} % |\n", entry.group, entry.points,
                        std::isnan(entry.median) ? "" : fmt::format("{:.1f} %", 100 * entry.median), 100 * entry.mean);
  }
  return text;
}

}  // namespace windlass::bench
