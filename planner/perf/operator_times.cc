// Interpolates operator times; see operator_times.h.
#include "planner/perf/operator_times.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace windlass::planner {

namespace {

// A row is impossible if it is this much faster than the data sheet; the margin allows for clock boost and timer errors.
constexpr double kPossibleExcess = 1.05;

std::string describe(const AttentionKey& key) {
  return fmt::format("head_dim {}, {} cache, window {}", key.head_dim, key.float8_cache ? "fp8" : "16-bit", key.window_tokens);
}

}  // namespace

GemmTable::GemmTable(std::span<const GemmRow> rows, const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency)
    : hardware_(hardware), efficiency_(efficiency) {
  struct Plane {
    std::vector<double> points;
    std::vector<double> values;
  };
  std::map<double, Plane> planes;
  for (const GemmRow& row : rows) {
    kind_ = row.kind;
    Plane& plane = planes[row.m];
    plane.points.insert(plane.points.end(), {std::log(row.n), std::log(row.k)});
    plane.values.push_back(std::log(row.time_s / gemm_roofline_s(hardware, efficiency, row.kind, row.m, row.n, row.k)));
  }
  for (auto& [m, plane] : planes) {
    planes_.push_back(
        {m, LocalRegression(2, std::move(plane.points), std::move(plane.values), {.neighbours = kProductNeighbours})});
  }
}

std::vector<double> GemmTable::measured_m() const {
  std::vector<double> result;
  for (const Plane& plane : planes_) result.push_back(plane.m);
  return result;
}

double GemmTable::on_plane(std::size_t plane, double n, double k) const {
  const std::array<double, 2> x = {std::log(n), std::log(k)};
  return gemm_roofline_s(hardware_, efficiency_, kind_, planes_[plane].m, n, k) * std::exp(planes_[plane].surface.at(x));
}

OperatorTime GemmTable::at(double m, double n, double k) const {
  assert(!empty() && m > 0 && n > 0 && k > 0);
  const std::array<double, 2> x = {std::log(n), std::log(k)};
  const auto above =
      std::lower_bound(planes_.begin(), planes_.end(), m, [](const Plane& plane, double value) { return plane.m < value; });
  const auto index = static_cast<std::size_t>(above - planes_.begin());
  const auto roofline = [&](double tokens) { return gemm_roofline_s(hardware_, efficiency_, kind_, tokens, n, k); };
  if (above == planes_.end()) {
    const double scale = roofline(m) / roofline(planes_.back().m);
    return {on_plane(planes_.size() - 1, n, k) * scale, Coverage::kExtrapolated};
  }
  const bool covered = above->surface.covers(x) && m >= planes_.front().m;
  const Coverage coverage = covered ? Coverage::kMeasured : Coverage::kExtrapolated;
  if (above->m == m || index == 0) return {on_plane(index, n, k), coverage};
  const Plane& below = planes_[index - 1];
  const double share = (m - below.m) / (above->m - below.m);
  return {(1 - share) * on_plane(index - 1, n, k) + share * on_plane(index, n, k), coverage};
}

AttentionTable::AttentionTable(AttentionPhase phase, std::span<const AttentionRow> rows, const OperatorHardware& hardware,
                               const AcceleratorEfficiency& efficiency)
    : phase_(phase), hardware_(hardware), efficiency_(efficiency) {
  if (rows.empty()) return;
  key_ = rows.front().key;
  std::vector<double> points;
  std::vector<double> values;
  for (const AttentionRow& row : rows) {
    points.insert(points.end(), {std::log(row.batch), std::log(row.length), std::log(row.heads), std::log(row.kv_heads)});
    values.push_back(std::log(row.time_s / roofline(row.batch, row.length, row.heads, row.kv_heads)));
  }
  surface_ = LocalRegression(4, std::move(points), std::move(values));
}

double AttentionTable::roofline(double batch, double length, double heads, double kv_heads) const {
  const auto price = phase_ == AttentionPhase::kContext ? context_attention_roofline_s : generation_attention_roofline_s;
  return price(hardware_, efficiency_, key_, batch, length, heads, kv_heads);
}

OperatorTime AttentionTable::at(double batch, double length, double heads, double kv_heads) const {
  const std::array<double, 4> x = {std::log(batch), std::log(length), std::log(heads), std::log(kv_heads)};
  return {roofline(batch, length, heads, kv_heads) * std::exp(surface_.at(x)),
          surface_.covers(x) ? Coverage::kMeasured : Coverage::kExtrapolated};
}

double impossible_share(std::span<const AttentionRow> rows, AttentionPhase phase, const OperatorHardware& hardware) {
  if (rows.empty()) return 0;
  const auto work_of = phase == AttentionPhase::kContext ? context_attention_work : generation_attention_work;
  const auto impossible = std::count_if(rows.begin(), rows.end(), [&](const AttentionRow& row) {
    const OperatorWork work = work_of(row.key, row.batch, row.length, row.heads, row.kv_heads);
    return row.time_s * kPossibleExcess < physical_floor_s(work, hardware.flops_16bit, hardware.memory_bandwidth_bytes_per_s);
  });
  return static_cast<double>(impossible) / static_cast<double>(rows.size());
}

OperatorTimes::OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency)
    : hardware_(hardware), efficiency_(efficiency) {}

OperatorTimes::OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency,
                             const OperatorTables& tables, Executor* executor)
    : hardware_(hardware), efficiency_(efficiency) {
  std::vector<std::function<void()>> builds;
  std::map<GemmKind, std::vector<GemmRow>> products;
  for (const GemmRow& row : tables.gemm) products[row.kind].push_back(row);
  for (const auto& [kind, rows] : products) {
    builds.emplace_back([&, table = &gemm_[kind], rows = &rows] { *table = GemmTable(*rows, hardware, efficiency); });
  }
  const auto add_attention = [&](const std::vector<AttentionRow>& all, AttentionPhase phase,
                                 std::map<AttentionKey, std::vector<AttentionRow>>& by_key,
                                 std::map<AttentionKey, AttentionTable>& to) {
    for (const AttentionRow& row : all) by_key[row.key].push_back(row);
    for (const auto& [key, rows] : by_key) {
      const double share = impossible_share(rows, phase, hardware);
      if (share > kMaxImpossibleRows) {
        turned_away_.push_back(fmt::format("{} attention, {}: {:.0f} % of {} rows are faster than peak FLOP/s allows",
                                           phase == AttentionPhase::kContext ? "context" : "generation", describe(key),
                                           100 * share, rows.size()));
        continue;
      }
      builds.emplace_back(
          [&, table = &to[key], rows = &rows, phase] { *table = AttentionTable(phase, *rows, hardware, efficiency); });
    }
  };
  std::map<AttentionKey, std::vector<AttentionRow>> context, generation;
  add_attention(tables.context_attention, AttentionPhase::kContext, context, context_attention_);
  add_attention(tables.generation_attention, AttentionPhase::kGeneration, generation, generation_attention_);
  run_tasks(executor, builds);

  std::map<std::string, std::map<int, std::vector<PiecewiseLinear::Point>>> curves;
  for (const CollectiveRow& row : tables.collectives) {
    if (!prices_all_reduce(row)) continue;
    curves[row.implementation][row.gpus].push_back({row.bytes, row.time_s});
  }
  for (auto& [implementation, by_gpus] : curves) {
    for (auto& [gpus, points] : by_gpus) all_reduce_[implementation].emplace(gpus, PiecewiseLinear(std::move(points)));
  }
}

bool prices_all_reduce(const CollectiveRow& row) { return row.operation == "all_reduce" && row.implementation != "vllm_eager"; }

OperatorTime OperatorTimes::gemm(GemmKind kind, double m, double n, double k) const {
  const auto table = gemm_.find(kind);
  if (table != gemm_.end()) return table->second.at(m, n, k);
  return {gemm_roofline_s(hardware_, efficiency_, kind, m, n, k), Coverage::kModelled};
}

OperatorTime OperatorTimes::cold_gemm(GemmKind kind, double m, double n, double k) const {
  if (!gemm_.contains(kind)) return {gemm_roofline_s(hardware_, efficiency_, kind, m, n, k, true), Coverage::kModelled};
  OperatorTime time = gemm(kind, m, n, k);
  const double weights_s =
      bytes_per_element(kind) * n * k / (hardware_.memory_bandwidth_bytes_per_s * efficiency_.gemm_16bit.bandwidth);
  time.s = std::max(time.s, weights_s);
  return time;
}

OperatorTime OperatorTimes::context_attention(const AttentionKey& key, double batch, double length, double heads,
                                              double kv_heads) const {
  const auto table = context_attention_.find(key);
  if (table != context_attention_.end()) return table->second.at(batch, length, heads, kv_heads);
  return {context_attention_roofline_s(hardware_, efficiency_, key, batch, length, heads, kv_heads), Coverage::kModelled};
}

OperatorTime OperatorTimes::generation_attention(const AttentionKey& key, double batch, double context, double heads,
                                                 double kv_heads) const {
  const auto table = generation_attention_.find(key);
  if (table != generation_attention_.end()) return table->second.at(batch, context, heads, kv_heads);
  return {generation_attention_roofline_s(hardware_, efficiency_, key, batch, context, heads, kv_heads), Coverage::kModelled};
}

OperatorTime OperatorTimes::all_reduce(int gpus, double bytes) const {
  if (gpus <= 1) return {0, Coverage::kMeasured};
  OperatorTime best;
  for (const auto& [implementation, by_gpus] : all_reduce_) {
    const auto curve = by_gpus.find(gpus);
    if (curve == by_gpus.end()) continue;
    const double s = curve->second.at(std::max(bytes, curve->second.points().front().x));
    const Coverage coverage = bytes <= curve->second.points().back().x ? Coverage::kMeasured : Coverage::kExtrapolated;
    if (best.coverage == Coverage::kModelled || s < best.s) best = {s, coverage};
  }
  if (best.coverage != Coverage::kModelled) return best;
  return {all_reduce_roofline_s(hardware_, efficiency_, gpus, bytes), Coverage::kModelled};
}

double OperatorTimes::elementwise_s(double bytes) const {
  // In a CUDA graph a small kernel starts within about 1.5 us of the previous one.
  constexpr double kLaunchInGraphSeconds = 1.5e-6;
  return kLaunchInGraphSeconds + bytes / (hardware_.memory_bandwidth_bytes_per_s * efficiency_.gemm_16bit.bandwidth);
}

std::vector<double> OperatorTimes::measured_m(GemmKind kind) const {
  const auto table = gemm_.find(kind);
  return table != gemm_.end() ? table->second.measured_m() : std::vector<double>{};
}

}  // namespace windlass::planner
