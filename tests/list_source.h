// A source of given requests.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "planner/workload/request_source.h"

namespace windlass::sim {

class ListSource final : public workload::RequestSource {
 public:
  explicit ListSource(std::vector<workload::Request> requests) : requests_(std::move(requests)) {}
  std::optional<workload::Request> next() override {
    if (next_ == requests_.size()) return std::nullopt;
    return requests_[next_++];
  }

 private:
  std::vector<workload::Request> requests_;
  std::size_t next_ = 0;
};

}  // namespace windlass::sim
