// RequestSource: the requests of a simulation, one after the other, so that memory does not grow with their number.
//
// A request's work is either a size (1 is the mean: a chain with mean service time T serves it in size * T) or its tokens,
// where servers know what a token costs. Pure: random sources draw from their own seeded streams.
#pragma once

#include <optional>

namespace windlass::workload {

struct Request {
  double arrival_s = 0;
  double size = 1;
  int input_tokens = 0;
  int output_tokens = 0;
  int model = 0;          // which of the models of a workload that has several
  int prefix = -1;        // which of the prefixes that several requests share its prompt starts with; -1: none
  int prefix_tokens = 0;  // of input_tokens
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;

  // The next request, or none: the source is at its end. Arrival times never fall.
  [[nodiscard]] virtual std::optional<Request> next() = 0;
};

}  // namespace windlass::workload
