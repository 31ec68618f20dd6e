// Implements bprr_milp.h: the MILP of joint block placement and request routing.
#include "tests/reference/papers/bprr_milp.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include <fmt/format.h>

#include "planner/mip/mixed_integer_program.h"

namespace windlass::chain {
namespace {

using mip::Term;

// A possible step of one request from server `from` (kSource: from its client) to server `to` (kSink: back to it).
constexpr int kSource = -1;
constexpr int kSink = -2;

struct Link {
  int from = kSource;
  int to = kSink;
  int used = 0;       // x_ij^r
  int processed = 0;  // m_ij x_ij^r; only where `to` is a server
};

class BprrProgram {
 public:
  BprrProgram(const Instance& instance, const OfflineDemand& demand) : instance_(instance), demand_(demand) {
    place_servers();
    for (std::size_t r = 0; r < demand.request_clients.size(); ++r) links_.push_back(route(r));
    order_equal_requests();
    limit_memory();
  }

  [[nodiscard]] const mip::MixedIntegerProgram& program() const { return program_; }

  [[nodiscard]] RoutedPlacement read(const mip::Solution& solution) const {
    RoutedPlacement result;
    result.proved = solution.status == mip::Status::kOptimal || solution.status == mip::Status::kInfeasible;
    result.best_bound_s = solution.best_bound;
    result.feasible = !solution.values.empty();
    if (!result.feasible) return result;
    for (std::size_t j = 0; j < first_.size(); ++j) {
      const int blocks = integer(solution, blocks_[j]);
      result.placement.push_back(BlockRange{blocks == 0 ? 1 : integer(solution, first_[j]), blocks});
    }
    for (std::size_t r = 0; r < links_.size(); ++r) {
      std::vector<int> servers;
      for (int at = kSource; at != kSink;) {
        const auto next = std::find_if(links_[r].begin(), links_[r].end(),
                                       [&](const Link& link) { return link.from == at && integer(solution, link.used) == 1; });
        assert(next != links_[r].end());
        at = next->to;
        if (at != kSink) servers.push_back(at);
      }
      const auto client = static_cast<std::size_t>(demand_.request_clients[r]);
      const auto time_s = route_time_s(instance_, result.placement, demand_.rtt_s[client], servers);
      assert(time_s.has_value());
      result.total_s += *time_s;
      result.routes.push_back(std::move(servers));
    }
    return result;
  }

 private:
  static int integer(const mip::Solution& solution, int variable) {
    return static_cast<int>(std::lround(solution.values[static_cast<std::size_t>(variable)]));
  }

  [[nodiscard]] std::size_t servers() const { return instance_.servers.size(); }
  [[nodiscard]] double model_blocks() const { return instance_.blocks; }

  // a_j, m_j with a_j + m_j - 1 <= L.
  void place_servers() {
    for (std::size_t j = 0; j < servers(); ++j) {
      first_.push_back(program_.add_variable({.lower = 1, .upper = model_blocks() + 1, .integer = true}));
      blocks_.push_back(program_.add_variable({.lower = 0, .upper = model_blocks(), .integer = true}));
      program_.add_at_most({{first_[j], 1}, {blocks_[j], 1}}, model_blocks() + 1);
    }
  }

  // Adds scale * (a_i + m_i), the block after node i, to terms; returns its constant part.
  double add_next_block(int node, double scale, std::vector<Term>& terms) const {
    if (node == kSource) return scale;
    terms.push_back({first_[static_cast<std::size_t>(node)], scale});
    terms.push_back({blocks_[static_cast<std::size_t>(node)], scale});
    return 0;
  }

  // The link's variables and their constraints with the placement. L + 1 exceeds any difference of two blocks.
  Link link(int from, int to, double rtt_s) {
    Link link{from, to, 0, 0};
    const double big = model_blocks() + 1;
    if (to == kSink) {
      // The sink holds only block L + 1: only servers that end with L may precede it.
      link.used = program_.add_variable({.lower = 0, .upper = 1, .integer = true});
      std::vector<Term> last{{link.used, -big}};
      const double constant = add_next_block(from, 1, last);
      program_.add_at_least(std::move(last), model_blocks() + 1 - big - constant);
      return link;
    }
    const auto j = static_cast<std::size_t>(to);
    link.used = program_.add_variable({.lower = 0, .upper = 1, .objective = rtt_s, .integer = true});
    link.processed = program_.add_variable({.lower = 0, .upper = model_blocks(), .objective = instance_.servers[j].block_s});

    // Eq. 11: a_j <= a_i + m_i, if used.
    std::vector<Term> held{{first_[j], 1}, {link.used, big}};
    double constant = add_next_block(from, -1, held);
    program_.add_at_most(std::move(held), big - constant);

    // m_ij x_ij^r: 0 if not used, otherwise m_ij = (a_j + m_j) - (a_i + m_i), and at least 1, which is Eq. 12.
    program_.add_at_most({{link.processed, 1}, {link.used, -model_blocks()}}, 0);
    program_.add_at_least({{link.processed, 1}, {link.used, -1}}, 0);
    std::vector<Term> upper{{link.processed, 1}, {link.used, big}};
    constant = add_next_block(to, -1, upper) + add_next_block(from, 1, upper);
    program_.add_at_most(std::move(upper), big - constant);
    std::vector<Term> lower{{link.processed, 1}, {link.used, -big}};
    constant = add_next_block(to, -1, lower) + add_next_block(from, 1, lower);
    program_.add_at_least(std::move(lower), -big - constant);
    return link;
  }

  // Eq. 10 for one request: a path from the source to the sink.
  std::vector<Link> route(std::size_t request) {
    const auto& rtt_s = demand_.rtt_s[static_cast<std::size_t>(demand_.request_clients[request])];
    std::vector<Link> links;
    const int count = static_cast<int>(servers());
    for (int to = 0; to < count; ++to) {
      for (int from = kSource; from < count; ++from) {
        if (from != to) links.push_back(link(from, to, rtt_s[static_cast<std::size_t>(to)]));
      }
      links.push_back(link(to, kSink, 0));
    }
    std::vector<Term> begins, all_blocks;
    std::vector<std::vector<Term>> balance(servers());
    for (const Link& link : links) {
      if (link.from == kSource) begins.push_back({link.used, 1});
      if (link.from != kSource) balance[static_cast<std::size_t>(link.from)].push_back({link.used, -1});
      if (link.to != kSink) balance[static_cast<std::size_t>(link.to)].push_back({link.used, 1});
      if (link.to != kSink) all_blocks.push_back({link.processed, 1});
    }
    program_.add_equal(std::move(begins), 1);
    for (auto& terms : balance) program_.add_equal(std::move(terms), 0);
    // Implied for whole routes; stops the relaxation from routing through fractions of servers at no cost.
    program_.add_equal(std::move(all_blocks), model_blocks());
    return links;
  }

  // Requests of one client are equal: the earlier one takes the cheaper route, which saves the search their permutations.
  void order_equal_requests() {
    for (std::size_t r = 0; r < links_.size(); ++r) {
      for (std::size_t later = r + 1; later < links_.size(); ++later) {
        if (demand_.request_clients[r] != demand_.request_clients[later]) continue;
        std::vector<Term> difference = cost(r, 1);
        const std::vector<Term> minus = cost(later, -1);
        difference.insert(difference.end(), minus.begin(), minus.end());
        program_.add_at_most(std::move(difference), 0);
        break;
      }
    }
  }

  [[nodiscard]] std::vector<Term> cost(std::size_t request, double scale) const {
    std::vector<Term> terms;
    for (const Link& link : links_[request]) {
      if (link.to == kSink) continue;
      for (const int variable : {link.used, link.processed}) {
        terms.push_back({variable, scale * program_.variables()[static_cast<std::size_t>(variable)].objective});
      }
    }
    return terms;
  }

  // Eq. 5, in caches of one block: s_m / s_c m_j + sum of m_ij x_ij^r <= M_j / s_c.
  void limit_memory() {
    for (std::size_t j = 0; j < servers(); ++j) {
      std::vector<Term> terms{{blocks_[j], instance_.block_gb / instance_.cache_gb}};
      for (const auto& links : links_) {
        for (const Link& link : links) {
          if (link.to == static_cast<int>(j)) terms.push_back({link.processed, 1});
        }
      }
      program_.add_at_most(std::move(terms), instance_.servers[j].memory_gb / instance_.cache_gb);
    }
  }

  const Instance& instance_;
  const OfflineDemand& demand_;
  mip::MixedIntegerProgram program_;
  std::vector<int> first_;   // a_j
  std::vector<int> blocks_;  // m_j
  std::vector<std::vector<Link>> links_;
};

}  // namespace

Result<RoutedPlacement> optimal_placement_and_routes(const Instance& instance, const OfflineDemand& demand, long max_nodes) {
  for (std::size_t client = 0; client < demand.rtt_s.size(); ++client) {
    if (demand.rtt_s[client].size() != instance.servers.size()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("rtt_s of client {}: must have {} servers (got {})", client,
                                                            instance.servers.size(), demand.rtt_s[client].size())};
    }
  }
  for (std::size_t r = 0; r < demand.request_clients.size(); ++r) {
    const int client = demand.request_clients[r];
    if (client < 0 || client >= static_cast<long>(demand.rtt_s.size())) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("client of request {}: must be 0 to {} (got {})", r,
                                                            static_cast<long>(demand.rtt_s.size()) - 1, client)};
    }
  }
  const BprrProgram program(instance, demand);
  WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(program.program(), max_nodes));
  return program.read(solution);
}

std::optional<double> route_time_s(const Instance& instance, const Placement& placement, const std::vector<double>& rtt_s,
                                   const std::vector<int>& route) {
  double time_s = 0;
  int next = 1;
  for (const int server : route) {
    const auto j = static_cast<std::size_t>(server);
    if (!placement[j].holds(next)) return std::nullopt;
    const int processed = placement[j].last() - next + 1;
    time_s += rtt_s[j] + instance.servers[j].block_s * processed;
    next += processed;
  }
  if (next != instance.blocks + 1) return std::nullopt;
  return time_s;
}

}  // namespace windlass::chain
