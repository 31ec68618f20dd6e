// Reduces operator tables to what one model needs; see profile_operators.h.
#include "planner/perf/profile_operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/weight_matrices.h"
#include "planner/perf/cross_validation.h"
#include "planner/perf/error_summary.h"
#include "planner/perf/least_squares.h"
#include "planner/perf/operator_times.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::planner {
namespace {

// As many as the interpolation uses.
constexpr int kAttentionNeighbours = LocalRegression::Options{}.neighbours;
// The reduction is refused if it changes any iteration by more than this.
constexpr double kMaxChange = 1e-3;

double rounded(double time_s) { return parse_coefficient(fmt::format("{:.6g}", time_s)).value_or(time_s); }

// Merges rows with equal keys, with their median time, in key order.
template <class Row, class KeyOf>
std::vector<Row> distinct(const std::vector<Row>& rows, const KeyOf& key_of) {
  std::map<decltype(key_of(rows.front())), std::vector<const Row*>> by_key;
  for (const Row& row : rows) by_key[key_of(row)].push_back(&row);
  std::vector<Row> result;
  for (auto& [key, same] : by_key) {
    std::sort(same.begin(), same.end(), [](const Row* a, const Row* b) { return a->time_s < b->time_s; });
    result.push_back(*same[same.size() / 2]);
    if (same.size() % 2 == 0) result.back().time_s = (result.back().time_s + same[same.size() / 2 - 1]->time_s) / 2;
    result.back().time_s = rounded(result.back().time_s);
  }
  return result;
}

std::vector<GemmRow> distinct_products(const std::vector<GemmRow>& rows) {
  return distinct(rows, [](const GemmRow& row) { return std::tuple(row.kind, row.m, row.n, row.k); });
}
std::vector<AttentionRow> distinct_attention(const std::vector<AttentionRow>& rows) {
  return distinct(rows, [](const AttentionRow& row) { return std::tuple(row.batch, row.length, row.heads, row.kv_heads); });
}
std::vector<CollectiveRow> distinct_collectives(const std::vector<CollectiveRow>& rows) {
  return distinct(rows, [](const CollectiveRow& row) { return std::tuple(row.implementation, row.gpus, row.bytes); });
}

// ---- what a model needs

double kv_heads_on_gpu(const ModelShape& shape, int tp) {
  if (shape.latent_attention) return static_cast<double>(shape.heads) / tp;
  return std::max(1.0, static_cast<double>(shape.kv_heads) / tp);
}

// (n, k) of the products on one GPU, with each matrix split by outputs, by inputs, both or not; OperatorModel knows which.
struct Product {
  double n = 0;
  double k = 0;
};
std::vector<Product> products_of(const ModelShape& shape, const OperatorModelOptions& options, GemmKind kind) {
  const double tp = options.tensor_parallel;
  std::vector<Product> products;
  for (const WeightMatrix& matrix : weight_matrices(shape)) {
    if (matrix.role == MatrixRole::kLookup) continue;
    const bool in_16_bit = matrix.role == MatrixRole::kRouter || matrix.role == MatrixRole::kOutput;
    if (kind != options.weights && !in_16_bit) continue;
    const auto n = static_cast<double>(matrix.rows);
    const auto k = static_cast<double>(matrix.columns);
    std::set<double> outputs = {n, n / tp};
    if (std::string_view(matrix.name) == "qkv") {
      outputs = {(shape.heads / tp + 2 * kv_heads_on_gpu(shape, options.tensor_parallel)) * shape.head_dim};
    }
    for (const double out : outputs) {
      for (const double in : std::set<double>{k, k / tp}) products.push_back({out, in});
    }
  }
  return products;
}

// ---- what the interpolation uses

// Marks in `kept` the `neighbours` points next to each query, including ties, and for each coordinate one lowest and one
// highest point, so that the bounding box stays the same. Queries outside the box are moved to its border, as in
// LocalRegression.
template <std::size_t Dimensions>
void keep_near(const std::vector<std::array<double, Dimensions>>& points,
               const std::vector<std::array<double, Dimensions>>& queries, int neighbours, std::vector<bool>& kept) {
  if (points.empty()) return;
  std::array<double, Dimensions> low{}, high{};
  for (std::size_t d = 0; d < Dimensions; ++d) {
    const auto [least, most] =
        std::minmax_element(points.begin(), points.end(), [d](const auto& a, const auto& b) { return a[d] < b[d]; });
    kept[static_cast<std::size_t>(least - points.begin())] = true;
    kept[static_cast<std::size_t>(most - points.begin())] = true;
    low[d] = (*least)[d];
    high[d] = (*most)[d];
  }
  std::vector<double> squared(points.size()), sorted;
  for (const auto& query : queries) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      squared[i] = 0;
      for (std::size_t d = 0; d < Dimensions; ++d) {
        const double difference = std::clamp(query[d], low[d], high[d]) - points[i][d];
        squared[i] += difference * difference;
      }
    }
    sorted = squared;
    const std::size_t last = std::min(static_cast<std::size_t>(neighbours), sorted.size()) - 1;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(last), sorted.end());
    // Rounding makes ties of a grid slightly unequal.
    const double reach = sorted[last] * (1 + 1e-9);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (squared[i] <= reach) kept[i] = true;
    }
  }
}

template <class Row>
std::vector<Row> only(const std::vector<Row>& rows, const std::vector<bool>& kept) {
  std::vector<Row> result;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (kept[i]) result.push_back(rows[i]);
  }
  return result;
}

std::vector<GemmRow> cut(const std::vector<GemmRow>& rows, const ModelShape& shape, const OperatorModelOptions& options) {
  std::map<std::pair<GemmKind, double>, std::vector<std::size_t>> planes;
  for (std::size_t i = 0; i < rows.size(); ++i) planes[{rows[i].kind, rows[i].m}].push_back(i);
  std::vector<bool> kept(rows.size());
  for (const auto& [plane, members] : planes) {
    std::vector<std::array<double, 2>> points, queries;
    for (const std::size_t i : members) points.push_back({std::log(rows[i].n), std::log(rows[i].k)});
    for (const Product& product : products_of(shape, options, plane.first)) {
      queries.push_back({std::log(product.n), std::log(product.k)});
    }
    std::vector<bool> of_plane(members.size());
    keep_near<2>(points, queries, kProductNeighbours, of_plane);
    for (std::size_t i = 0; i < members.size(); ++i) kept[members[i]] = of_plane[i];
  }
  return only(rows, kept);
}

std::vector<AttentionRow> cut(const std::vector<AttentionRow>& rows, const ModelShape& shape, int tp) {
  std::vector<std::array<double, 4>> points, queries;
  for (const AttentionRow& row : rows) {
    points.push_back({std::log(row.batch), std::log(row.length), std::log(row.heads), std::log(row.kv_heads)});
  }
  const double octave = std::log(2.0) / kAttentionStepsPerOctave;
  const double heads = std::log(static_cast<double>(shape.heads) / tp);
  const double kv_heads = std::log(kv_heads_on_gpu(shape, tp));
  for (int batch = 0; batch <= kAttentionBatchOctaves * kAttentionStepsPerOctave; ++batch) {
    for (int length = 0; length <= kAttentionLengthOctaves * kAttentionStepsPerOctave; ++length) {
      queries.push_back({batch * octave, length * octave, heads, kv_heads});
    }
  }
  std::vector<bool> kept(rows.size());
  keep_near<4>(points, queries, kAttentionNeighbours, kept);
  return only(rows, kept);
}

// ---- errors on held-out rows

// `make` fits to rows and returns a function from a row to its predicted seconds.
template <class Row, class Make>
void validate_part(const char* part, const std::vector<Row>& rows, const ValidationOptions& options, const Make& make,
                   std::vector<FitError>& errors) {
  if (rows.size() < 2) return;
  std::vector<double> measured, predicted(rows.size());
  for (const Row& row : rows) measured.push_back(row.time_s);
  for (const Split& split : k_folds(rows.size(), options.folds, options.seed)) {
    std::vector<Row> train;
    for (const std::size_t i : split.train) train.push_back(rows[i]);
    const auto predict = make(train);
    for (const std::size_t i : split.test) predicted[i] = predict(rows[i]);
  }
  const ErrorSummary summary = error_summary(measured, predicted);
  errors.push_back({part, static_cast<std::int64_t>(rows.size()), summary.mape, summary.median_ape, summary.max_ape, {}});
}

std::vector<FitError> validated(const OperatorTables& tables, const OperatorHardware& hardware,
                                const AcceleratorEfficiency& efficiency, const OperatorFitRequest& request) {
  std::vector<FitError> errors;
  std::vector<GemmRow> products;  // of the blocks, where most time is spent
  for (const GemmRow& row : tables.gemm) {
    if (row.kind == request.options.weights) products.push_back(row);
  }
  validate_part(
      "gemm", products, request.validation,
      [&](const std::vector<GemmRow>& train) {
        return [table = GemmTable(train, hardware, efficiency)](const GemmRow& row) { return table.at(row.m, row.n, row.k).s; };
      },
      errors);
  const auto attention = [&](const char* part, AttentionPhase phase, const std::vector<AttentionRow>& rows) {
    validate_part(
        part, rows, request.validation,
        [&](const std::vector<AttentionRow>& train) {
          return [table = AttentionTable(phase, train, hardware, efficiency)](const AttentionRow& row) {
            return table.at(row.batch, row.length, row.heads, row.kv_heads).s;
          };
        },
        errors);
  };
  attention("contextAttention", AttentionPhase::kContext, tables.context_attention);
  attention("generationAttention", AttentionPhase::kGeneration, tables.generation_attention);
  validate_part(
      "allReduce", tables.collectives, request.validation,
      [](const std::vector<CollectiveRow>& train) {
        std::map<std::string, std::vector<PiecewiseLinear::Point>> points;
        for (const CollectiveRow& row : train) points[row.implementation].push_back({row.bytes, row.time_s});
        std::map<std::string, PiecewiseLinear> curves;
        for (auto& [implementation, of] : points) curves.emplace(implementation, PiecewiseLinear(std::move(of)));
        return [curves = std::move(curves)](const CollectiveRow& row) {
          const auto curve = curves.find(row.implementation);
          return curve == curves.end() ? 0 : curve->second.at(row.bytes);
        };
      },
      errors);
  return errors;
}

// Only the rows that this model can need with this many GPUs.
OperatorTables needed(const OperatorTables& all, const OperatorFitRequest& request) {
  const OperatorModelOptions& options = request.options;
  OperatorTables tables;
  for (const GemmRow& row : all.gemm) {
    if (row.kind == options.weights || row.kind == GemmKind::kBFloat16) tables.gemm.push_back(row);
  }
  const AttentionKey key{request.shape.head_dim, options.float8_cache, 0};
  for (const AttentionRow& row : all.context_attention) {
    if (row.key == key) tables.context_attention.push_back(row);
  }
  for (const AttentionRow& row : all.generation_attention) {
    if (row.key == key && !request.shape.latent_attention) tables.generation_attention.push_back(row);
  }
  for (const CollectiveRow& row : all.collectives) {
    if (prices_all_reduce(row) && row.gpus == options.tensor_parallel && options.tensor_parallel > 1)
      tables.collectives.push_back(row);
  }
  tables.gemm = distinct_products(tables.gemm);
  tables.context_attention = distinct_attention(tables.context_attention);
  tables.generation_attention = distinct_attention(tables.generation_attention);
  tables.collectives = distinct_collectives(tables.collectives);
  return tables;
}

std::int64_t rows_of(const OperatorTables& tables) {
  return static_cast<std::int64_t>(tables.gemm.size() + tables.context_attention.size() + tables.generation_attention.size() +
                                   tables.collectives.size());
}

// The largest relative difference between two models, over prompts and decodes of all sizes.
double largest_change(const OperatorModel& a, const OperatorModel& b) {
  double largest = 0;
  const auto compare = [&](const Batch& batch) {
    largest = std::max(largest, std::abs(b.iteration_s(batch) / a.iteration_s(batch) - 1));
    // The basis of a prediction must not change either.
    largest = std::max(largest, kMaxChange * 100 * std::abs(a.basis(batch).measured_share() - b.basis(batch).measured_share()));
  };
  for (int sequences = 1; sequences <= 512; sequences *= 2) {
    for (double tokens = 16; tokens <= 131072; tokens *= 2.5) {
      compare(prefill_batch(sequences, std::round(tokens)));
      compare(decode_batch(sequences, std::round(tokens)));
    }
  }
  return largest;
}

}  // namespace

Result<GemmKind> gemm_kind(const ModelShape& shape) {
  if (!shape.quantisation) return GemmKind::kBFloat16;
  if (shape.quantisation->compute == DType::kFloat8) {
    return shape.quantisation->group_columns > 0 ? GemmKind::kFloat8Block : GemmKind::kFloat8;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("weights: must be 16 bits or fp8 (got {})", shape.quantisation->method)};
}

Result<OperatorFit> fit_operators(const OperatorTables& all, const OperatorFitRequest& request) {
  const OperatorModelOptions& options = request.options;
  const OperatorHardware hardware = operator_hardware(request.accelerator);
  const AcceleratorEfficiency efficiency = efficiency_of(request.accelerator.name, hardware.flops_8bit > 0).efficiency;
  OperatorTables tables = needed(all, request);
  OperatorFit fit;
  for (auto* rows : {&tables.context_attention, &tables.generation_attention}) {
    OperatorTables alone;
    (rows == &tables.context_attention ? alone.context_attention : alone.generation_attention) = *rows;
    const std::vector<std::string> turned_away = OperatorTimes(hardware, efficiency, alone).turned_away();
    if (turned_away.empty()) continue;
    fit.notes.insert(fit.notes.end(), turned_away.begin(), turned_away.end());
    rows->clear();
  }
  if (rows_of(tables) == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("operator tables: must have rows for this model (got none): {} products, attention of head_dim {} "
                             "with a 16-bit cache, or all-reduces over {} GPUs",
                             to_string(options.weights), request.shape.head_dim, options.tensor_parallel)};
  }
  const auto model_with = [&](const OperatorTables& with) {
    return OperatorModel::make(request.shape, request.accelerator, OperatorTimes(hardware, efficiency, with), options);
  };
  WINDLASS_ASSIGN_OR_RETURN(const OperatorModel whole, model_with(tables));
  OperatorTables less = tables;
  less.gemm = cut(tables.gemm, request.shape, options);
  less.context_attention = cut(tables.context_attention, request.shape, options.tensor_parallel);
  less.generation_attention = cut(tables.generation_attention, request.shape, options.tensor_parallel);
  WINDLASS_ASSIGN_OR_RETURN(const OperatorModel smaller, model_with(less));
  if (largest_change(whole, smaller) > kMaxChange) less = tables;

  PerformanceProfile& profile = fit.profile;
  profile.accelerator = request.accelerator.name;
  profile.gpus_per_worker = options.tensor_parallel * options.pipeline_parallel;
  profile.pipeline_parallel = options.pipeline_parallel;
  profile.source.rows = rows_of(less);
  profile.source.left_out = rows_of(all) - profile.source.rows;
  profile.folds = request.validation.folds;
  profile.errors = validated(tables, hardware, efficiency, request);
  const auto missing = [&](bool empty, const char* what) {
    if (empty) fit.notes.push_back(fmt::format("no measurements of {}: modelled by roofline from data sheets", what));
  };
  missing(tables.gemm.empty(), "matrix products");
  missing(tables.context_attention.empty(), "prompts' attention");
  missing(tables.generation_attention.empty(), "attention to the cache");
  missing(tables.collectives.empty() && options.tensor_parallel > 1,
          fmt::format("all-reduces over {} GPUs", options.tensor_parallel).c_str());
  profile.fit = MeasuredOperators{operator_shape(request.shape), options.weights, options.overhead, std::move(less)};
  if (const std::size_t bytes = to_json(profile).dump().size(); bytes > kMaxTableBytes) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("operator tables for this model: must be at most {} bytes, the limit of an object of the API server "
                    "(got {}); measure fewer sizes, or use the tables themselves as a latency source",
                    kMaxTableBytes, bytes)};
  }
  return fit;
}

namespace {

bool is_measured(const VidurSample& sample, int tensor_parallel) { return sample.gpus == tensor_parallel && sample.time_s > 0; }

std::vector<GemmRow> measured_products(const VidurProfiles& profiles, const ModelShape& shape, int tensor_parallel) {
  const double tp = tensor_parallel;
  const double heads = shape.heads / tp;
  const double kv_heads = kv_heads_on_gpu(shape, tensor_parallel);
  const std::map<std::string, Product> products = {
      {"attn_pre_proj", {(heads + 2 * kv_heads) * shape.head_dim, static_cast<double>(shape.hidden)}},
      {"attn_post_proj", {static_cast<double>(shape.hidden), heads * shape.head_dim}},
      {"mlp_up_proj", {(shape.gated_mlp ? 2 : 1) * shape.intermediate / tp, static_cast<double>(shape.hidden)}},
      {"mlp_down_proj", {static_cast<double>(shape.hidden), shape.intermediate / tp}}};
  std::vector<GemmRow> rows;
  for (const VidurSample& sample : profiles.mlp) {
    const auto product = products.find(sample.name);
    if (product == products.end() || !is_measured(sample, tensor_parallel)) continue;
    rows.push_back({GemmKind::kBFloat16, sample.x[0], product->second.n, product->second.k, sample.time_s});
  }
  return rows;
}

void add_measured_attention(const VidurProfiles& profiles, const ModelShape& shape, int tensor_parallel,
                            OperatorTables& tables) {
  const double heads = shape.heads / static_cast<double>(tensor_parallel);
  const double kv_heads = kv_heads_on_gpu(shape, tensor_parallel);
  const AttentionKey key{shape.head_dim, false, 0};
  for (const VidurSample& sample : profiles.attention) {
    if (!is_measured(sample, tensor_parallel)) continue;
    const double cached = sample.x[1];
    // Vidur's equivalence derives later chunks of a prompt from whole ones.
    if (sample.name == "attn_prefill" && cached == 0 && sample.x[0] >= 1) {
      tables.context_attention.push_back({key, 1, sample.x[0], heads, kv_heads, sample.time_s});
    }
    if (sample.name == "attn_decode" && cached >= 1) {
      tables.generation_attention.push_back({key, sample.x[0], cached, heads, kv_heads, sample.time_s});
    }
  }
}

// Use measurements within one node if there are any, because the GPUs of a worker share a node; between nodes all-reduces are
// slower.
std::vector<CollectiveRow> measured_all_reduces(const VidurProfiles& profiles, int tensor_parallel) {
  const auto in_one_node = [&](const VidurSample& sample) { return sample.gpus_per_node >= tensor_parallel; };
  const bool node_measured =
      std::any_of(profiles.all_reduce.begin(), profiles.all_reduce.end(), [&](const VidurSample& sample) {
        return sample.name == "all_reduce" && is_measured(sample, tensor_parallel) && in_one_node(sample);
      });
  std::vector<CollectiveRow> rows;
  for (const VidurSample& sample : profiles.all_reduce) {
    if (sample.name != "all_reduce" || !is_measured(sample, tensor_parallel) || tensor_parallel < 2) continue;
    if (node_measured && !in_one_node(sample)) continue;
    rows.push_back({"all_reduce", "nccl", sample.gpus, 2, sample.x[0], sample.time_s + kVidurLaunchSeconds});
  }
  return rows;
}

// CPU time of an iteration, by batch.
std::map<double, double> cpu_times_of(const VidurProfiles& profiles, int tensor_parallel) {
  std::map<double, double> cpu_s;
  for (const VidurSample& sample : profiles.cpu) {
    if (sample.gpus != tensor_parallel) continue;
    if (sample.name == "cpu_schedule" || sample.name == "cpu_prepare_inputs_e2e" || sample.name == "cpu_sampler_e2e" ||
        sample.name == "cpu_process_model_outputs" || sample.name == "cpu_ray_comm_time") {
      cpu_s[sample.x[0]] += sample.time_s;
    }
  }
  return cpu_s;
}

}  // namespace

Result<VidurTables> tables_of(const VidurProfiles& profiles, const ModelShape& shape, int tensor_parallel) {
  VidurTables result;
  result.tables.gemm = measured_products(profiles, shape, tensor_parallel);
  add_measured_attention(profiles, shape, tensor_parallel, result.tables);
  result.tables.collectives = measured_all_reduces(profiles, tensor_parallel);
  if (profiles.cpu.empty()) return result;
  const std::map<double, double> cpu_s = cpu_times_of(profiles, tensor_parallel);
  if (cpu_s.size() < 2) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("CPU times with {} GPUs: must have at least 2 batch sizes (got {})",
                                                          tensor_parallel, cpu_s.size())};
  }
  // Fit a line over the batch.
  Eigen::MatrixXd features(static_cast<Eigen::Index>(cpu_s.size()), 2);
  Eigen::VectorXd seconds(static_cast<Eigen::Index>(cpu_s.size()));
  Eigen::Index row = 0;
  for (const auto& [batch, s] : cpu_s) {
    features(row, 0) = 1;
    features(row, 1) = batch;
    seconds[row++] = s;
  }
  const Eigen::VectorXd line = nonnegative_least_squares(features, seconds);
  result.overhead.iteration_s = line[0];
  result.overhead.sequence_s = line[1];
  return result;
}

}  // namespace windlass::planner
