// See hexgen2_partition.h.
#include "planner/strategies/hexgen2/hexgen2_partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include <Eigen/Dense>

namespace windlass::hetero {
namespace {

constexpr Eigen::Index kMaxDense = 256;  // nodes: up to this number all eigenvectors are computed, beyond it Lanczos' method is
                                         // used
constexpr Eigen::Index kMaxEigenvectors = 16;
constexpr std::size_t kNeighbours = 3;  // with many groups, each is refined with this many neighbours
constexpr std::size_t kAllGroups = 48;
constexpr double kBalance = 4;  // weight of a group's squared relative deviation of memory, in links of full bandwidth

double bandwidth(const LinkTable& links, int a, int b) { return links.of(a, b).bytes_per_s; }

// The Laplacian of the GPUs' graph, restricted to vectors that are constant on nodes and made symmetric by the square roots of
// the GPU counts. Default links form a complete graph: their part of a product is two sums, so a product takes time linear in
// nodes and links.
class NodeLaplacian {
 public:
  explicit NodeLaplacian(const GpuCluster& cluster) : root_(static_cast<Eigen::Index>(cluster.nodes.size())) {
    const Eigen::Index n = root_.size();
    for (Eigen::Index i = 0; i < n; ++i)
      root_[i] = std::sqrt(static_cast<double>(cluster.nodes[static_cast<std::size_t>(i)].gpus));
    default_ = cluster.default_link.bytes_per_s;
    const double gpus = root_.squaredNorm();
    degree_ = default_ * (gpus - root_.array().square());
    for (const auto& [pair, link] : cluster.between) {
      const double more = link.bytes_per_s - default_;
      if (more == 0) continue;
      extra_.push_back({pair.first, pair.second, more});
      degree_[pair.first] += more * root_[pair.second] * root_[pair.second];
      degree_[pair.second] += more * root_[pair.first] * root_[pair.first];
    }
  }

  [[nodiscard]] Eigen::Index size() const { return root_.size(); }
  // Its null vector.
  [[nodiscard]] Eigen::VectorXd constant() const { return root_.normalized(); }

  [[nodiscard]] Eigen::VectorXd times(const Eigen::VectorXd& x) const {
    Eigen::VectorXd y = degree_.cwiseProduct(x);
    y -= default_ * (root_.dot(x) * root_ - root_.cwiseAbs2().cwiseProduct(x));
    for (const Extra& extra : extra_) {
      const double weight = extra.more * root_[extra.a] * root_[extra.b];
      y[extra.a] -= weight * x[extra.b];
      y[extra.b] -= weight * x[extra.a];
    }
    return y;
  }

 private:
  struct Extra {
    int a = 0, b = 0;
    double more = 0;
  };
  Eigen::VectorXd root_, degree_;
  double default_ = 0;
  std::vector<Extra> extra_;
};

struct Spectrum {
  Eigen::VectorXd values;   // ascending
  Eigen::MatrixXd vectors;  // one column each
};

Spectrum dense_spectrum(const NodeLaplacian& laplacian) {
  const Eigen::Index n = laplacian.size();
  Eigen::MatrixXd matrix(n, n);
  for (Eigen::Index i = 0; i < n; ++i) matrix.col(i) = laplacian.times(Eigen::VectorXd::Unit(n, i));
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix);
  return {solver.eigenvalues(), solver.eigenvectors()};
}

// Lanczos' method with full orthogonalisation; of a multiple eigenvalue it finds one vector.
Spectrum lanczos_spectrum(const NodeLaplacian& laplacian) {
  const Eigen::Index n = laplacian.size(), most = std::min<Eigen::Index>(n, 4 * kMaxEigenvectors + 32);
  Eigen::MatrixXd basis(n, most);
  Eigen::VectorXd alpha(most), beta(most);
  // Deterministic: a vector that network symmetries are unlikely to leave unchanged.
  Eigen::VectorXd next(n);
  for (Eigen::Index i = 0; i < n; ++i) next[i] = std::sin(1.0 + static_cast<double>(i) * 0.6180339887498949);
  const Eigen::VectorXd constant = laplacian.constant();
  Eigen::Index size = 0;
  double scale = 0;
  for (; size < most; ++size) {
    next -= constant.dot(next) * constant;
    for (int again = 0; again < 2; ++again) {
      next -= basis.leftCols(size) * (basis.leftCols(size).transpose() * next);
    }
    const double norm = next.norm();
    if (norm <= 1e-10 * std::max(scale, 1e-300)) break;
    if (size > 0) beta[size - 1] = norm;
    basis.col(size) = next / norm;
    next = laplacian.times(basis.col(size));
    scale = std::max(scale, next.norm());
    alpha[size] = basis.col(size).dot(next);
  }
  Eigen::MatrixXd small = Eigen::MatrixXd::Zero(size, size);
  for (Eigen::Index i = 0; i < size; ++i) {
    small(i, i) = alpha[i];
    if (i + 1 < size) small(i, i + 1) = small(i + 1, i) = beta[i];
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(small);
  Spectrum spectrum;
  spectrum.values.resize(size + 1);
  spectrum.values << 0, solver.eigenvalues();
  spectrum.vectors.resize(n, size + 1);
  spectrum.vectors << constant, basis.leftCols(size) * solver.eigenvectors();
  return spectrum;
}

// Bandwidth between one more GPU on `node` and the group's GPUs, bytes/s.
double attachment(const LinkTable& links, const Composition& group, int node) {
  double sum = 0;
  for (const NodeShare& share : group) sum += share.gpus * bandwidth(links, share.node, node);
  return sum;
}

Composition with(Composition group, int node, int gpus) {
  const auto at =
      std::lower_bound(group.begin(), group.end(), node, [](const NodeShare& share, int key) { return share.node < key; });
  if (at != group.end() && at->node == node) {
    at->gpus += gpus;
    if (at->gpus == 0) group.erase(at);
  } else {
    group.insert(at, {node, gpus});
  }
  return group;
}

class KernighanLin {
 public:
  KernighanLin(const GpuCluster& cluster, const LinkTable& links, std::vector<Composition>& groups)
      : cluster_(cluster), links_(links), groups_(groups) {
    for (const Link& link : links.links()) fastest_ = std::max(fastest_, link.bytes_per_s);
    double total = 0;
    for (const ClusterNode& node : cluster.nodes) {
      total += node.gpus * node.accelerator.memory_bytes;
    }
    fastest_ = std::max(fastest_, 1.0);
    fair_bytes_ = total / static_cast<double>(groups.size());
  }

  // Repeats passes over pairs until none improves.
  void run() {
    constexpr int kMaxPasses = 8;
    const std::size_t n = groups_.size(), reach = n <= kAllGroups ? n : kNeighbours;
    // By group: the pair tried when it last changed. By pair: when it was last tried in vain; until one of its groups changes,
    // it would be again.
    std::vector<std::int64_t> changed(n, 0), in_vain(n * reach, 0);
    std::int64_t now = 0;
    bool improved = true;
    for (int pass = 0; improved && pass < kMaxPasses; ++pass) {
      improved = false;
      for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = a + 1; b < std::min(n, a + 1 + reach); ++b) {
          std::int64_t& last = in_vain[a * reach + b - a - 1];
          if (last > std::max(changed[a], changed[b])) continue;
          ++now;
          if (refine(a, b)) {
            changed[a] = changed[b] = now;
            improved = true;
          } else {
            last = now;
          }
        }
      }
    }
  }

 private:
  [[nodiscard]] double imbalance(const Composition& group) const {
    double memory = 0;
    for (const NodeShare& share : group) {
      memory += share.gpus * cluster_.nodes[static_cast<std::size_t>(share.node)].accelerator.memory_bytes;
    }
    const double off = memory / fair_bytes_ - 1;
    return kBalance * off * off;
  }

  [[nodiscard]] double worth(const Composition& group) const {
    double inside = 0;
    for (const NodeShare& share : group) {
      inside += share.gpus * (attachment(links_, group, share.node) - bandwidth(links_, share.node, share.node)) / 2;
    }
    return inside / fastest_ - imbalance(group);
  }

  // One pass of Kernighan and Lin: exchange the best pair, or move the best GPU, each GPU at most once; keep the best prefix.
  bool refine(std::size_t a, std::size_t b) {
    Composition left = groups_[a], right = groups_[b], left_free = left, right_free = right;
    const double before = worth(left) + worth(right);
    double best = before * (1 + 1e-12) + 1e-12;
    bool found = false;
    while (!left_free.empty() || !right_free.empty()) {
      double step_worth = -std::numeric_limits<double>::infinity();
      int out = -1, in = -1;  // nodes; -1: nothing moves that way
      const auto try_step = [&](int from_left, int from_right) {
        Composition new_left = left, new_right = right;
        if (from_left >= 0)
          new_left = with(std::move(new_left), from_left, -1), new_right = with(std::move(new_right), from_left, 1);
        if (from_right >= 0)
          new_right = with(std::move(new_right), from_right, -1), new_left = with(std::move(new_left), from_right, 1);
        if (new_left.empty() || new_right.empty()) return;
        const double value = worth(new_left) + worth(new_right);
        if (value > step_worth) step_worth = value, out = from_left, in = from_right;
      };
      for (const NodeShare& l : left_free) {
        try_step(l.node, -1);
        for (const NodeShare& r : right_free) {
          if (l.node != r.node) try_step(l.node, r.node);
        }
      }
      for (const NodeShare& r : right_free) try_step(-1, r.node);
      if (out < 0 && in < 0) break;
      if (out >= 0) left = with(left, out, -1), right = with(right, out, 1), left_free = with(left_free, out, -1);
      if (in >= 0) right = with(right, in, -1), left = with(left, in, 1), right_free = with(right_free, in, -1);
      if (step_worth > best) {
        best = step_worth + 1e-12;
        found = true;
        groups_[a] = left;
        groups_[b] = right;
      }
    }
    return found;
  }

  const GpuCluster& cluster_;
  const LinkTable& links_;
  std::vector<Composition>& groups_;
  double fastest_ = 0, fair_bytes_ = 0;
};

}  // namespace

std::vector<int> spectral_order(const GpuCluster& cluster, int groups) {
  const NodeLaplacian laplacian(cluster);
  const Eigen::Index n = laplacian.size();
  std::vector<int> order;
  if (n <= 2) {
    for (int node = 0; node < n; ++node) order.push_back(node);
    return order;
  }
  const Spectrum spectrum = n <= kMaxDense ? dense_spectrum(laplacian) : lanczos_spectrum(laplacian);
  const Eigen::Index count =
      std::min({static_cast<Eigen::Index>(groups), kMaxEigenvectors, static_cast<Eigen::Index>(spectrum.values.size())});
  // Alpert and Yao's vectors, longer in directions that are worth cutting along; then the order that keeps the running sum of
  // vectors longest.
  const double longest = spectrum.values[spectrum.values.size() - 1];
  Eigen::MatrixXd points = spectrum.vectors.leftCols(count);
  for (Eigen::Index k = 0; k < count; ++k) points.col(k) *= std::sqrt(std::max(0.0, longest - spectrum.values[k]));
  std::vector<bool> placed(static_cast<std::size_t>(n), false);
  Eigen::RowVectorXd sum = Eigen::RowVectorXd::Zero(count);
  for (Eigen::Index step = 0; step < n; ++step) {
    const Eigen::VectorXd along = 2 * points * sum.transpose() + points.rowwise().squaredNorm();
    Eigen::Index next = -1;
    for (Eigen::Index i = 0; i < n; ++i) {
      if (placed[static_cast<std::size_t>(i)]) continue;
      // Ties: the first, so that rounding does not decide.
      if (next < 0 || along[i] > along[next] + 1e-9 * std::abs(along[next])) next = i;
    }
    placed[static_cast<std::size_t>(next)] = true;
    order.push_back(static_cast<int>(next));
    sum += points.row(next);
  }
  return order;
}

std::vector<Composition> initial_partition(const GpuCluster& cluster, const LinkTable& links, int groups) {
  double memory_left = 0;
  int gpus_left = cluster.gpus();
  for (const ClusterNode& node : cluster.nodes) memory_left += node.gpus * node.accelerator.memory_bytes;
  std::vector<Composition> partition(1);
  double filled = 0, fair = memory_left / groups;
  for (const int node : spectral_order(cluster, groups)) {
    const ClusterNode& here = cluster.nodes[static_cast<std::size_t>(node)];
    for (int gpu = 0; gpu < here.gpus; ++gpu) {
      const double bytes = here.accelerator.memory_bytes;
      const int groups_left = groups - static_cast<int>(partition.size());
      // Start the next group when that leaves this one nearer to its share, early enough that every group gets GPUs.
      const bool full = filled + bytes - fair > fair - filled;
      if (groups_left > 0 && !partition.back().empty() && (full || gpus_left <= groups_left)) {
        partition.emplace_back();
        filled = 0;
        fair = memory_left / groups_left;
      }
      partition.back() = with(std::move(partition.back()), node, 1);
      filled += bytes;
      memory_left -= bytes;
      --gpus_left;
    }
  }
  KernighanLin(cluster, links, partition).run();
  return partition;
}

double bandwidth_inside(const LinkTable& links, const std::vector<Composition>& groups) {
  double sum = 0;
  for (const Composition& group : groups) {
    for (const NodeShare& share : group) {
      sum += share.gpus * (attachment(links, group, share.node) - bandwidth(links, share.node, share.node)) / 2;
    }
  }
  return sum;
}

std::vector<bool> secondary_partition(const LinkTable& links, const std::vector<Composition>& groups) {
  const auto n = static_cast<Eigen::Index>(groups.size());
  Eigen::MatrixXd weight = Eigen::MatrixXd::Zero(n, n);
  for (Eigen::Index a = 0; a < n; ++a) {
    for (Eigen::Index b = a + 1; b < n; ++b) {
      double sum = 0;
      for (const NodeShare& share : groups[static_cast<std::size_t>(b)]) {
        sum += share.gpus * attachment(links, groups[static_cast<std::size_t>(a)], share.node);
      }
      weight(a, b) = weight(b, a) = sum;
    }
  }
  // Maximum cut: start by alternating along the groups' order and improve by single changes until none helps. gain: growth of
  // the cut when the group changes sides.
  std::vector<bool> prefill(groups.size());
  Eigen::VectorXd gain = Eigen::VectorXd::Zero(n);
  for (std::size_t i = 0; i < groups.size(); ++i) prefill[i] = i % 2 == 0;
  const auto same = [&](Eigen::Index a, Eigen::Index b) {
    return prefill[static_cast<std::size_t>(a)] == prefill[static_cast<std::size_t>(b)];
  };
  for (Eigen::Index a = 0; a < n; ++a) {
    for (Eigen::Index b = 0; b < n; ++b) gain[a] += same(a, b) ? weight(b, a) : -weight(b, a);
  }
  const double least_gain = n == 0 ? 0 : 1e-9 * weight.maxCoeff();
  for (Eigen::Index moves = 0; moves < 4 * n; ++moves) {
    Eigen::Index best = 0;
    if (gain.maxCoeff(&best) <= least_gain) break;
    prefill[static_cast<std::size_t>(best)] = !prefill[static_cast<std::size_t>(best)];
    gain[best] = -gain[best];
    for (Eigen::Index b = 0; b < n; ++b) {
      if (b != best) gain[b] += same(best, b) ? 2 * weight(b, best) : -2 * weight(b, best);
    }
  }
  if (groups.size() > 1 && std::count(prefill.begin(), prefill.end(), prefill[0]) == n) prefill[0] = !prefill[0];
  return prefill;
}

Placement first_phase(StrategyTable& table, int groups) {
  std::vector<Composition> partition = initial_partition(table.cluster(), table.links(), groups);
  const std::vector<bool> prefill = secondary_partition(table.links(), partition);
  Placement placement;
  for (std::size_t i = 0; i < partition.size(); ++i) placement.push_back(place(table, std::move(partition[i]), prefill[i]));
  return placement;
}

}  // namespace windlass::hetero
