// Measures with prompts that have one token of output, and with sequences that receive a filled KV cache, like those of a
// decode worker.
#include "worker/engine/self_measurement.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace windlass::worker {
namespace {

using metrics::MeasuredIteration;

constexpr std::int64_t kShortPrompt = 32;
constexpr std::int64_t kLongPrompt = 256;
constexpr std::int64_t kDecodePrompt = 256;
constexpr std::int64_t kLargeBatch = 8;
// Enough for a median; a fast machine then uses less than the budget.
constexpr std::size_t kMaxPrefills = 8;
constexpr std::int64_t kMaxDecodes = 32;
// The first iterations include one-time costs (library loading, GPU graph capture). They count only if no others follow.
constexpr std::size_t kWarmUps = 2;
constexpr float kFilledWith = 0.01F;

// Stands in for keys and values from another worker.
class FilledKv final : public KvReceiver {
 public:
  explicit FilledKv(Backend& backend) : backend_(backend) {}

  void receive(RequestId /*request*/, const KvSession& /*session*/, std::span<const std::int32_t> prompt,
               std::span<const std::int32_t> blocks) override {
    const KvShape shape = backend_.kv_shape();
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    values_.resize(static_cast<std::size_t>(tokens * shape.values), kFilledWith);
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) backend_.write_kv({layer, 0, tokens}, blocks, values_.data());
  }
  void stop(RequestId /*request*/) override {}

 private:
  Backend& backend_;
  std::vector<float> values_;
};

// The median without the warm-up iterations. REQUIRES: seconds is not empty.
double typical(std::vector<double> seconds) {
  seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(std::min(kWarmUps, seconds.size() - 1)));
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

class Measurer {
 public:
  Measurer(EngineOptions options, Backend& backend, const Clock& clock, const MeasureOptions& measure)
      : options_(std::move(options)),
        backend_(backend),
        clock_(clock),
        measure_(measure),
        kv_(backend),
        engine_(options_, backend, [](std::int32_t) { return std::string_view(); }, clock, {nullptr, &kv_}),
        ends_s_(clock.now_s() + measure.budget_s) {}

  // The long prompt comes last, because it alone can far exceed its share of the budget.
  Result<void> run() {
    // One iteration computes the whole prompt, and the context has room for one more token.
    std::int64_t longest = std::min({kLongPrompt, options_.max_batch_tokens, options_.max_context_tokens - 1});
    const std::int64_t shortest = std::min(kShortPrompt, longest);
    if (shortest < 1) return {};
    kinds_left_ = measure_.decode ? 4 : 2;
    WINDLASS_RETURN_IF_ERROR(prefill(shortest));
    const double token_s = measured_.back().seconds / static_cast<double>(shortest);
    if (measure_.decode) WINDLASS_RETURN_IF_ERROR(decodes());
    kinds_left_ = 1;
    // If even a short prompt takes long, a long one would delay serving by minutes.
    while (longest > 2 * shortest && static_cast<double>(longest) * token_s > measure_.budget_s / 2)
      longest = std::max(2 * shortest, longest / 2);
    return longest > shortest ? prefill(longest) : Result<void>();
  }

  [[nodiscard]] const std::vector<MeasuredIteration>& measured() const { return measured_; }

 private:
  Result<void> decodes() {
    const std::int64_t batch = std::min({kLargeBatch, options_.max_running, backend_.kv_blocks()});
    // Per sequence, so that none is preempted.
    const std::int64_t room = std::min(options_.max_context_tokens, backend_.kv_blocks() / batch * kKvBlockTokens);
    const std::int64_t prompt = std::min(kDecodePrompt, room / 2);
    const std::int64_t most = std::min(kMaxDecodes, room - 1 - prompt);
    if (prompt < 1 || most < 1) return {};
    WINDLASS_RETURN_IF_ERROR(decode(1, prompt, most));
    return batch > 1 ? decode(batch, prompt, most) : Result<void>();
  }

  // When the next kind of iteration has used its share of the remaining budget.
  [[nodiscard]] double next_until_s() {
    const double now_s = clock_.now_s();
    return now_s + (ends_s_ - now_s) / kinds_left_--;
  }

  [[nodiscard]] Result<void> submit(RequestId id, std::int64_t prompt_tokens, std::int64_t max_tokens, KvSession kv) {
    GenerationRequest request;
    for (std::int64_t i = 0; i < prompt_tokens; ++i)  // varied tokens, so that several experts are used
      request.prompt.push_back(static_cast<std::int32_t>((static_cast<std::int64_t>(id) + 7919 * i) % backend_.vocab_size()));
    request.sampling.seed = id;
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.kv = std::move(kv);
    return engine_.submit(id, std::move(request), clock_.now_s());
  }

  // Runs one iteration, which must compute exactly this many tokens. Returns its seconds.
  [[nodiscard]] Result<double> iterate(std::int64_t tokens) {
    for (const TokenEvent& event : engine_.step()) {
      if (event.finish == FinishReason::kError) return Error{ErrorCode::kInternal, event.error};
    }
    const Iteration& iteration = engine_.last_iteration();
    if (iteration.tokens == tokens) return iteration.seconds;
    return Error{ErrorCode::kInternal, fmt::format("iteration: must compute {} tokens (got {})", tokens, iteration.tokens)};
  }

  Result<void> prefill(std::int64_t tokens) {
    const double until_s = next_until_s();
    std::vector<double> seconds;
    do {
      WINDLASS_RETURN_IF_ERROR(submit(1, tokens, 1, {}));
      WINDLASS_ASSIGN_OR_RETURN(const double iteration_s, iterate(tokens));
      seconds.push_back(iteration_s);
    } while (seconds.size() < kMaxPrefills && clock_.now_s() < until_s);
    measured_.push_back({static_cast<int>(tokens), 0, 0, typical(std::move(seconds))});
    return {};
  }

  Result<void> decode(std::int64_t batch, std::int64_t prompt, std::int64_t most) {
    const double until_s = next_until_s();
    const auto last = static_cast<RequestId>(batch);
    for (RequestId id = 1; id <= last; ++id) {
      WINDLASS_RETURN_IF_ERROR(submit(id, prompt, most + 1, {"measured", "here"}));
    }
    WINDLASS_RETURN_IF_ERROR(iterate(0));  // gives each sequence its blocks, already filled
    for (RequestId id = 1; id <= last; ++id) static_cast<void>(engine_.received(id, Sampled{}));
    std::vector<double> seconds;
    do {
      WINDLASS_ASSIGN_OR_RETURN(const double iteration_s, iterate(batch));
      seconds.push_back(iteration_s);
    } while (std::ssize(seconds) < most && clock_.now_s() < until_s);
    for (RequestId id = 1; id <= last; ++id) static_cast<void>(engine_.cancel(id, "measured"));
    const auto warm_ups = static_cast<double>(std::min(kWarmUps, seconds.size() - 1));
    const double context = static_cast<double>(prompt) + (warm_ups + static_cast<double>(seconds.size()) + 1) / 2;
    measured_.push_back({0, static_cast<int>(batch), static_cast<int>(std::lround(context)), typical(std::move(seconds))});
    return {};
  }

  const EngineOptions options_;
  Backend& backend_;
  const Clock& clock_;
  const MeasureOptions measure_;
  FilledKv kv_;
  Engine engine_;
  const double ends_s_;
  int kinds_left_ = 1;  // kinds of iterations not yet run
  std::vector<MeasuredIteration> measured_;
};

}  // namespace

Result<std::vector<MeasuredIteration>> measure_iterations(const EngineOptions& options, Backend& backend, const Clock& clock,
                                                          const MeasureOptions& measure) {
  EngineOptions whole_prompts = options;
  whole_prompts.prefix_caching = false;  // so that a repeated prompt is computed again
  Measurer measurer(std::move(whole_prompts), backend, clock, measure);
  WINDLASS_RETURN_IF_ERROR(measurer.run());
  return measurer.measured();
}

std::string to_text(const MeasuredIteration& iteration) {
  const std::string what = iteration.batch == 0
                               ? fmt::format("prefill of {} tokens", iteration.prompt_tokens)
                               : fmt::format("decode at batch {} and context {}", iteration.batch, iteration.context_tokens);
  return fmt::format("{} {:.3g} ms", what, 1e3 * iteration.seconds);
}

}  // namespace windlass::worker
