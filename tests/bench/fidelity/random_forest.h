// RandomForest: averaged regression trees on bootstrap samples (Breiman, "Random Forests", Machine Learning 45, 2001), the
// method with which Vidur interpolates its operators. Only compared with the planner's own interpolation; the planner does not
// use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace windlass::bench {

class RandomForest {
 public:
  struct Options {
    int trees = 12;
    int smallest_leaf = 1;
    std::uint64_t seed = 1;
  };

  // `points` holds values.size() rows of `dimensions`. REQUIRES: at least one row.
  RandomForest(int dimensions, const std::vector<double>& points, const std::vector<double>& values, const Options& options);

  [[nodiscard]] double at(std::span<const double> x) const;

 private:
  struct Node {
    int feature = -1;  // -1: a leaf
    double threshold = 0;
    double value = 0;
    int below = 0;  // children
    int above = 0;
  };
  int grow(std::vector<Node>& tree, std::vector<std::size_t>& rows, std::size_t begin, std::size_t end) const;

  int dimensions_;
  Options options_;
  const std::vector<double>* points_ = nullptr;  // while growing
  const std::vector<double>* values_ = nullptr;
  std::vector<std::vector<Node>> trees_;
};

}  // namespace windlass::bench
