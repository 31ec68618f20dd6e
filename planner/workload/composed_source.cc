// Combines arrivals and lengths into requests, and merges sources; see composed_source.h.
#include "planner/workload/composed_source.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

namespace windlass::workload {

ComposedSource::ComposedSource(std::unique_ptr<ArrivalProcess> arrivals, LengthDistribution lengths, std::uint64_t seed,
                               std::string_view source)
    : arrivals_(std::move(arrivals)),
      lengths_(std::move(lengths)),
      rng_(seed, std::string(source) + "/lengths"),
      per_mean_tokens_(1 / (lengths_.mean_input_tokens() + lengths_.mean_output_tokens())) {
  assert(arrivals_);
}

std::optional<Request> ComposedSource::next() {
  const auto arrival_s = arrivals_->next_s();
  if (!arrival_s) return std::nullopt;
  const TokenPair tokens = lengths_.draw(rng_);
  Request request;
  request.arrival_s = *arrival_s;
  request.size = (tokens.input_tokens + tokens.output_tokens) * per_mean_tokens_;
  request.input_tokens = tokens.input_tokens;
  request.output_tokens = tokens.output_tokens;
  return request;
}

MergedSource::MergedSource(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (std::size_t i = 0; i < parts_.size(); ++i) pull(i);
}

bool MergedSource::later(const Head& a, const Head& b) {
  const double a_s = a.request.arrival_s, b_s = b.request.arrival_s;
  return a_s != b_s ? a_s > b_s : a.part > b.part;
}

void MergedSource::pull(std::size_t part) {
  auto request = parts_[part].source->next();
  if (!request) return;
  request->model = parts_[part].model;
  heads_.push_back({*request, part});
  std::push_heap(heads_.begin(), heads_.end(), later);
}

std::optional<Request> MergedSource::next() {
  if (heads_.empty()) return std::nullopt;
  std::pop_heap(heads_.begin(), heads_.end(), later);
  const Head head = heads_.back();
  heads_.pop_back();
  pull(head.part);
  return head.request;
}

}  // namespace windlass::workload
