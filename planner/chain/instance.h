// Instance is the input for composing server chains: a model cut into equal blocks (transformer layers), the servers, and the
// demand.
//
// The abstract model of Sun, He, Hou 2026 ("Serving Chain-structured Jobs with Large Memory Footprints"), Section 2.1. Memory
// is in GB as the user wrote it and not in bytes: the papers take floors of exactly these doubles, and a change of unit could
// move a floor by one block. Plain data. A server is identified by its index in the list.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace windlass::chain {

inline constexpr double kNever = std::numeric_limits<double>::infinity();  // a time that is never reached

// How a request's time on a server depends on its tokens, if known (footnote 11 of the paper):
// block time = overhead + prefill * input tokens + decode * (output tokens - 1), communication likewise, once per server.
struct TokenTimes {
  double block_overhead_s = 0;
  double block_prefill_s_per_token = 0;
  double block_decode_s_per_token = 0;
  double communication_first_s = 0;      // until the first token
  double communication_s_per_token = 0;  // for each later token

  bool operator==(const TokenTimes&) const = default;
};

struct Server {
  std::string name;
  double memory_gb = 0;        // M_j
  double communication_s = 0;  // tau^c_j: mean total communication time of one request
  double block_s = 0;          // tau^p_j: mean time of one block for one request
  double load_gb_per_s = 1;    // speed of loading blocks; used only for transitions
  std::optional<TokenTimes> token_times;

  bool operator==(const Server&) const = default;
};

struct Instance {
  int blocks = 0;                 // L
  double block_gb = 0;            // s_m
  double cache_gb = 0;            // s_c: cache of one request for one block
  double arrival_rate_per_s = 0;  // lambda
  double max_load = 0.7;          // rho-bar: maximum demand as a share of the total service rate
  std::vector<Server> servers;

  bool operator==(const Instance&) const = default;
};

}  // namespace windlass::chain
