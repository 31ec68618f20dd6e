// ServiceQuery: the model whose metrics a service wants, and the window. Plain data.
#pragma once

#include <string>

namespace windlass::controller {

struct ServiceQuery {
  std::string model;  // the served name
  double window_s = 300;
  double percentile = 95;
};

}  // namespace windlass::controller
