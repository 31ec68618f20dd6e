// PrefixedSource adds shared prefixes to the prompts of another source: system prompts, few-shot examples, documents.
//
// Each request begins with one of `count` prefixes. The k-th most popular is drawn with probability proportional to k^-zipf
// (Zipf's law; 0: all equally likely). The prefix replaces the first tokens of the prompt, or all of it if the prompt is
// shorter. Prefixes are drawn from the stream "<source>/prefixes", so arrivals and lengths are the same with and without them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/base/rng.h"
#include "planner/workload/request_source.h"

namespace windlass::workload {

struct SharedPrefixes {
  int count = 1;
  int tokens = 1;   // of each prefix
  double zipf = 0;  // exponent

  bool operator==(const SharedPrefixes&) const = default;
};

inline constexpr int kMaxPrefixes = 1'000'000;

class PrefixedSource final : public RequestSource {
 public:
  // REQUIRES: 1 <= count <= kMaxPrefixes, tokens >= 1, zipf finite and >= 0.
  PrefixedSource(std::unique_ptr<RequestSource> requests, const SharedPrefixes& prefixes, std::uint64_t seed,
                 std::string_view source);

  [[nodiscard]] std::optional<Request> next() override;

 private:
  std::unique_ptr<RequestSource> requests_;
  SharedPrefixes prefixes_;
  std::vector<double> up_to_;  // cumulative weights of the prefixes
  Rng rng_;
};

}  // namespace windlass::workload
