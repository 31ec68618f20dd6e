// RequestSource yields the requests of a simulation one after the other, so that memory does not grow with their number.
//
// The work of a request is either a size (1 is the mean: a chain with mean service time T serves it in size * T) or its tokens,
// if servers know the cost of a token. Pure: random sources draw from their own seeded streams.
#pragma once

#include <optional>

namespace windlass::workload {

struct Request {
  double arrival_s = 0;
  double size = 1;
  int input_tokens = 0;
  int output_tokens = 0;
  int model = 0;          // index of its model, for workloads with several
  int prefix = -1;        // index of the shared prefix that its prompt starts with; -1: none
  int prefix_tokens = 0;  // part of input_tokens
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;

  // The next request, or none at the end. Arrival times never decrease.
  [[nodiscard]] virtual std::optional<Request> next() = 0;
};

}  // namespace windlass::workload
