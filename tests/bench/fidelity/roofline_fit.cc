// Implements roofline_fit.h.
#include "tests/bench/fidelity/roofline_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <Eigen/Dense>
#include <fmt/format.h>

namespace windlass::bench {

namespace {

using planner::OperatorEfficiency;
using planner::OperatorWork;

constexpr std::size_t kMaxRows = 6000;  // per fit; more rows change only the third digit
constexpr double kSoft = 0.1;           // relative error at which the loss turns from quadratic to linear

// One fitted coefficient: a member and its plausible range.
template <class T>
struct Coefficient {
  double T::*member;
  double start;
  double low;
  double high;
};

struct Sample {
  OperatorWork work;
  double peak = 0;
  double time_s = 0;
};

// Minimises sum soft_l1(log(price(x, i) / time_i)) over x = exp(parameters), each within its range.
template <class T, class Price>
T minimise(const std::vector<Coefficient<T>>& coefficients, T start, std::size_t samples, const Price& log_ratio) {
  const auto parameters = static_cast<Eigen::Index>(coefficients.size());
  Eigen::VectorXd x(parameters);
  for (Eigen::Index p = 0; p < parameters; ++p) x[p] = std::log(coefficients[static_cast<std::size_t>(p)].start);
  const auto with = [&](const Eigen::VectorXd& logs) {
    T result = start;
    for (Eigen::Index p = 0; p < parameters; ++p) {
      const Coefficient<T>& coefficient = coefficients[static_cast<std::size_t>(p)];
      result.*coefficient.member = std::clamp(std::exp(logs[p]), coefficient.low, coefficient.high);
    }
    return result;
  };
  const auto residuals = [&](const Eigen::VectorXd& logs) {
    const T values = with(logs);
    Eigen::VectorXd result(static_cast<Eigen::Index>(samples));
    for (std::size_t i = 0; i < samples; ++i) result[static_cast<Eigen::Index>(i)] = log_ratio(values, i);
    return result;
  };
  const auto loss = [](const Eigen::VectorXd& r) { return ((1 + (r.array() / kSoft).square()).sqrt() - 1).sum(); };

  double damping = 1e-2;
  Eigen::VectorXd r = residuals(x);
  for (int step = 0; step < 200 && damping < 1e8; ++step) {
    Eigen::MatrixXd jacobian(r.size(), parameters);
    for (Eigen::Index p = 0; p < parameters; ++p) {
      constexpr double kDelta = 1e-5;
      Eigen::VectorXd moved = x;
      moved[p] += kDelta;
      jacobian.col(p) = (residuals(moved) - r) / kDelta;
    }
    const Eigen::VectorXd weights = (1 + (r.array() / kSoft).square()).rsqrt().matrix();
    Eigen::MatrixXd normal = jacobian.transpose() * weights.asDiagonal() * jacobian;
    const Eigen::VectorXd gradient = jacobian.transpose() * weights.asDiagonal() * r;
    const double before = loss(r);
    bool better = false;
    while (!better && damping < 1e8) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() += damping * (normal.diagonal().array() + 1e-9).matrix();
      Eigen::VectorXd next = x - damped.ldlt().solve(gradient).cwiseMax(-1).cwiseMin(1);
      for (Eigen::Index p = 0; p < parameters; ++p) {
        const Coefficient<T>& coefficient = coefficients[static_cast<std::size_t>(p)];
        next[p] = std::clamp(next[p], std::log(coefficient.low), std::log(coefficient.high));
      }
      const Eigen::VectorXd moved = residuals(next);
      const double after = loss(moved);
      better = after < before;
      damping = better ? std::max(damping / 4, 1e-9) : damping * 4;
      if (!better) continue;
      x = next;
      r = moved;
      if (before - after < 1e-7 * before) return with(x);
    }
  }
  return with(x);
}

OperatorEfficiency fit(const std::vector<Sample>& samples, double bandwidth, bool groups, bool cache, bool exponentials) {
  if (samples.empty()) return {};
  double least = std::numeric_limits<double>::infinity();
  for (const Sample& sample : samples) least = std::min(least, sample.time_s);
  using E = OperatorEfficiency;
  std::vector<Coefficient<E>> coefficients = {{&E::launch_s, least, 1e-7, 1e-4},
                                              {&E::compute, 0.7, 0.05, 1},
                                              {&E::bandwidth, 0.8, 0.05, 1},
                                              {&E::sharpness, 2, 1, 8},
                                              {&E::serial_s, 1e-9, 1e-13, 1e-6}};
  if (groups) coefficients.push_back({&E::group_s, 1e-8, 1e-13, 1e-6});
  if (cache) {
    coefficients.push_back({&E::cache_gain, 1, 1e-3, 10});
    coefficients.push_back({&E::cache_bytes, 2e7, 2e6, 2e8});
  }
  if (exponentials) coefficients.push_back({&E::exponential_flops, 100, 1, 2000});
  OperatorEfficiency start;
  start.cache_gain = 0;
  return minimise<OperatorEfficiency>(
      coefficients, start, samples.size(), [&](const OperatorEfficiency& efficiency, std::size_t i) {
        return std::log(planner::roofline_s(samples[i].work, samples[i].peak, bandwidth, efficiency) / samples[i].time_s);
      });
}

template <class Row>
std::vector<Row> thinned(const std::vector<Row>& rows) {
  const std::size_t step = rows.size() / kMaxRows + 1;
  std::vector<Row> result;
  for (std::size_t i = 0; i < rows.size(); i += step) result.push_back(rows[i]);
  return result;
}

OperatorEfficiency fit_gemm(const MeasuredGpu& gpu, planner::GemmKind kind) {
  std::vector<planner::GemmRow> rows;
  for (const planner::GemmRow& row : gpu.tables.gemm) {
    if (row.kind == kind) rows.push_back(row);
  }
  std::vector<Sample> samples;
  for (const planner::GemmRow& row : thinned(rows)) {
    samples.push_back({planner::gemm_work(kind, row.m, row.n, row.k), planner::peak_flops(gpu.hardware, kind), row.time_s});
  }
  return fit(samples, gpu.hardware.memory_bandwidth_bytes_per_s, false, true, false);
}

OperatorEfficiency fit_attention(const MeasuredGpu& gpu, planner::AttentionPhase phase) {
  const bool context = phase == planner::AttentionPhase::kContext;
  std::vector<planner::AttentionRow> rows;
  for (const planner::AttentionRow& row :
       consistent_rows(context ? gpu.tables.context_attention : gpu.tables.generation_attention, phase, gpu.hardware)) {
    if (!row.key.float8_cache && row.key.window_tokens == 0) rows.push_back(row);
  }
  // Softmax and products can only be told apart if head dimensions differ.
  std::set<int> head_dims;
  for (const planner::AttentionRow& row : rows) head_dims.insert(row.key.head_dim);
  std::vector<Sample> samples;
  for (const planner::AttentionRow& row : thinned(rows)) {
    const auto work_of = context ? planner::context_attention_work : planner::generation_attention_work;
    samples.push_back({work_of(row.key, row.batch, row.length, row.heads, row.kv_heads), gpu.hardware.flops_16bit, row.time_s});
  }
  return fit(samples, gpu.hardware.memory_bandwidth_bytes_per_s, !context, !context, context && head_dims.size() > 1);
}

void fit_collectives(const MeasuredGpu& gpu, planner::AcceleratorEfficiency& efficiency) {
  // The fastest implementation at each size, as engines choose.
  std::map<std::pair<int, double>, double> fastest;
  for (const planner::CollectiveRow& row : gpu.tables.collectives) {
    if (row.operation != "all_reduce" || row.element_bytes != 2 || row.implementation == "vllm_eager") continue;
    const auto [at, added] = fastest.emplace(std::pair(row.gpus, row.bytes), row.time_s);
    if (!added) at->second = std::min(at->second, row.time_s);
  }
  const std::vector<std::pair<std::pair<int, double>, double>> samples(fastest.begin(), fastest.end());
  using E = planner::AcceleratorEfficiency;
  const std::vector<Coefficient<E>> coefficients = {{&E::collective_launch_s, 4e-6, 1e-7, 1e-4},
                                                    {&E::collective_hop_s, 1e-6, 1e-9, 1e-4},
                                                    {&E::collective_share, 0.7, 0.01, 1}};
  efficiency = minimise<E>(coefficients, efficiency, samples.size(), [&](const E& values, std::size_t i) {
    const auto& [key, time_s] = samples[i];
    return std::log(planner::all_reduce_roofline_s(gpu.hardware, values, key.first, key.second) / time_s);
  });
}

std::string source_of(const OperatorEfficiency& e) {
  return fmt::format("{{{:.3g}, {:.3g}, {:.3g}, {:.3g}, {:.3g}, {:.3g}, {:.3g}, {:.3g}, {:.3g}}}", e.launch_s, e.compute,
                     e.bandwidth, e.sharpness, e.serial_s, e.group_s, e.cache_gain, e.cache_bytes, e.exponential_flops);
}

}  // namespace

std::vector<planner::AttentionRow> consistent_rows(const std::vector<planner::AttentionRow>& rows,
                                                   planner::AttentionPhase phase, const planner::OperatorHardware& hardware) {
  std::map<planner::AttentionKey, std::vector<planner::AttentionRow>> by_key;
  for (const planner::AttentionRow& row : rows) by_key[row.key].push_back(row);
  std::vector<planner::AttentionRow> result;
  for (const auto& [key, part] : by_key) {
    constexpr double kMaxImpossible = 0.05;
    const bool agree = planner::impossible_share(part, phase, hardware) <= kMaxImpossible;
    std::copy_if(part.begin(), part.end(), std::back_inserter(result),
                 [&](const planner::AttentionRow& row) { return agree || row.heads == 2 * row.kv_heads; });
  }
  return result;
}

FittedEfficiency fit_efficiency(const MeasuredGpu& gpu) {
  FittedEfficiency result;
  result.accelerator = gpu.accelerator;
  planner::AcceleratorEfficiency& efficiency = result.efficiency;
  efficiency.gemm_16bit = fit_gemm(gpu, planner::GemmKind::kBFloat16);
  efficiency.gemm_float8 = fit_gemm(gpu, planner::GemmKind::kFloat8);
  efficiency.gemm_float8_block = fit_gemm(gpu, planner::GemmKind::kFloat8Block);
  std::set<planner::GemmKind> kinds;
  for (const planner::GemmRow& row : gpu.tables.gemm) kinds.insert(row.kind);
  // Kinds without measurements take the coefficients of the most similar kind.
  if (!kinds.contains(planner::GemmKind::kFloat8)) efficiency.gemm_float8 = efficiency.gemm_16bit;
  if (!kinds.contains(planner::GemmKind::kFloat8Block)) efficiency.gemm_float8_block = efficiency.gemm_float8;
  efficiency.context_attention = fit_attention(gpu, planner::AttentionPhase::kContext);
  efficiency.generation_attention = fit_attention(gpu, planner::AttentionPhase::kGeneration);
  fit_collectives(gpu, efficiency);
  return result;
}

std::string as_source(const std::vector<FittedEfficiency>& all) {
  std::string text = fmt::format("const std::array<Named, {}> kMeasured = {{{{\n", all.size());
  for (const FittedEfficiency& fitted : all) {
    const planner::AcceleratorEfficiency& e = fitted.efficiency;
    text += fmt::format(
        "    {{\"{}\",\n     {{{},\n      {},\n      {},\n      {},\n      {},\n      {:.3g},\n      {:.3g},\n      "
        "{:.3g}}}}},\n",
        fitted.accelerator, source_of(e.gemm_16bit), source_of(e.gemm_float8), source_of(e.gemm_float8_block),
        source_of(e.context_attention), source_of(e.generation_attention), e.collective_launch_s, e.collective_hop_s,
        e.collective_share);
  }
  return text + "}};\n";
}

}  // namespace windlass::bench
