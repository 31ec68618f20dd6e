// API keys: who may use which model, and how much of it. Pure: files are read elsewhere, time is an argument.
//
// The file's format stands in docs/security.md. Limits hold for this gateway by itself.
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
  // No value: no limit.
  std::optional<int> requests_per_minute, concurrent_requests, tokens_per_minute;
  std::vector<std::string> prefixes = {};  // each ends with "/": all models that are called so, as those of a namespace are

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

// Error: kInvalidArgument, naming the field, what was found and what is allowed; never a key.
[[nodiscard]] Result<KeyFile> key_file_from_json(std::string_view text);

// Holds one minute's worth at most, and begins full. May be overdrawn by take(), and is then waited out.
class TokenBucket {
 public:
  TokenBucket(double per_minute, double now_s) : per_minute_(per_minute), level_(per_minute), at_s_(now_s) {}

  [[nodiscard]] double level(double now_s) const;
  void take(double amount, double now_s);
  // Until at least `amount` is in it; 0: now.
  [[nodiscard]] double wait_s(double amount, double now_s) const;
  // The level stays, but for what no longer fits.
  void set_rate(double per_minute, double now_s);

 private:
  double per_minute_;
  double level_;
  double at_s_;
};

// What keys have used. A key is followed by its id, so that one that is renewed in the file keeps its account.
class KeyLimits {
 public:
  struct Verdict {
    bool admitted = true;
    std::string limit;  // by which it was refused: "requestsPerMinute", "concurrentRequests" or "tokensPerMinute"
    int retry_after_s = 0;
  };

  // Counts the request in when it is admitted; finished() is then to be called once.
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
