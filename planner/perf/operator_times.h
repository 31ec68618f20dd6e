// OperatorTimes predicts the times of single operators on one GPU: interpolated in measured tables where they cover the sizes,
// from the roofline elsewhere.
//
// Tables store the logarithm of measured time / roofline time. Matrix products: for each measured m a LocalRegression over (log
// n, log k), linear in m between (kernels change tiles with m, so m and m + 1 may differ by 50 %, and neighbours in m say
// little about each other). Attention: a LocalRegression over (batch, length, heads, KV heads). Collectives: time is piecewise
// linear in bytes, per number of GPUs; an all-reduce uses the fastest measured implementation, as engines choose by size. A
// table that contradicts the data sheet is refused and listed in turned_away(): a third of the rows of H200's published context
// attention exceed peak FLOP/s. Immutable after construction; pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "planner/base/executor.h"
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
  // REQUIRES: all rows have the same kind.
  GemmTable(std::span<const GemmRow> rows, const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency);

  [[nodiscard]] bool empty() const { return planes_.empty(); }
  [[nodiscard]] std::vector<double> measured_m() const;
  // Beyond the measured m, time follows the roofline. REQUIRES: !empty(), all > 0.
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
  // REQUIRES: all rows have the same key.
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

// Tables with a larger share of impossible rows are refused: a few outliers are noise, a twentieth is a systematic error.
constexpr double kMaxImpossibleRows = 0.05;

// Fraction of rows that are faster than the data sheet allows (attention: by FLOPs alone, because decode data may be cached).
[[nodiscard]] double impossible_share(std::span<const AttentionRow> rows, AttentionPhase phase,
                                      const OperatorHardware& hardware);

// Whether a measurement can be used for all-reduces. Eager launches of a custom all-reduce include their CPU time, which is
// already in a model's overhead.
[[nodiscard]] bool prices_all_reduce(const CollectiveRow& row);

// Number of neighbours for interpolating a product within its plane of equal m: a cell and its surroundings. More would blur
// the steps between kernels (cross-validated: 8, 12).
inline constexpr int kProductNeighbours = 8;

class OperatorTimes {
 public:
  // Roofline only.
  OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency);
  // `executor`: for the work of building, or null.
  OperatorTimes(const OperatorHardware& hardware, const AcceleratorEfficiency& efficiency, const OperatorTables& tables,
                Executor* executor = nullptr);

  [[nodiscard]] OperatorTime gemm(GemmKind kind, double m, double n, double k) const;
  // As it runs inside a model: at least the time to read its weights from memory.
  [[nodiscard]] OperatorTime cold_gemm(GemmKind kind, double m, double n, double k) const;
  [[nodiscard]] OperatorTime context_attention(const AttentionKey& key, double batch, double length, double heads,
                                               double kv_heads) const;
  [[nodiscard]] OperatorTime generation_attention(const AttentionKey& key, double batch, double context, double heads,
                                                  double kv_heads) const;
  [[nodiscard]] OperatorTime all_reduce(int gpus, double bytes) const;
  // Norms, activations and similar: one kernel that streams `bytes`.
  [[nodiscard]] double elementwise_s(double bytes) const;

  [[nodiscard]] std::vector<double> measured_m(GemmKind kind) const;
  // Tables that contradict the data sheet, one line for each.
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
