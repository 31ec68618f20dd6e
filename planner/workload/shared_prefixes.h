// PrefixedSource: requests whose prompts begin with prefixes that they share: system prompts, few-shot examples, documents.
//
// Each request of another source begins with one of `count` prefixes; the k-th most popular is drawn with a chance in
// proportion to k^-zipf (Zipf's law; 0: all alike). The prefix is part of the prompt that the other source drew: its first
// tokens, all of it where the prompt is shorter than the prefix. Drawn from the stream "<source>/prefixes", so that a workload
// with and without prefixes brings the same arrivals and lengths.
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
  int tokens = 1;   // of each
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
  std::vector<double> up_to_;  // weight of the prefixes up to each; the last: of all
  Rng rng_;
};

}  // namespace windlass::workload
