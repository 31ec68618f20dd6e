// Names and help texts of every metric.
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
          registry.gauges("windlass_worker_requests_waiting", "Requests that wait to be scheduled.").with({{"model", model}})),
      prompts_held(registry
                       .gauges("windlass_worker_prompts_held",
                               "Prompts computed for other workers whose keys and values these have not taken yet.")
                       .with({{"model", model}})),
      kv_cache_usage_ratio(registry.gauges("windlass_worker_kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.")
                               .with({{"model", model}})),
      prompt_tokens(
          registry
              .counters("windlass_worker_prompt_tokens_total", "Tokens of prompts, those that were in the KV cache included.")
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
                                            "Mean time between the tokens of a request, the first one excluded.",
                                            time_per_output_token_bounds_s())
                                .with({{"model", model}})),
      e2e_request_latency(registry
                              .histograms("windlass_worker_e2e_request_latency_seconds",
                                          "Time from a request's arrival at the worker to its last token.",
                                          request_latency_bounds_s())
                              .with({{"model", model}})),
      request_queue(registry
                        .histograms("windlass_worker_request_queue_seconds",
                                    "Time from a request's arrival at the worker to the first iteration with it.",
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
                           .histograms("windlass_worker_iteration_tokens", "Tokens of an iteration, of prompts and of answers.",
                                       iteration_tokens_bounds())
                           .with({{"model", model}})),
      preemptions(registry.counters("windlass_worker_preemptions_total", "Times that a request lost its cache to another one.")
                      .with({{"model", model}})),
      prefix_cache_queries(
          registry
              .counters("windlass_worker_prefix_cache_queries_total", "Tokens of prompts that were looked for in the KV cache.")
              .with({{"model", model}})),
      prefix_cache_hits(registry
                            .counters("windlass_worker_prefix_cache_hits_total",
                                      "Tokens of prompts that were in the KV cache already, and not computed again.")
                            .with({{"model", model}})),
      kv_blocks(registry.gauges("windlass_worker_kv_cache_blocks", "Blocks of the KV cache.").with({{"model", model}})),
      kv_blocks_used(
          registry.gauges("windlass_worker_kv_cache_blocks_used", "Blocks of the KV cache in use.").with({{"model", model}})),
      kv_transfer(registry
                      .histograms("windlass_worker_kv_transfer_seconds",
                                  "Time to receive a prompt's keys and values from another worker.",
                                  time_to_first_token_bounds_s())
                      .with({{"model", model}})),
      model_load(
          registry.gauges("windlass_worker_model_load_seconds", "Time it took to load the model.").with({{"model", model}})),
      model_blocks_first(
          registry.gauges("windlass_worker_model_blocks_first", "The first of the model's blocks that is served.")
              .with({{"model", model}})),
      model_blocks_end(
          registry.gauges("windlass_worker_model_blocks_end", "The block after the last of the model's blocks that are served.")
              .with({{"model", model}})),
      chain_step(registry
                     .histograms("windlass_worker_chain_step_seconds",
                                 "Time from sending a step to the next worker of a chain until its logits are back.",
                                 iteration_bounds_s())
                     .with({{"model", model}})),
      chain_sessions(
          registry.gauges("windlass_worker_chain_sessions", "Sequences of other workers' requests that have room here.")
              .with({{"model", model}})),
      chain_sessions_expired(registry
                                 .counters("windlass_worker_chain_sessions_expired_total",
                                           "Sessions of chains that ended because nobody told of them any more.")
                                 .with({{"model", model}})),
      measured_prefill(registry.gauges("windlass_worker_measured_prefill_seconds",
                                       "Time of one iteration over a prompt of this many tokens, measured before serving.")),
      measured_decode(registry.gauges("windlass_worker_measured_decode_seconds",
                                      "Time of one decode iteration at this batch and mean context, measured before serving.")),
      model_(model),
      requests_finished_(registry.counters("windlass_worker_requests_finished_total", "Requests finished, by reason.")),
      kv_transfer_bytes_(registry.counters("windlass_worker_kv_transfer_bytes_total",
                                           "Bytes of keys and values that went to other workers and came from them.")),
      kv_transfers_(registry.counters("windlass_worker_kv_transfers_total",
                                      "Prompts whose keys and values other workers had to bring, by outcome.")),
      chain_bytes_(
          registry.counters("windlass_worker_chain_bytes_total",
                            "Bytes of hidden states and logits that went to other workers of chains and came from them.")),
      chain_refusals_(registry.counters("windlass_worker_chain_refusals_total",
                                        "Reservations of room in a chain that were not granted, by reason.")) {}

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
                                         "Requests for a known model that arrived, whatever became of them: the demand.")),
      requests_finished(registry.counters("windlass_gateway_requests_finished_total",
                                          "Requests finished, by HTTP status; 499 is a client that left.")),
      requests_attained(registry.counters("windlass_gateway_requests_attained_total",
                                          "Judged requests whose TTFT and TPOT were both inside the objective.")),
      requests_judged(registry.counters("windlass_gateway_requests_judged_total",
                                        "Requests that count for the objective; 429, 5xx and timeouts among them as misses.")),
      queue_length(registry.gauges("windlass_gateway_queue_length", "Requests that wait for a free slot.")),
      decode_queue_length(registry.gauges("windlass_gateway_decode_queue_length",
                                          "Requests that a prefill worker took and that wait for a decode worker's slot.")),
      queue_wait(registry.histograms("windlass_gateway_queue_wait_seconds", "Time from a request's arrival to its dispatch.",
                                     gateway_wait_bounds_s())),
      requests_in_flight(
          registry.gauges("windlass_gateway_requests_in_flight", "Requests that a chain holds for this gateway.")),
      chain_slots(
          registry.gauges("windlass_gateway_chain_slots",
                          "Requests that a chain may hold for this gateway: its share of the slots, 0 while it drains.")),
      time_to_first_token(registry.histograms("windlass_gateway_time_to_first_token_seconds",
                                              "Time from a streamed request's arrival to its first token, the queue included.",
                                              gateway_wait_bounds_s())),
      time_per_output_token(registry.histograms("windlass_gateway_time_per_output_token_seconds",
                                                "Mean time between a streamed request's tokens, the first one excluded.",
                                                gateway_token_bounds_s())),
      request_prompt_tokens(
          registry.counters("windlass_gateway_request_prompt_tokens_total", "Prompt tokens of measured requests.")),
      request_generation_tokens(
          registry.counters("windlass_gateway_request_generation_tokens_total", "Generated tokens of measured requests.")),
      requests_measured(registry.counters("windlass_gateway_requests_measured_total", "Requests that the token totals count.")),
      upstream_errors(registry.counters("windlass_gateway_upstream_errors_total", "Failures of workers, by reason.")),
      silent_workers(registry.gauges("windlass_gateway_silent_workers",
                                     "Workers in the routing table that take requests and do not answer this gateway.")),
      key_requests(registry.counters("windlass_gateway_key_requests_total",
                                     "Requests by API key's id and HTTP status; an unknown key's id is empty.")),
      key_tokens(registry.counters("windlass_gateway_key_tokens_total", "Prompt and generated tokens by API key's id.")),
      routing_table_term(registry.gauges("windlass_gateway_routing_table_term", "Term of the routing table in use.").with({})),
      routing_table_counter(
          registry.gauges("windlass_gateway_routing_table_revision", "Counter of the routing table in use.").with({})) {}

}  // namespace windlass::metrics
