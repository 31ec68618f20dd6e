// PackedWorker: one worker as a bin that requests are packed into: Nie, Fonseca, Liu 2024 ("Aladdin"), Section 4.2.
//
// A request fits where, with it,
//   (b) sum(l_in + gamma l_pred) <= l_d(b)            the batch's context is one that keeps theta T_dec (Eq. 4)
//   (c) t_p(sum of the new prompts) <= T_pre          prompts that wait here are prefilled inside the TTFT objective (Eq. 2)
//   (d) t_p(sum of the new prompts) <= theta min(T_dec l_out - t_dec)      the prefill stalls nobody who decodes for longer
//                                                     than he has saved (l_out of the decode phase, as in Section 2.2's ATGT)
//   (e) at each coming iteration the caches of all that are still predicted to run fit (Eq. 1)
// with gamma for the growth of contexts and theta for errors of prediction. The paper puts theta before l_d(b) in (b); where
// weights take most of an iteration, a tenth of the context is 1 to 4 % of its time, and best fit keeps each worker at that
// limit: ordinary fluctuation then misses the objective (docs/algorithms/aladdin.md). Here theta is a share of T_dec in both.
// An empty worker takes whatever its cache holds: nobody is harmed, and there is no better place.
//
// None of this looks at the requests one by one. All that decode make a token in the same iterations, so that T_dec l_out -
// t_dec of each is a constant plus what the worker's iterations earned less the time; and the cache's use rises between two
// predicted ends, so that it is largest at one of them. What a request needs at least is compared with Rooms first.
//
// Plain value; time comes in as an argument. Tokens are counted, Eq. 1's h being the same for all of a model's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::dispatch {

// Eq. 1 to 3 of one worker. A coefficient of 0 leaves its constraint out.
struct PackingModel {
  double prefill_token_s = 0;     // k1
  double prefill_s = 0;           // c1
  double context_token_s = 0;     // k2
  double decode_request_s = 0;    // c2
  double decode_s = 0;            // c3
  double kv_capacity_tokens = 0;  // M; 0: no constraint
  double kv_request_tokens = 16;  // j: paging rounds up by a block at most
  int most_requests = 256;        // that an engine runs at once
  // Of Huawei's lines (batch_times.h), which have them beside those above; packing leaves them out.
  double prefill_request_s = 0;  // p2
  double prefill_length_s = 0;   // p3
  double context_length_s = 0;   // p7

  bool operator==(const PackingModel&) const = default;
};

// What a share of the worker's slots sees of it, as long as others load theirs alike: its own tokens cost what all of them do,
// and its part of the cache is left to it. most_requests stays. REQUIRES: 0 < share <= 1.
[[nodiscard]] PackingModel shared(const PackingModel& model, double share);

// What of a request's life a worker serves (Section 5.1): all of it, (b) to (e); its prefill alone, (c); its decode, (b), (e).
enum class PackingPhase { kBoth, kPrefill, kDecode };

struct PackingRules {
  double ttft_s = 0;  // T_pre
  double tpot_s = 0;  // T_dec, ATGT
  double gamma = 0.5;
  double theta = 0.9;
  PackingPhase phase = PackingPhase::kBoth;
};

class PackedWorker {
 public:
  using Handle = std::uint32_t;  // the caller's name of a request

  PackedWorker(const PackingModel& model, const PackingRules& rules);

  // Comes here; its prompt is to be processed, where this worker does that. REQUIRES: not here; input >= 1, predicted >= 1.
  void add(Handle request, int input_tokens, int predicted_tokens);
  // Its first token has been made: it decodes from now on.
  void begin_decode(Handle request, double now_s);
  // An iteration has made a token for each that decodes.
  void iterated();
  // One of them has made so many (where iterations are not seen).
  void tokens_made(Handle request, int count);
  // It has made as many tokens as were predicted, or more is known.
  void predict_again(Handle request, int predicted_tokens);
  void remove(Handle request);

  // One that has made as many tokens as were predicted, or more, and goes on.
  struct Overdue {
    Handle request = 0;
    int input_tokens = 0;
    int made = 0;
  };
  [[nodiscard]] std::optional<Overdue> overdue() const;
  void set_model(const PackingModel& model);

  // (b) to (e).
  [[nodiscard]] bool fits(int input_tokens, int predicted_tokens, double now_s) const;

  // What is left of each constraint, as a bound: a request for which there is no room in one of these fits nowhere among the
  // workers over which they are the largest.
  static constexpr std::array<int, 8> kHorizons = {0, 32, 64, 128, 256, 512, 1024, 2048};
  struct Rooms {
    double context = 0;  // (b), weighted tokens
    double prompt = 0;   // (c), prompt tokens
    double saved_s = 0;  // (d): theta (earliest deadline of a saving) - prefill time of what waits; less theta now
    double prefill_token_s = 0;
    std::array<double, kHorizons.size()> cache{};  // (e), tokens of a prompt that is here for so many iterations at least

    void widen(const Rooms& other);
    [[nodiscard]] bool may_take(int input_tokens, double weight, std::size_t horizon, double theta_now_s) const {
      return context >= weight && prompt >= input_tokens && cache[horizon] >= input_tokens &&
             saved_s >= prefill_token_s * input_tokens + theta_now_s;
    }
  };
  [[nodiscard]] Rooms rooms() const;
  // Index of the largest horizon that a request of so many tokens reaches.
  [[nodiscard]] static std::size_t horizon_of(int predicted_tokens);

  // capacity_norm: L2 norm of batch size and weighted context. The paper leaves open in which units, and a context is hundreds
  // of times a batch: each is taken as a share of what it could be alone by Eq. 4.
  [[nodiscard]] double norm() const { return norm_; }
  [[nodiscard]] int requests() const { return static_cast<int>(entries_.size()); }
  [[nodiscard]] double context() const { return context_; }                // sum(l_in + gamma l_pred)
  [[nodiscard]] double waiting_prompt_tokens() const { return waiting_; }  // of new requests
  [[nodiscard]] std::int64_t iterations() const { return iteration_; }
  [[nodiscard]] const PackingModel& model() const { return model_; }
  [[nodiscard]] double saved_s(double now_s) const { return earliest_deadline_s_ + earned_s_ - now_s; }  // least; (d)
  // Largest use of the cache over the coming iterations, in tokens; and its use after so many.
  [[nodiscard]] double cache_peak() const;
  [[nodiscard]] double cache_after(std::int64_t iterations) const;
  // In how many iterations each request here is predicted to end, latest first.
  [[nodiscard]] std::vector<std::int64_t> ends_after() const;

 private:
  struct Entry {
    Handle request = 0;
    int input = 0;
    int predicted = 0;
    bool decodes = false;
    std::int64_t end = 0;   // iteration of the predicted end
    double offset = 0;      // cache tokens at iteration u: offset + u
    double deadline_s = 0;  // moment at which its savings are spent, less earned_s_; of those that decode
  };

  [[nodiscard]] std::size_t place_of(Handle request) const;
  void insert(const Entry& entry);
  Entry take(Handle request);
  [[nodiscard]] double weight(const Entry& entry) const { return entry.input + rules_.gamma * entry.predicted; }
  [[nodiscard]] double context_limit(int requests) const;  // l_d(b) for theta T_dec
  [[nodiscard]] bool cache_fits(int input_tokens, int predicted_tokens) const;
  [[nodiscard]] std::int64_t end_of(const Entry& entry) const { return entry.end > iteration_ ? entry.end : iteration_ + 1; }
  void weigh();

  PackingModel model_;
  PackingRules rules_;
  std::vector<Entry> entries_;  // by end, latest first
  double context_ = 0;
  double waiting_ = 0;
  double earned_s_ = 0;             // T_dec for each iteration
  double earliest_deadline_s_ = 0;  // of the entries', less earned_s_; infinite: nobody decodes
  std::int64_t iteration_ = 0;
  double norm_ = 0;
  double most_context_ = 0, most_batch_ = 0;  // of Eq. 4 alone
};

}  // namespace windlass::dispatch
