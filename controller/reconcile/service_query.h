// ServiceQuery says which metrics to compute for a service: its model, the time window and the percentile. Plain data.
#pragma once

#include <string>

namespace windlass::controller {

struct ServiceQuery {
  std::string model;  // the served name
  double window_s = 300;
  double percentile = 95;
};

}  // namespace windlass::controller
