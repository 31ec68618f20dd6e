// Implements repetita.h.
#include "tests/bench/repetita.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <sstream>

namespace windlass::bench {

Result<RoundTrips> parse_repetita(const std::string& text) {
  const Error not_a_graph{ErrorCode::kInvalidArgument, "must be a graph in REPETITA's format, NODES and then EDGES"};
  std::istringstream in(text);
  std::string word;
  std::size_t nodes = 0, edges = 0;
  in >> word >> nodes;
  if (!in || word != "NODES" || nodes == 0 || nodes > 10'000) return not_a_graph;
  for (std::size_t i = 0; i < 3 * (nodes + 1); ++i) in >> word;  // a title, and a label and two coordinates each
  in >> word >> edges;
  if (!in || word != "EDGES") return not_a_graph;
  for (int i = 0; i < 6; ++i) in >> word;  // the title
  RoundTrips rtt_s(nodes, std::vector<double>(nodes, std::numeric_limits<double>::infinity()));
  for (std::size_t i = 0; i < nodes; ++i) rtt_s[i][i] = 0;
  for (std::size_t i = 0; i < edges; ++i) {
    std::size_t from = 0, to = 0;
    double weight = 0, bandwidth = 0, delay_us = 0;
    in >> word >> from >> to >> weight >> bandwidth >> delay_us;
    if (!in || from >= nodes || to >= nodes) return not_a_graph;
    rtt_s[from][to] = rtt_s[to][from] = 2 * delay_us / 1e6;
  }
  for (std::size_t k = 0; k < nodes; ++k) {
    for (std::size_t i = 0; i < nodes; ++i) {
      for (std::size_t j = 0; j < nodes; ++j) rtt_s[i][j] = std::min(rtt_s[i][j], rtt_s[i][k] + rtt_s[k][j]);
    }
  }
  return rtt_s;
}

}  // namespace windlass::bench
