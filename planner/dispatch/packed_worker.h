// PackedWorker decides whether one more request fits on a worker. It treats the worker as a bin that requests are packed into:
// Nie, Fonseca, Liu 2024 ("Aladdin"), Section 4.2.
//
// A request fits if all of these hold with it:
//   (b) sum(l_in + gamma l_pred) <= l_d(b)            the context of the batch keeps theta T_dec (Eq. 4)
//   (c) t_p(sum of the new prompts) <= T_pre          waiting prompts are prefilled within the TTFT objective (Eq. 2)
//   (d) t_p(sum of the new prompts) <= theta min(T_dec l_out - t_dec)      the prefill stalls no decoding request for longer
//                                                     than the time it has saved (l_out of the decode phase, as in Section
//                                                     2.2's ATGT); one whose earlier prompt still waits has saved nothing
//   (e) in each coming iteration, the caches of all requests still predicted to run fit (Eq. 1)
// where gamma accounts for the growth of contexts and theta for prediction errors. The paper puts theta before l_d(b) in (b).
// But where weights take most of an iteration, a tenth of the context is only 1 to 4 % of its time, and best fit keeps each
// worker at that limit, so ordinary fluctuation then misses the objective (docs/algorithms/aladdin.md). Here theta is a share
// of T_dec in both. An empty worker takes whatever its cache holds: nobody is harmed, and no place is better.
//
// No check looks at requests one by one. All decoding requests produce tokens in the same iterations, so T_dec l_out - t_dec of
// each is a constant, plus what the worker's iterations have earned, minus the time. Cache use rises between two predicted
// ends, so its maximum is at one of them. A quick comparison with Rooms comes first.
//
// Plain value; time is an argument. Memory is counted in tokens, because h of Eq. 1 is the same for all requests of a model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/dispatch/packing_error.h"

namespace windlass::dispatch {

// The latency and memory of one worker: the coefficients of Eq. 1 to 3. A coefficient of 0 disables its constraint.
struct PackingModel {
  double prefill_token_s = 0;     // k1
  double prefill_s = 0;           // c1
  double context_token_s = 0;     // k2
  double decode_request_s = 0;    // c2
  double decode_s = 0;            // c3
  double kv_capacity_tokens = 0;  // M; 0: no constraint
  double kv_request_tokens = 16;  // j: paging rounds up by at most one block
  int max_requests = 256;         // maximum of concurrent requests in the engine
  // Additional terms of Huawei's lines (batch_times.h); packing ignores them.
  double prefill_request_s = 0;  // p2
  double prefill_length_s = 0;   // p3
  double context_length_s = 0;   // p7

  bool operator==(const PackingModel&) const = default;
};

// The model as a gateway sees it that has this share of the worker's slots. Assumes that all gateways load their shares
// equally, so each of its tokens and requests costs 1 / share times as much, and it may use its share of the cache.
// max_requests stays the same. REQUIRES: 0 < share <= 1.
[[nodiscard]] PackingModel shared(const PackingModel& model, double share);

// The part of a request that a worker serves (Section 5.1): both phases, (b) to (e); prefill, (c); decode, (b) and (e).
enum class PackingPhase { kBoth, kPrefill, kDecode };

struct PackingRules {
  double ttft_s = 0;  // T_pre
  double tpot_s = 0;  // T_dec, ATGT
  double gamma = 0.5;
  double theta = 0.9;
  PackingPhase phase = PackingPhase::kBoth;
  bool rebalances = true;  // new requests even out the errors of predicted lengths (rebalance.h)

  bool operator==(const PackingRules&) const = default;
};

class PackedWorker {
 public:
  using Handle = std::uint32_t;  // the caller's id of a request

  PackedWorker(const PackingModel& model, const PackingRules& rules);

  // Adds a request; its prompt will be processed if this worker does prefill. `now_s`: when it was placed; prompts of one
  // moment are one batch, of which none stalls another. REQUIRES: not present; input >= 1, predicted >= 1.
  void add(Handle request, int input_tokens, int predicted_tokens, double now_s);
  // Its first token is done: it decodes from now on.
  void begin_decode(Handle request, double now_s);
  // An iteration produced one token for each decoding request.
  void iterated();
  // The request produced `count` tokens (if iterations are not visible).
  void tokens_made(Handle request, int count);
  // The request exceeded its predicted length, or more is known about it.
  void predict_again(Handle request, int predicted_tokens);
  // `output_tokens`: length of its answer; 0: it failed, and says nothing about predictions.
  void remove(Handle request, int output_tokens = 0);
  // A new request that best fit placed here goes elsewhere; or this one, just added, was placed elsewhere.
  void gave(int predicted_tokens) { error_.gave(predicted_tokens); }
  void took(Handle request) { set_error(entries_[place_of(request)]); }

  // A request that has made more tokens than predicted.
  struct Overdue {
    Handle request = 0;
    int input_tokens = 0;
    int made = 0;
  };
  [[nodiscard]] std::optional<Overdue> overdue() const;
  void set_model(const PackingModel& model);

  // Checks (b) to (e).
  [[nodiscard]] bool fits(int input_tokens, int predicted_tokens, double now_s) const;

  // What is left of each constraint, as a bound. A request that exceeds one of these fits none of the workers over which they
  // are the maximum.
  static constexpr std::array<int, 8> kHorizons = {0, 32, 64, 128, 256, 512, 1024, 2048};
  struct Rooms {
    double context = 0;  // (b), weighted tokens
    double prompt = 0;   // (c), prompt tokens
    double saved_s = 0;  // (d): theta (earliest deadline of a saving) - prefill time of waiting prompts; minus theta now
    double prefill_token_s = 0;
    std::array<double, kHorizons.size()> cache{};  // (e), prompt tokens of a request that stays at least this many iterations

    void widen(const Rooms& other);
    [[nodiscard]] bool may_take(int input_tokens, double weight, std::size_t horizon, double theta_now_s) const {
      return context >= weight && prompt >= input_tokens && cache[horizon] >= input_tokens &&
             saved_s >= prefill_token_s * input_tokens + theta_now_s;
    }
  };
  [[nodiscard]] Rooms rooms() const;
  // Index of the largest horizon that a request of `predicted_tokens` reaches.
  [[nodiscard]] static std::size_t horizon_of(int predicted_tokens);

  // capacity_norm: L2 norm of batch size and weighted context. The paper does not state units, and a context is hundreds of
  // times larger than a batch, so each is divided by its maximum alone under Eq. 4.
  [[nodiscard]] double norm() const { return norm_; }
  [[nodiscard]] int requests() const { return static_cast<int>(entries_.size()); }
  [[nodiscard]] double context() const { return context_; }                // sum(l_in + gamma l_pred)
  [[nodiscard]] double waiting_prompt_tokens() const { return waiting_; }  // of new requests
  [[nodiscard]] std::int64_t iterations() const { return iteration_; }
  [[nodiscard]] const PackingModel& model() const { return model_; }
  // How far it is from what was predicted.
  [[nodiscard]] const PackingError& error() const { return error_; }
  // Seconds of an iteration that this error costs; negative: it has room that nobody counted on.
  [[nodiscard]] double error_s() const { return time_s(error_.tokens(), error_.requests()); }
  // Seconds of an iteration that these tokens of context and requests cost by Eq. 4.
  [[nodiscard]] double time_s(double tokens, double requests) const {
    return model_.context_token_s * tokens + model_.decode_request_s * requests;
  }
  // Minimum over requests; (d).
  [[nodiscard]] double saved_s(double now_s) const {
    const double decoding_s = earliest_deadline_s_ + earned_s_ - now_s;
    return first_waiting_s_ < now_s && decoding_s > 0 ? 0 : decoding_s;
  }
  // Largest cache use over the coming iterations, in tokens; and cache use after a number of iterations.
  [[nodiscard]] double cache_peak() const;
  [[nodiscard]] double cache_after(std::int64_t iterations) const;
  // Iterations until each request here is predicted to end, latest first.
  [[nodiscard]] std::vector<std::int64_t> ends_after() const;

 private:
  struct Entry {
    Handle request = 0;
    int input = 0;
    int predicted = 0;
    int error = 0;  // tokens that it adds to error_; 0: none
    bool decodes = false;
    double added_s = 0;
    std::int64_t end = 0;   // iteration of the predicted end
    double offset = 0;      // cache tokens at iteration u: offset + u
    double deadline_s = 0;  // time at which its savings are used up, minus earned_s_; only if it decodes
  };

  [[nodiscard]] std::size_t place_of(Handle request) const;
  void insert(const Entry& entry);
  Entry take(Handle request);
  void set_error(Entry& entry);  // its prediction is one that was not counted on
  void withdraw_error(Entry& entry);
  // One request's tokens were seen. Requests that decode make theirs in the same iterations.
  void saw_tokens(std::int64_t count);
  [[nodiscard]] std::int64_t made(const Entry& entry) const;
  [[nodiscard]] double weight(const Entry& entry) const { return entry.input + rules_.gamma * entry.predicted; }
  [[nodiscard]] double context_limit(int requests) const;  // l_d(b) for theta T_dec
  [[nodiscard]] bool cache_fits(int input_tokens, int predicted_tokens) const;
  [[nodiscard]] std::int64_t end_of(const Entry& entry) const { return entry.end > iteration_ ? entry.end : iteration_ + 1; }
  void weigh();
  void find_first_waiting();

  PackingModel model_;
  PackingRules rules_;
  std::vector<Entry> entries_;  // by end, latest first
  double context_ = 0;
  double waiting_ = 0;
  double earned_s_ = 0;             // T_dec per iteration
  double earliest_deadline_s_ = 0;  // of the entries, minus earned_s_; infinite if nothing decodes
  double first_waiting_s_ = 0;      // when the first of the waiting prompts was placed; infinite: none waits
  std::int64_t iteration_ = 0;
  PackingError error_;
  double norm_ = 0;
  double max_context_ = 0, max_batch_ = 0;  // maxima by Eq. 4 alone
};

}  // namespace windlass::dispatch
