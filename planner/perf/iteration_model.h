// IterationModel predicts how long one iteration of an engine takes on one worker (a model on an accelerator with a fixed
// number of GPUs).
//
// All latency models share this interface: fitted lines, DistServe's formulas, measured profiles, operator tables, roofline. An
// iteration is described by sums over its sequences, which is all that these models need (Vidur's equivalences: prefills of
// lengths p_i attend like one of length sqrt(sum p_i^2); decode attention depends on the sum of contexts). So a simulator
// updates them in constant time. Implementations are immutable and may be shared between threads. Pure.
#pragma once

#include <limits>

namespace windlass::planner {

struct Batch {
  // Prefill: chunks of prompts processed in this iteration.
  int prefill_sequences = 0;
  double prefill_tokens = 0;  // sum of the chunks' tokens
  double prefill_attention =
      0;  // sum over chunks of chunk^2 + 2 chunk * (prompt tokens before it); for a whole prompt, its length squared
  // Decode: one new token for each of these sequences.
  int decode_sequences = 0;
  double decode_context_tokens = 0;  // sum of the tokens in their caches

  [[nodiscard]] bool empty() const { return prefill_sequences == 0 && decode_sequences == 0; }

  void add_prefill(double chunk_tokens, double tokens_before = 0) {
    ++prefill_sequences;
    prefill_tokens += chunk_tokens;
    prefill_attention += chunk_tokens * (chunk_tokens + 2 * tokens_before);
  }
  void add_decode(double context_tokens) {
    ++decode_sequences;
    decode_context_tokens += context_tokens;
  }

  bool operator==(const Batch&) const = default;
};

[[nodiscard]] inline Batch prefill_batch(int sequences, double prompt_tokens) {
  return Batch{sequences, sequences * prompt_tokens, sequences * prompt_tokens * prompt_tokens, 0, 0};
}
[[nodiscard]] inline Batch decode_batch(int sequences, double mean_context_tokens) {
  return Batch{0, 0, 0, sequences, sequences * mean_context_tokens};
}

// What a prediction is based on.
enum class Coverage {
  kMeasured,      // within the measured or fitted range
  kExtrapolated,  // outside of it, by the same formula
  kModelled,      // data sheets, or measurements of another accelerator
};

// Token counts that measurements cover.
struct TokenRange {
  double least = 0, most = std::numeric_limits<double>::infinity();

  bool operator==(const TokenRange&) const = default;
};

class IterationModel {
 public:
  virtual ~IterationModel() = default;

  // Seconds of the iteration on the worker, through all its pipeline stages. REQUIRES: !batch.empty(). Never negative.
  [[nodiscard]] virtual double iteration_s(const Batch& batch) const = 0;

  // How well measurements cover this prediction.
  [[nodiscard]] virtual Coverage coverage(const Batch& batch) const = 0;

  // Tokens that fit in the worker's KV cache. 0 or less: the model itself does not fit.
  [[nodiscard]] virtual double kv_capacity_tokens() const = 0;

  // Contexts of the decodes, and tokens of the prompts (of a batch together), that were measured. Beyond them, a fitted line
  // may count for tokens what belongs to requests: it could not tell them apart.
  [[nodiscard]] virtual TokenRange measured_contexts() const { return {}; }
  [[nodiscard]] virtual TokenRange measured_prompts() const { return {}; }

  // Pipeline stages of the worker; an iteration occupies one at a time, each for iteration_s / stages.
  [[nodiscard]] virtual int pipeline_stages() const { return 1; }
};

}  // namespace windlass::planner
