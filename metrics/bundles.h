// Metric bundles: one plain struct per program with every metric that it exposes. The composition root creates it and passes it
// on.
//
// Names, help texts, labels and buckets are defined only here. All times are in seconds. `model` is the served name.
// Thread-safe in the way that registry.h describes.
#pragma once

#include <string>

#include "metrics/controller_metrics.h"
#include "metrics/process_metrics.h"
#include "metrics/registry.h"

namespace windlass::metrics {

// A worker serves one model, so the constructor fixes the label and the instruments are ready to use.
struct WorkerMetrics {
  WorkerMetrics(Registry& registry, const std::string& model);

  // windlass_worker_requests_finished_total{model,reason}; reason: "stop", "length", "abort", "error", "rejected", "prefilled".
  [[nodiscard]] Counter requests_finished(const std::string& reason) const;
  // windlass_worker_kv_transfer_bytes_total{model,direction}; direction: "sent", "received".
  [[nodiscard]] Counter kv_transfer_bytes(const std::string& direction) const;
  // windlass_worker_kv_transfers_total{model,outcome}: prompts requested from other workers; outcome: "received"; "failed":
  // computed here instead; "stopped": the request ended, or lost its memory to another request.
  [[nodiscard]] Counter kv_transfers(const std::string& outcome) const;

  // windlass_worker_chain_bytes_total{model,direction}: between the workers of a chain; direction: "sent" (hidden states to the
  // next worker), "received" (logits from the next worker, hidden states from the previous one).
  [[nodiscard]] Counter chain_bytes(const std::string& direction) const;
  // windlass_worker_chain_refusals_total{model,reason}: reservations that this worker refused ("full", "draining"; "mismatch":
  // another model, or blocks that are not adjacent), or that the next worker did not answer ("unreachable").
  [[nodiscard]] Counter chain_refusals(const std::string& reason) const;

  ProcessMetrics process;
  Gauge requests_running;           // windlass_worker_requests_running{model}
  Gauge requests_waiting;           // windlass_worker_requests_waiting{model}
  Gauge prompts_held;               // windlass_worker_prompts_held{model}: computed for other workers and not fetched yet
  Gauge kv_cache_usage_ratio;       // windlass_worker_kv_cache_usage_ratio{model}, 0 to 1
  Counter prompt_tokens;            // windlass_worker_prompt_tokens_total{model}
  Counter generation_tokens;        // windlass_worker_generation_tokens_total{model}
  Histogram time_to_first_token;    // windlass_worker_time_to_first_token_seconds{model}
  Histogram time_per_output_token;  // windlass_worker_time_per_output_token_seconds{model}; one observation per request
  Histogram e2e_request_latency;    // windlass_worker_e2e_request_latency_seconds{model}
  Histogram request_queue;          // windlass_worker_request_queue_seconds{model}: from arrival to the first iteration with it
  Histogram request_prefill;        // windlass_worker_request_prefill_seconds{model}: from there to the first token
  Histogram request_decode;         // windlass_worker_request_decode_seconds{model}: from there to the last
  Histogram iteration;              // windlass_worker_iteration_seconds{model}: a step of the whole batch
  Histogram iteration_tokens;       // windlass_worker_iteration_tokens{model}: tokens computed in it, of prompts and answers
  Counter preemptions;              // windlass_worker_preemptions_total{model}
  Counter prefix_cache_queries;     // windlass_worker_prefix_cache_queries_total{model}: prompt tokens looked up
  Counter prefix_cache_hits;        // windlass_worker_prefix_cache_hits_total{model}: prompt tokens found
  Gauge kv_blocks;                  // windlass_worker_kv_cache_blocks{model}
  Gauge kv_blocks_used;             // windlass_worker_kv_cache_blocks_used{model}
  Histogram kv_transfer;            // windlass_worker_kv_transfer_seconds{model}: from the first request to the last answer
  Gauge model_load;                 // windlass_worker_model_load_seconds{model}
  Gauge model_blocks_first;         // windlass_worker_model_blocks_first{model}: A of the served blocks A:B
  Gauge model_blocks_end;           // windlass_worker_model_blocks_end{model}: B of the served blocks A:B
  Histogram chain_step;             // windlass_worker_chain_step_seconds{model}: from sending a step to receiving its logits
  Gauge chain_sessions;             // windlass_worker_chain_sessions{model}: of other workers' requests that hold memory here
  Counter chain_sessions_expired;   // windlass_worker_chain_sessions_expired_total{model}: no worker renewed them
  // Time of one iteration, measured before serving. The series exist only while the worker serves the whole model.
  GaugeFamily measured_prefill;  // windlass_worker_measured_prefill_seconds{model,tokens}: one prompt of this length
  // windlass_worker_measured_decode_seconds{model,batch,context}: context is the mean number of tokens per sequence.
  GaugeFamily measured_decode;

 private:
  std::string model_;
  CounterFamily requests_finished_;
  CounterFamily kv_transfer_bytes_;
  CounterFamily kv_transfers_;
  CounterFamily chain_bytes_;
  CounterFamily chain_refusals_;
};

struct GatewayMetrics {
  explicit GatewayMetrics(Registry& registry);

  ProcessMetrics process;
  CounterFamily requests_started;           // windlass_gateway_requests_started_total{model}: arrivals, the demand signal
  CounterFamily requests_finished;          // windlass_gateway_requests_finished_total{model,code}; code 499: the client left
  CounterFamily requests_attained;          // windlass_gateway_requests_attained_total{model}
  CounterFamily requests_judged;            // windlass_gateway_requests_judged_total{model}
  GaugeFamily queue_length;                 // windlass_gateway_queue_length{model}
  GaugeFamily decode_queue_length;          // windlass_gateway_decode_queue_length{model}: between a request's two steps
  CounterFamily mixed_pool_requests;        // windlass_gateway_mixed_pool_requests_total{model}: finished ones
  GaugeFamily mixed_pool_workers;           // windlass_gateway_mixed_pool_workers{model}: in Splitwise's mixed pool now
  HistogramFamily queue_wait;               // windlass_gateway_queue_wait_seconds{model}
  GaugeFamily requests_in_flight;           // windlass_gateway_requests_in_flight{model,chain}
  GaugeFamily chain_slots;                  // windlass_gateway_chain_slots{model,chain}: this gateway's share
  HistogramFamily time_to_first_token;      // windlass_gateway_time_to_first_token_seconds{model}: streamed requests
  HistogramFamily time_per_output_token;    // windlass_gateway_time_per_output_token_seconds{model}: streamed requests, n > 1
  CounterFamily request_prompt_tokens;      // windlass_gateway_request_prompt_tokens_total{model}
  CounterFamily request_generation_tokens;  // windlass_gateway_request_generation_tokens_total{model}
  CounterFamily requests_measured;          // windlass_gateway_requests_measured_total{model}: requests in those two totals
  CounterFamily requests_rebalanced;        // windlass_gateway_requests_rebalanced_total{model}: by Aladdin's Alg. 2
  CounterFamily upstream_errors;            // windlass_gateway_upstream_errors_total{model,reason}
  GaugeFamily dispatch_policy;              // windlass_gateway_dispatch_policy{model,policy}: 1 for the policy in use
  GaugeFamily silent_workers;               // windlass_gateway_silent_workers{model}: listed workers that do not answer
  CounterFamily key_requests;               // windlass_gateway_key_requests_total{key,code}: by API key id; never the key
  CounterFamily key_tokens;                 // windlass_gateway_key_tokens_total{key}: prompt and generated tokens
  Gauge routing_table_term;                 // windlass_gateway_routing_table_term
  Gauge routing_table_counter;              // windlass_gateway_routing_table_revision
};

}  // namespace windlass::metrics
