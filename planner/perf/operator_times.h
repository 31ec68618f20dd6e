// OperatorTimes: the times of single operators on one GPU: interpolated in measured tables where they cover, roofline
// elsewhere.
//
// Tables are kept as logarithms of measured time over roofline time. Matrix products: for each measured m a LocalRegression
// over (log n, log k), linear in m between (kernels change tile with m, so that m and m + 1 may lie 50 % apart: neighbours in m
// say little about each other). Attention: a LocalRegression over (batch, length, heads, KV heads). Collectives: time piecewise
// linear in bytes per number of GPUs; an all-reduce takes the fastest of the implementations measured, as engines choose by
// size. A table that contradicts the data sheet (H200's context attention is published with a third of its rows beyond peak
// FLOP/s) is turned away, and said so in turned_away(). Immutable after construction; pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "planner/perf/iteration_model.h"
#include "planner/perf/local_regression.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/piecewise_linear.h"
#include "planner/perf/roofline.h"

namespace windlass::planner {

struct OperatorTime {
  double s = 0;
  Coverage coverage = Coverage::kModelled;
};

// Interpolates the matrix products of one kind.
class GemmTable {
 public:
  GemmTable() = default;
  // REQUIRES: all rows are of one kind.
  GemmTable(std::span<const GemmRow> rows, const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency);

  [[nodiscard]] bool empty() const { return planes_.empty(); }
  [[nodiscard]] std::vector<double> measured_m() const;
  // Beyond the measured m, time goes with the roofline. REQUIRES: !empty(), all > 0.
  [[nodiscard]] OperatorTime at(double m, double n, double k) const;

 private:
  [[nodiscard]] double on_plane(std::size_t plane, double n, double k) const;

  struct Plane {
    double m;
    LocalRegression surface;
  };
  GemmKind kind_ = GemmKind::kBFloat16;
  OperatorHardware hardware_;
  AcceleratorEfficiency efficiency_;
  std::vector<Plane> planes_;  // ascending in m
};

enum class AttentionPhase { kContext, kGeneration };

// Interpolates the attention of one phase and kernel.
class AttentionTable {
 public:
  AttentionTable() = default;
  // REQUIRES: all rows are of one key.
  AttentionTable(AttentionPhase phase, std::span<const AttentionRow> rows, const OperatorHardware& hardware,
                 const AcceleratorEfficiency& efficiency);

  [[nodiscard]] bool empty() const { return surface_.empty(); }
  // REQUIRES: !empty(), all > 0.
  [[nodiscard]] OperatorTime at(double batch, double length, double heads, double kv_heads) const;

 private:
  [[nodiscard]] double roofline(double batch, double length, double heads, double kv_heads) const;

  AttentionPhase phase_ = AttentionPhase::kContext;
  AttentionKey key_;
  OperatorHardware hardware_;
  AcceleratorEfficiency efficiency_;
  LocalRegression surface_;
};

// Tables with a larger share of impossible rows are turned away: a few outliers are noise, a twentieth is a mistake in how it
// was taken.
constexpr double kMaxImpossibleRows = 0.05;

// Share of the rows that are faster than the data sheet allows (attention: FLOPs alone, as decode data may sit in a cache).
[[nodiscard]] double impossible_share(std::span<const AttentionRow> rows, AttentionPhase phase,
                                      const OperatorHardware& hardware);

// Whether a measurement prices all-reduces: eager launches of a custom all-reduce are measured with their CPU time, which a
// model's own overhead has already.
[[nodiscard]] bool prices_all_reduce(const CollectiveRow& row);

// Neighbours that interpolate a product within its plane of equal m: a cell and its surroundings; more blur the steps between
// kernels (cross-validated: 8, 12).
inline constexpr int kProductNeighbours = 8;

class OperatorTimes {
 public:
  // Roofline only.
  OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency);
  OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, const OperatorTables& tables);

  [[nodiscard]] OperatorTime gemm(GemmKind kind, double m, double n, double k) const;
  // As it runs inside a model: never faster than its weights can be streamed from memory.
  [[nodiscard]] OperatorTime cold_gemm(GemmKind kind, double m, double n, double k) const;
  [[nodiscard]] OperatorTime context_attention(const AttentionKey& key, double batch, double length, double heads,
                                               double kv_heads) const;
  [[nodiscard]] OperatorTime generation_attention(const AttentionKey& key, double batch, double context, double heads,
                                                  double kv_heads) const;
  [[nodiscard]] OperatorTime all_reduce(int gpus, double bytes) const;
  // Norms, activations and the like: one kernel that streams `bytes`.
  [[nodiscard]] double elementwise_s(double bytes) const;

  [[nodiscard]] std::vector<double> measured_m(GemmKind kind) const;
  // Tables that contradict the data sheet, one line each.
  [[nodiscard]] const std::vector<std::string>& turned_away() const { return turned_away_; }
  [[nodiscard]] const OperatorHardware& hardware() const { return hardware_; }
  [[nodiscard]] const AcceleratorEfficiency& efficiency() const { return efficiency_; }

 private:
  OperatorHardware hardware_;
  AcceleratorEfficiency efficiency_;
  std::map<GemmKind, GemmTable> gemm_;
  std::map<AttentionKey, AttentionTable> context_attention_;
  std::map<AttentionKey, AttentionTable> generation_attention_;
  std::map<std::string, std::map<int, PiecewiseLinear>> all_reduce_;  // by implementation and number of GPUs
  std::vector<std::string> turned_away_;
};

}  // namespace windlass::planner
