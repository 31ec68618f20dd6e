// API keys: which models a key may use, and its rate limits. Pure: the caller reads the file and passes the time in.
//
// docs/security.md describes the file format. Limits apply to this gateway alone; gateways do not share counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::gateway {

struct ApiKey {
  std::string id;
  bool all_models = false;
  std::set<std::string> models;
  // No value means no limit.
  std::optional<int> requests_per_minute, concurrent_requests, tokens_per_minute;
  std::vector<std::string> prefixes =
      {};  // each ends with "/" and allows every model whose name starts with it, such as a namespace's

  [[nodiscard]] bool may_use(const std::string& model) const {
    return all_models || models.contains(model) ||
           std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& one) { return model.starts_with(one); });
  }
  bool operator==(const ApiKey&) const = default;
};

struct KeyFile {
  std::map<std::string, ApiKey> by_digest;  // sha256 of the key, in hexadecimal

  bool operator==(const KeyFile&) const = default;
};

// Error: kInvalidArgument, with the field, the rule and the value found; it never contains a key.
[[nodiscard]] Result<KeyFile> key_file_from_json(std::string_view text);

// Limits a rate per minute. The bucket holds at most one minute's amount and starts full. take() may make the level
// negative; callers then wait until it is positive again.
class TokenBucket {
 public:
  TokenBucket(double per_minute, double now_s) : per_minute_(per_minute), level_(per_minute), at_s_(now_s) {}

  [[nodiscard]] double level(double now_s) const;
  void take(double amount, double now_s);
  // Seconds until it holds at least `amount`; 0 means now.
  [[nodiscard]] double wait_s(double amount, double now_s) const;
  // Keeps the level, capped at the new rate.
  void set_rate(double per_minute, double now_s);

 private:
  double per_minute_;
  double level_;
  double at_s_;
};

// Tracks the usage of each key. Usage is counted by key id, so a key that is rotated in the file keeps its count.
class KeyLimits {
 public:
  struct Verdict {
    bool admitted = true;
    std::string limit;  // the limit that refused it: "requestsPerMinute", "concurrentRequests" or "tokensPerMinute"
    int retry_after_s = 0;
  };

  // Counts the request when it is admitted; call finished() once afterwards.
  [[nodiscard]] Verdict admit(const ApiKey& key, double now_s);
  void finished(const std::string& id, std::int64_t tokens, double now_s);

  [[nodiscard]] int in_flight(const std::string& id) const;

 private:
  struct Account {
    std::optional<TokenBucket> requests, tokens;
    int in_flight = 0;
  };

  std::map<std::string, Account> accounts_;
};

}  // namespace windlass::gateway
