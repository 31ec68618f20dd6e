// PackingError measures how far a worker is from what its requests were predicted to need: Nie, Fonseca, Liu 2024 ("Aladdin"),
// Alg. 2.
//
// A request that exceeds its prediction adds its new prediction to l_e and 1 to b_e; one that ends early subtracts the missing
// tokens and 1. A new request that is moved is subtracted at the worker that best fit chose and added where it goes. By Eq. 4
// the error costs k2 l_e + c2 b_e of an iteration's time; this magnitude is the paper's distance of the error line from the
// origin, times sqrt(k2^2 + c2^2).
//
// The paper computes the sums again at every heartbeat, from the requests of that moment. Without heartbeats, what a request
// at the worker adds counts until the caller withdraws it. What is subtracted for a request that is gone counts until the
// iteration at which it was predicted to end. Plain value without a clock.
#pragma once

#include <vector>

namespace windlass::dispatch {

class PackingError {
 public:
  // A request exceeded its prediction and is now predicted to make these tokens; or came here although best fit placed it
  // elsewhere.
  void add(int predicted_tokens);
  // The request that added this ended, failed, or is predicted again.
  void withdraw(int predicted_tokens);
  // A request ended after fewer tokens than predicted.
  void ended_early(int output_tokens, int predicted_tokens);
  // A new request that best fit placed here went elsewhere.
  void gave(int predicted_tokens);
  // The worker's requests have each made this many tokens more; a fraction, if only the tokens of some were seen.
  void iterated(double iterations);
  // The worker is empty: nothing is left that could be wrong.
  void clear();

  [[nodiscard]] double tokens() const { return tokens_; }      // l_e
  [[nodiscard]] double requests() const { return requests_; }  // b_e

 private:
  struct Part {
    double until = 0;  // iterations
    int tokens = 0;
  };

  // Until this many iterations from now.
  void subtract(int tokens);

  std::vector<Part> parts_;  // a heap: the first one ends first
  double iterations_ = 0, tokens_ = 0, requests_ = 0;
};

}  // namespace windlass::dispatch
