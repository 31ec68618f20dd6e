// Names and help texts of the worker's and the gateway's metrics.
#include "metrics/bundles.h"

#include "metrics/buckets.h"
#include "metrics/host/clock.h"

namespace windlass::metrics {

ProcessMetrics::ProcessMetrics(Registry& registry)
    : start_time(registry.gauges("process_start_time_seconds", "Start time of the process since the Unix epoch, in seconds.")
                     .with({})) {
  start_time.set(wall_s());
}

WorkerMetrics::WorkerMetrics(Registry& registry, const std::string& model)
    : process(registry),
      requests_running(
          registry.gauges("windlass_worker_requests_running", "Requests in the running batch.").with({{"model", model}})),
      requests_waiting(
          registry.gauges("windlass_worker_requests_waiting", "Requests waiting to be scheduled.").with({{"model", model}})),
      prompts_held(registry
                       .gauges("windlass_worker_prompts_held",
                               "Prompts computed for other workers that have not fetched their keys and values yet.")
                       .with({{"model", model}})),
      kv_cache_usage_ratio(registry.gauges("windlass_worker_kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.")
                               .with({{"model", model}})),
      prompt_tokens(
          registry.counters("windlass_worker_prompt_tokens_total", "Prompt tokens, including those found in the KV cache.")
              .with({{"model", model}})),
      generation_tokens(
          registry.counters("windlass_worker_generation_tokens_total", "Tokens generated.").with({{"model", model}})),
      time_to_first_token(registry
                              .histograms("windlass_worker_time_to_first_token_seconds",
                                          "Time from a request's arrival at the worker to its first token.",
                                          time_to_first_token_bounds_s())
                              .with({{"model", model}})),
      time_per_output_token(registry
                                .histograms("windlass_worker_time_per_output_token_seconds",
                                            "Mean time between a request's tokens, after the first.",
                                            time_per_output_token_bounds_s())
                                .with({{"model", model}})),
      e2e_request_latency(registry
                              .histograms("windlass_worker_e2e_request_latency_seconds",
                                          "Time from a request's arrival at the worker to its last token.",
                                          request_latency_bounds_s())
                              .with({{"model", model}})),
      request_queue(registry
                        .histograms("windlass_worker_request_queue_seconds",
                                    "Time from a request's arrival at the worker to its first iteration.",
                                    time_to_first_token_bounds_s())
                        .with({{"model", model}})),
      request_prefill(registry
                          .histograms("windlass_worker_request_prefill_seconds",
                                      "Time from a request's first iteration to its first token.",
                                      time_to_first_token_bounds_s())
                          .with({{"model", model}})),
      request_decode(registry
                         .histograms("windlass_worker_request_decode_seconds", "Time from a request's first token to its last.",
                                     request_latency_bounds_s())
                         .with({{"model", model}})),
      iteration(registry
                    .histograms("windlass_worker_iteration_seconds", "Time of an iteration: one step of all running requests.",
                                iteration_bounds_s())
                    .with({{"model", model}})),
      iteration_tokens(registry
                           .histograms("windlass_worker_iteration_tokens",
                                       "Tokens computed in an iteration, of prompts and of answers.", iteration_tokens_bounds())
                           .with({{"model", model}})),
      preemptions(
          registry.counters("windlass_worker_preemptions_total", "Times that a request lost its KV cache to another request.")
              .with({{"model", model}})),
      prefix_cache_queries(
          registry.counters("windlass_worker_prefix_cache_queries_total", "Prompt tokens looked up in the KV cache.")
              .with({{"model", model}})),
      prefix_cache_hits(registry
                            .counters("windlass_worker_prefix_cache_hits_total",
                                      "Prompt tokens found in the KV cache and therefore not computed.")
                            .with({{"model", model}})),
      kv_blocks(registry.gauges("windlass_worker_kv_cache_blocks", "Blocks of the KV cache.").with({{"model", model}})),
      kv_blocks_used(
          registry.gauges("windlass_worker_kv_cache_blocks_used", "Blocks of the KV cache in use.").with({{"model", model}})),
      kv_transfer(registry
                      .histograms("windlass_worker_kv_transfer_seconds",
                                  "Time to receive a prompt's keys and values from another worker.",
                                  time_to_first_token_bounds_s())
                      .with({{"model", model}})),
      model_load(registry.gauges("windlass_worker_model_load_seconds", "Time to load the model.").with({{"model", model}})),
      model_blocks_first(
          registry.gauges("windlass_worker_model_blocks_first", "First of the model's blocks that this worker serves.")
              .with({{"model", model}})),
      model_blocks_end(
          registry
              .gauges("windlass_worker_model_blocks_end", "One past the last of the model's blocks that this worker serves.")
              .with({{"model", model}})),
      chain_step(registry
                     .histograms("windlass_worker_chain_step_seconds",
                                 "Time from sending a step to the next worker of a chain to receiving its logits.",
                                 iteration_bounds_s())
                     .with({{"model", model}})),
      chain_sessions(
          registry.gauges("windlass_worker_chain_sessions", "Sequences of other workers' requests that hold memory here.")
              .with({{"model", model}})),
      chain_sessions_expired(registry
                                 .counters("windlass_worker_chain_sessions_expired_total",
                                           "Chain sessions that ended because no worker renewed them.")
                                 .with({{"model", model}})),
      measured_prefill(registry.gauges("windlass_worker_measured_prefill_seconds",
                                       "Time of one iteration over a prompt of this many tokens, measured before serving.")),
      measured_decode(registry.gauges("windlass_worker_measured_decode_seconds",
                                      "Time of one decode iteration at this batch and mean context, measured before serving.")),
      model_(model),
      requests_finished_(registry.counters("windlass_worker_requests_finished_total", "Requests finished, by reason.")),
      kv_transfer_bytes_(registry.counters("windlass_worker_kv_transfer_bytes_total",
                                           "Bytes of keys and values sent to other workers and received from them.")),
      kv_transfers_(registry.counters("windlass_worker_kv_transfers_total",
                                      "Prompts whose keys and values come from other workers, by outcome.")),
      chain_bytes_(
          registry.counters("windlass_worker_chain_bytes_total",
                            "Bytes of hidden states and logits sent to other workers of chains and received from them.")),
      chain_refusals_(registry.counters("windlass_worker_chain_refusals_total",
                                        "Reservations of memory in a chain that were refused, by reason.")) {}

Counter WorkerMetrics::requests_finished(const std::string& reason) const {
  return requests_finished_.with({{"model", model_}, {"reason", reason}});
}

Counter WorkerMetrics::kv_transfer_bytes(const std::string& direction) const {
  return kv_transfer_bytes_.with({{"model", model_}, {"direction", direction}});
}

Counter WorkerMetrics::kv_transfers(const std::string& outcome) const {
  return kv_transfers_.with({{"model", model_}, {"outcome", outcome}});
}

Counter WorkerMetrics::chain_bytes(const std::string& direction) const {
  return chain_bytes_.with({{"model", model_}, {"direction", direction}});
}

Counter WorkerMetrics::chain_refusals(const std::string& reason) const {
  return chain_refusals_.with({{"model", model_}, {"reason", reason}});
}

GatewayMetrics::GatewayMetrics(Registry& registry)
    : process(registry),
      requests_started(registry.counters("windlass_gateway_requests_started_total",
                                         "Arrivals of requests for a known model, whatever their outcome: the demand.")),
      requests_finished(registry.counters("windlass_gateway_requests_finished_total",
                                          "Requests finished, by HTTP status; 499 means that the client left.")),
      requests_attained(registry.counters("windlass_gateway_requests_attained_total",
                                          "Judged requests whose TTFT and TPOT both met the objective.")),
      requests_judged(registry.counters("windlass_gateway_requests_judged_total",
                                        "Requests that count for the objective; 429, 5xx and timeouts count as misses.")),
      queue_length(registry.gauges("windlass_gateway_queue_length", "Requests waiting for a free slot.")),
      decode_queue_length(registry.gauges("windlass_gateway_decode_queue_length",
                                          "Requests that a prefill worker took, waiting for a decode worker's slot.")),
      mixed_pool_requests(registry.counters("windlass_gateway_mixed_pool_requests_total",
                                            "Requests with a phase done by a worker of the other role, in the mixed pool.")),
      mixed_pool_workers(registry.gauges("windlass_gateway_mixed_pool_workers",
                                         "Prefill workers that have decodes, and decode workers that have prompts.")),
      queue_wait(registry.histograms("windlass_gateway_queue_wait_seconds", "Time from a request's arrival to its dispatch.",
                                     gateway_wait_bounds_s())),
      requests_in_flight(
          registry.gauges("windlass_gateway_requests_in_flight", "Requests that a chain holds for this gateway.")),
      chain_slots(registry.gauges(
          "windlass_gateway_chain_slots",
          "Requests that a chain may hold for this gateway: this gateway's share of the slots, 0 while the chain drains.")),
      time_to_first_token(registry.histograms("windlass_gateway_time_to_first_token_seconds",
                                              "Time from a streamed request's arrival to its first token, queueing included.",
                                              gateway_wait_bounds_s())),
      time_per_output_token(registry.histograms("windlass_gateway_time_per_output_token_seconds",
                                                "Mean time between a streamed request's tokens, after the first.",
                                                gateway_token_bounds_s())),
      request_prompt_tokens(
          registry.counters("windlass_gateway_request_prompt_tokens_total", "Prompt tokens of measured requests.")),
      request_generation_tokens(
          registry.counters("windlass_gateway_request_generation_tokens_total", "Generated tokens of measured requests.")),
      requests_measured(
          registry.counters("windlass_gateway_requests_measured_total", "Requests included in the token totals.")),
      requests_rebalanced(registry.counters("windlass_gateway_requests_rebalanced_total",
                                            "Requests that policy aladdin gave to another worker than the fullest, because "
                                            "answers were longer or shorter than predicted.")),
      upstream_errors(registry.counters("windlass_gateway_upstream_errors_total", "Failures of workers, by reason.")),
      dispatch_policy(registry.gauges("windlass_gateway_dispatch_policy",
                                      "1 for the policy by which requests of the model are given to workers.")),
      silent_workers(registry.gauges("windlass_gateway_silent_workers",
                                     "Workers in the routing table that should take requests but do not answer this gateway.")),
      key_requests(registry.counters("windlass_gateway_key_requests_total",
                                     "Requests by API key id and HTTP status; the id of an unknown key is empty.")),
      key_tokens(registry.counters("windlass_gateway_key_tokens_total", "Prompt and generated tokens by API key id.")),
      routing_table_term(registry.gauges("windlass_gateway_routing_table_term", "Term of the routing table in use.").with({})),
      routing_table_counter(
          registry.gauges("windlass_gateway_routing_table_revision", "Counter of the routing table in use.").with({})) {}

}  // namespace windlass::metrics
