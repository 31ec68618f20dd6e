// Implements vidur_simulator.h.
#include "tests/bench/fidelity/vidur_simulator.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <deque>

#include <fmt/format.h>

namespace windlass::bench {
namespace {

constexpr int kTokenStep = 8, kCacheStep = 64, kBlockTokens = 16, kTrees = 40;
constexpr double kActivationBytes = 2;

int rounded_up(int value, int step) { return (value + step - 1) / step * step; }

// Samples of an operator as the forest's points.
struct Points {
  std::vector<double> x, y;
};

Result<RandomForest> forest_of(int dimensions, const Points& points, const std::string& name) {
  if (points.y.empty()) return Error{ErrorCode::kNotFound, name + ": must be among Vidur's samples"};
  return RandomForest(dimensions, points.x, points.y, {.trees = kTrees});
}

// By one size, which `divisor` turns into tokens or sequences.
Result<RandomForest> curve_of(const std::vector<planner::VidurSample>& samples, const std::string& name, int gpus,
                              double divisor = 1) {
  Points points;
  for (const planner::VidurSample& sample : samples) {
    const bool within = sample.gpus_per_node == 0 || sample.gpus_per_node == gpus;
    if (sample.name != name || sample.gpus != gpus || !within) continue;
    points.x.push_back(sample.x[0] / divisor);
    points.y.push_back(sample.time_s);
  }
  return forest_of(1, points, name);
}

// By cache and squared prompt tokens, or by sequences and cache.
Result<RandomForest> attention_of(const std::vector<planner::VidurSample>& samples, const std::string& name, int gpus) {
  Points points;
  for (const planner::VidurSample& sample : samples) {
    if (sample.name != name || sample.gpus != gpus) continue;
    const double size = sample.x[0], cached = sample.x[1];
    const auto row = name == "attn_prefill" ? std::pair(cached, size * size) : std::pair(size, cached);
    points.x.insert(points.x.end(), {row.first, row.second});
    points.y.push_back(sample.time_s);
  }
  return forest_of(2, points, name);
}

}  // namespace

Result<VidurTimes> VidurTimes::make(const std::vector<planner::VidurSample>& samples, const planner::ModelShape& shape,
                                    int tensor_parallel, const VidurAdditions& additions) {
  VidurTimes made;
  made.layers_ = shape.layers;
  made.grouped_ = shape.heads > shape.kv_heads;
  made.additions_ = additions;
  for (const char* name : {"attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "mlp_act", "input_layernorm",
                           "post_attention_layernorm", "attn_rope", "add"}) {
    WINDLASS_ASSIGN_OR_RETURN(auto forest, curve_of(samples, name, tensor_parallel));
    made.tokens_.push_back(std::move(forest));
  }
  if (tensor_parallel > 1) {
    WINDLASS_ASSIGN_OR_RETURN(auto forest, curve_of(samples, "all_reduce", tensor_parallel, shape.hidden * kActivationBytes));
    made.all_reduce_ = std::make_shared<RandomForest>(std::move(forest));
  }
  WINDLASS_ASSIGN_OR_RETURN(auto prefill, attention_of(samples, "attn_prefill", tensor_parallel));
  WINDLASS_ASSIGN_OR_RETURN(auto decode, attention_of(samples, "attn_decode", tensor_parallel));
  made.prefill_ = std::make_shared<RandomForest>(std::move(prefill));
  made.decode_ = std::make_shared<RandomForest>(std::move(decode));
  if (!additions.cpu) return made;
  for (const char* name :
       {"cpu_schedule", "cpu_sampler_e2e", "cpu_prepare_inputs_e2e", "cpu_process_model_outputs", "cpu_ray_comm_time"}) {
    WINDLASS_ASSIGN_OR_RETURN(auto forest, curve_of(samples, name, tensor_parallel));
    made.cpu_.push_back(std::move(forest));
  }
  return made;
}

double VidurTimes::token_level_s(int tokens) const {
  const auto [at, added] = by_tokens_.try_emplace(tokens, 0);
  if (!added) return at->second;
  const std::array<double, 1> x = {static_cast<double>(tokens)};
  for (const RandomForest& forest : tokens_) at->second += forest.at(x);
  if (all_reduce_) at->second += 2 * (all_reduce_->at(x) + additions_.all_reduce_launch_s);
  return at->second;
}

double VidurTimes::attention_s(const RandomForest& forest, std::map<std::pair<int, int>, double>& memory, int first,
                               int second) const {
  const auto [at, added] = memory.try_emplace({first, second}, 0);
  const std::array<double, 2> x = {static_cast<double>(first), static_cast<double>(second)};
  if (added) at->second = forest.at(x);
  return at->second;
}

double VidurTimes::cpu_s(int sequences) const {
  const auto [at, added] = by_sequences_.try_emplace(sequences, 0);
  const std::array<double, 1> x = {static_cast<double>(sequences)};
  if (added) {
    for (const RandomForest& forest : cpu_) at->second += forest.at(x);
  }
  return at->second;
}

double VidurTimes::iteration_s(std::span<const VidurPart> parts) const {
  int tokens = 0, prompts = 0, decodes = 0, prompt_cached = 0;
  double squares = 0;
  std::int64_t decode_cached = 0;
  for (const VidurPart& part : parts) {
    tokens += part.tokens;
    if (part.prompt) {
      ++prompts;
      prompt_cached += rounded_up(part.processed, kCacheStep);
      squares += static_cast<double>(part.tokens) * part.tokens;
    } else {
      ++decodes;
      decode_cached += part.processed;
    }
  }
  const auto batched = [&](int sequences) { return grouped_ && sequences > 1 ? 1 + additions_.attention_share : 1; };
  double layer_s = token_level_s(rounded_up(tokens, kTokenStep));
  if (prompts > 0) {
    const auto chunk = static_cast<int>(std::lround(std::sqrt(squares)));
    layer_s += batched(prompts) * attention_s(*prefill_, by_prefill_, prompt_cached, chunk * chunk);
  }
  if (decodes > 0) {
    const int cached = rounded_up(static_cast<int>(decode_cached / decodes), kCacheStep);
    layer_s += batched(decodes) * attention_s(*decode_, by_decode_, decodes, cached);
  }
  return layers_ * layer_s + cpu_s(static_cast<int>(parts.size()));
}

namespace {

// One replica. Requests are indices; both queues hold those without and with a cache.
class Replica {
 public:
  Replica(const VidurTimes& times, const VidurEngine& engine, std::span<const workload::Request> requests)
      : times_(times), engine_(engine), requests_(requests), states_(requests.size()), served_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      states_[i].prompt = requests[i].input_tokens;
      states_[i].left_after_prompt = requests[i].output_tokens;
    }
  }

  std::vector<VidurServed> run() {
    std::size_t next = 0, ended = 0;
    while (ended < requests_.size()) {
      while (next < requests_.size() && requests_[next].arrival_s <= now_s_) waiting_.push_back(next++);
      engine_.batching == planner::Batching::kSarathi ? choose_chunks() : choose_whole();
      if (batch_.empty()) {
        assert(next < requests_.size());  // otherwise one is too long for the cache
        now_s_ = requests_[next].arrival_s;
        continue;
      }
      now_s_ += times_.iteration_s(parts_);
      ended += end_iteration();
    }
    return std::move(served_);
  }

 private:
  struct State {
    int prompt = 0;             // after a preemption: with the tokens made before
    int left_after_prompt = 0;  // output tokens, the prompt's included
    int processed = 0;
    std::int64_t blocks = 0;
    bool started = false;  // has had its first token
    [[nodiscard]] bool decodes() const { return processed > prompt; }
  };

  [[nodiscard]] bool fits(std::size_t request) const {
    const State& state = states_[request];
    if (state.blocks > 0) return engine_.blocks - used_ >= 1;
    const auto kept = static_cast<std::int64_t>(0.01 * static_cast<double>(engine_.blocks));
    return engine_.blocks - used_ - blocks_for(state.prompt) >= kept;
  }
  static std::int64_t blocks_for(int tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  void allocate(std::size_t request) {
    State& state = states_[request];
    std::int64_t more = 0;
    if (state.blocks == 0) {
      more = blocks_for(state.prompt);
      ++allocated_;
    } else if (state.processed > state.blocks * kBlockTokens) {
      more = 1;
    }
    state.blocks += more;
    used_ += more;
  }
  void free(std::size_t request) {
    used_ -= states_[request].blocks;
    states_[request].blocks = 0;
    --allocated_;
  }
  // Its tokens become a longer prompt.
  void preempt(std::size_t request) {
    free(request);
    State& state = states_[request];
    const int whole = state.prompt + state.left_after_prompt;
    state.prompt = state.processed;
    state.left_after_prompt = whole - state.prompt;
    state.processed = 0;
    waiting_.push_front(request);
  }
  void take(std::size_t request, int tokens) {
    const State& state = states_[request];
    batch_.push_back(request);
    parts_.push_back({tokens, state.processed, !state.decodes()});
    tokens_ += tokens;
  }
  void clear() {
    batch_.clear();
    parts_.clear();
    tokens_ = 0;
    std::sort(running_.begin(), running_.end());  // numbers ascend with arrivals
  }
  // Takes the next running sequence's decode; preempts the last ones if there is no block for it.
  void decode_next() {
    const std::size_t request = running_.front();
    running_.pop_front();
    while (!fits(request)) {
      if (running_.empty()) return preempt(request);
      const std::size_t victim = running_.back();
      running_.pop_back();
      preempt(victim);
    }
    allocate(request);
    take(request, 1);
  }
  [[nodiscard]] bool full() const { return static_cast<int>(batch_.size()) == engine_.max_sequences; }

  // vLLM: whole prompts, otherwise decodes.
  void choose_whole() {
    clear();
    int longest = 0;
    while (!waiting_.empty() && !full() && allocated_ < engine_.max_sequences) {
      const std::size_t request = waiting_.front();
      const int tokens = states_[request].prompt;
      longest = std::max(longest, tokens);
      const bool within = (static_cast<int>(batch_.size()) + 1) * longest <= engine_.max_batch_tokens;
      if (!fits(request) || (!within && !batch_.empty())) break;
      waiting_.pop_front();
      allocate(request);
      take(request, tokens);
    }
    if (!batch_.empty()) return;
    while (!running_.empty() && !full()) decode_next();
  }

  // Sarathi-Serve: decodes, then chunks of started prompts, then of new ones.
  void choose_chunks() {
    clear();
    std::deque<std::size_t> prompts;
    for (auto at = running_.begin(); at != running_.end();) {
      if (states_[*at].decodes()) {
        ++at;
        continue;
      }
      prompts.push_back(*at);
      at = running_.erase(at);
    }
    while (!running_.empty() && !full()) decode_next();
    const auto chunk_of = [&](std::size_t request) {
      return std::max(0, std::min(states_[request].prompt - states_[request].processed, engine_.max_batch_tokens - tokens_));
    };
    for (const std::size_t request : prompts) {
      if (chunk_of(request) == 0) {
        running_.push_back(request);
      } else {
        take(request, chunk_of(request));
      }
    }
    while (!waiting_.empty() && !full() && allocated_ < engine_.max_sequences) {
      const std::size_t request = waiting_.front();
      if (!fits(request) || chunk_of(request) == 0) break;
      waiting_.pop_front();
      allocate(request);
      take(request, chunk_of(request));
    }
  }

  std::size_t end_iteration() {
    std::size_t ended = 0;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const std::size_t request = batch_[i];
      State& state = states_[request];
      state.processed += parts_[i].tokens;
      if (state.processed == state.prompt) {  // the prompt's iteration makes the first token
        ++state.processed;
        if (!state.started) served_[request].ttft_s = now_s_ - requests_[request].arrival_s;
        state.started = true;
      }
      if (state.processed == state.prompt + state.left_after_prompt) {
        served_[request].e2e_s = now_s_ - requests_[request].arrival_s;
        free(request);
        ++ended;
      } else {
        running_.push_back(request);
      }
    }
    return ended;
  }

  const VidurTimes& times_;
  VidurEngine engine_;
  std::span<const workload::Request> requests_;
  std::vector<State> states_;
  std::vector<VidurServed> served_;
  std::deque<std::size_t> waiting_, running_;
  std::vector<std::size_t> batch_;
  std::vector<VidurPart> parts_;
  int tokens_ = 0, allocated_ = 0;
  std::int64_t used_ = 0;
  double now_s_ = 0;
};

}  // namespace

std::vector<VidurServed> vidur_simulate(const VidurTimes& times, const VidurEngine& engine,
                                        std::span<const workload::Request> requests) {
  return Replica(times, engine, requests).run();
}

}  // namespace windlass::bench
