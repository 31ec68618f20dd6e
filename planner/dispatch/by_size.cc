// Sends each request where its size is comparatively cheap; see by_size.h.
#include "planner/dispatch/by_size.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace windlass::dispatch {
namespace {

constexpr double kOutside = 100;        // cost factor if the objectives cannot be met
constexpr double kLeastFill = 0.1;      // below it a chain counts as empty, and size alone decides
constexpr double kRemembered = 10'000;  // number of requests that the mean remembers

double pow4(double x) { return (x * x) * (x * x); }

}  // namespace

double worker_seconds(const PackingModel& model, const PackingRules& rules, int input_tokens, int output_tokens) {
  const double input = input_tokens, output = std::max(1, output_tokens);
  const double whole = input + output + model.kv_request_tokens;
  if (model.kv_capacity_tokens > 0 && whole > model.kv_capacity_tokens) return std::numeric_limits<double>::infinity();
  const double context = input + output / 2;
  const double each_s = model.decode_request_s + model.context_token_s * context;
  double batch = model.max_requests;
  if (model.kv_capacity_tokens > 0) batch = std::min(batch, model.kv_capacity_tokens / (context + model.kv_request_tokens));
  if (rules.tpot_s > 0 && each_s > 0) batch = std::min(batch, (rules.tpot_s - model.decode_s) / each_s);
  batch = std::max(1.0, batch);
  const double prompt_s = model.prefill_s + model.prefill_token_s * input;
  const double seconds = prompt_s + (output - 1) * (model.decode_s / batch + each_s);
  const bool late = rules.ttft_s > 0 && prompt_s > rules.ttft_s;
  const bool slow = rules.tpot_s > 0 && output > 1 && model.decode_s + each_s > rules.tpot_s;
  return late || slow ? kOutside * seconds : seconds;
}

void BySize::reset(std::span<const ChainState> chains) {
  const std::vector<Kind> before = std::move(kinds_);
  kinds_.clear();
  chains_.assign(chains.size(), {});
  chain_of_key_.clear();
  for (std::size_t c = 0; c < chains.size(); ++c) {
    Chain& chain = chains_[c];
    std::optional<PackingModel> model;
    if (chains[c].packing != nullptr) model = *chains[c].packing;
    const auto same = [&](const Kind& kind) { return kind.model == model; };
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), same);
    if (kind == kinds_.end()) {
      kinds_.push_back({model, {}, Tournament<double, std::less<>>(), 0, 0});
      kind = kinds_.end() - 1;
      if (const auto known = std::find_if(before.begin(), before.end(), same); known != before.end()) {
        kind->mean_s = known->mean_s;
        kind->seen = known->seen;
      }
    }
    chain.key = chains[c].key;
    chain.kind = static_cast<std::size_t>(kind - kinds_.begin());
    chain.place = kind->chains.size();
    chain.state = chains[c];
    kind->chains.push_back(c);
    chain_of_key_.emplace(chain.key, c);
  }
  for (Kind& kind : kinds_) kind.emptiest = Tournament<double, std::less<>>(kind.chains.size());
  // Sums of whole tokens do not depend on the order.
  for (const auto& [id, request] : placed_) {
    if (const auto at = chain_of_key_.find(request.key); at != chain_of_key_.end()) add(chains_[at->second], request, 1);
  }
  for (std::size_t c = 0; c < chains_.size(); ++c) weigh(c);
}

void BySize::update(std::size_t index, const ChainState& state) {
  chains_[index].state = state;
  weigh(index);
}

void BySize::weigh(std::size_t index) {
  Chain& chain = chains_[index];
  Kind& kind = kinds_[chain.kind];
  if (!chain.state.takes_requests()) return kind.emptiest.set(chain.place, std::nullopt);
  const auto requests = static_cast<double>(chain.state.in_flight);
  chain.fill = requests / chain.state.capacity;
  if (kind.model) {
    const PackingModel& model = *kind.model;
    if (model.kv_capacity_tokens > 0) chain.fill = std::max(chain.fill, chain.cache_tokens / model.kv_capacity_tokens);
    const double iteration_s = model.decode_request_s * requests + model.context_token_s * chain.context_tokens;
    const double room_s = rules_.tpot_s - model.decode_s;
    if (rules_.tpot_s > 0 && room_s > 0) chain.fill = std::max(chain.fill, iteration_s / room_s);
  }
  kind.emptiest.set(chain.place, chain.fill);
}

BySize::Lengths BySize::lengths_of(const RequestLengths& request) const {
  Lengths lengths;
  lengths.input_tokens = request.input_tokens > 0
                             ? request.input_tokens
                             : std::max(1, static_cast<int>(std::lround(std::min(1e9, history_.mean_input_tokens()))));
  lengths.output_tokens = request.output_tokens > 0 ? request.output_tokens : history_.predict(lengths.input_tokens);
  return lengths;
}

std::optional<std::size_t> BySize::choose_for(const RequestLengths& request, double /*now_s*/) {
  const Lengths lengths = lengths_of(request);
  std::optional<std::size_t> best;
  double least = 0;
  for (const Kind& kind : kinds_) {
    const auto place = kind.emptiest.best();
    if (!place) continue;
    const std::size_t chain = kind.chains[*place];
    double dear = 1;
    if (kind.model && kinds_.size() > 1) {
      // A new kind gets a neutral value until it has seen a request.
      const double seconds = worker_seconds(*kind.model, rules_, lengths.input_tokens, lengths.output_tokens);
      dear = kind.mean_s > 0 ? seconds / kind.mean_s : std::isfinite(seconds) ? 1 : seconds;
    }
    const double worth = dear * pow4(std::max(kLeastFill, chains_[chain].fill));
    if (best && !(worth < least)) continue;
    best = chain;
    least = worth;
  }
  return best;
}

void BySize::add(Chain& chain, const Placed& request, int by) {
  chain.context_tokens += by * (request.input_tokens + request.output_tokens / 2);
  chain.cache_tokens += by * (request.input_tokens + request.output_tokens);
}

void BySize::placed(std::size_t chain, const RequestLengths& request) {
  const Lengths lengths = lengths_of(request);
  const Placed placed{chains_[chain].key, lengths.input_tokens, lengths.output_tokens};
  if (!placed_.emplace(request.id, placed).second) return;
  add(chains_[chain], placed, 1);
  weigh(chain);
  if (kinds_.size() < 2) return;
  for (Kind& kind : kinds_) {
    if (!kind.model) continue;
    const double seconds = worker_seconds(*kind.model, rules_, lengths.input_tokens, lengths.output_tokens);
    if (!std::isfinite(seconds)) continue;
    kind.seen = std::min(kRemembered, kind.seen + 1);
    kind.mean_s += (seconds - kind.mean_s) / kind.seen;
  }
}

void BySize::ended(std::uint64_t id, int output_tokens) {
  const auto at = placed_.find(id);
  if (at == placed_.end()) return;
  if (const auto chain = chain_of_key_.find(at->second.key); chain != chain_of_key_.end()) {
    add(chains_[chain->second], at->second, -1);
    weigh(chain->second);
  }
  if (output_tokens > 0) history_.observe(at->second.input_tokens, output_tokens);
  placed_.erase(at);
}

}  // namespace windlass::dispatch
