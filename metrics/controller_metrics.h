// ControllerMetrics: every metric of the controller. docs/metrics.md explains the labels; a test keeps the two in step.
#pragma once

#include "metrics/process_metrics.h"
#include "metrics/registry.h"

namespace windlass::metrics {

struct ControllerMetrics {
  explicit ControllerMetrics(Registry& registry);

  ProcessMetrics process;

  // Per ModelService; labels namespace and name, and those listed in docs/metrics.md.
  GaugeFamily wanted_workers;            // windlass_controller_wanted_workers
  GaugeFamily desired_workers;           // windlass_controller_desired_workers
  GaugeFamily recommended_workers;       // windlass_controller_recommended_workers
  GaugeFamily ready_workers;             // windlass_controller_ready_workers
  GaugeFamily workers;                   // windlass_controller_workers
  GaugeFamily troubled_workers;          // windlass_controller_troubled_workers
  GaugeFamily denied_workers;            // windlass_controller_denied_workers
  GaugeFamily desired_gpus;              // windlass_controller_desired_gpus
  GaugeFamily ready_gpus;                // windlass_controller_ready_gpus
  GaugeFamily denied_gpus;               // windlass_controller_denied_gpus
  GaugeFamily cost_per_hour;             // windlass_controller_cost_per_hour
  GaugeFamily desired_cost_per_hour;     // windlass_controller_desired_cost_per_hour
  GaugeFamily arrivals_per_s;            // windlass_controller_arrivals_per_second
  GaugeFamily forecast_arrivals_per_s;   // windlass_controller_forecast_arrivals_per_second
  GaugeFamily forecast_horizon_s;        // windlass_controller_forecast_horizon_seconds
  GaugeFamily forecast_error;            // windlass_controller_forecast_error_ratio
  GaugeFamily forecast_method;           // windlass_controller_forecast_method
  GaugeFamily backlog;                   // windlass_controller_backlog_requests
  GaugeFamily kv_cache_usage;            // windlass_controller_kv_cache_usage_ratio
  GaugeFamily predicted_ttft_s;          // windlass_controller_predicted_time_to_first_token_seconds
  GaugeFamily predicted_tpot_s;          // windlass_controller_predicted_time_per_output_token_seconds
  GaugeFamily predicted_requests_per_s;  // windlass_controller_predicted_requests_per_second
  GaugeFamily ttft_s;                    // windlass_controller_time_to_first_token_seconds
  GaugeFamily tpot_s;                    // windlass_controller_time_per_output_token_seconds
  GaugeFamily objective_ttft_s;          // windlass_controller_objective_time_to_first_token_seconds
  GaugeFamily objective_tpot_s;          // windlass_controller_objective_time_per_output_token_seconds
  GaugeFamily objective_ratio;           // windlass_controller_objective_ratio
  GaugeFamily slo_attainment_ratio;      // windlass_controller_slo_attainment_ratio
  GaugeFamily service_info;              // windlass_controller_service_info
  GaugeFamily condition;                 // windlass_controller_condition
  GaugeFamily mode;                      // windlass_controller_mode
  GaugeFamily signal_age_s;              // windlass_controller_signal_age_seconds
  GaugeFamily signal_state;              // windlass_controller_signal_state
  CounterFamily decisions;               // windlass_controller_decisions_total
  CounterFamily scale_changes;           // windlass_controller_scale_changes_total
  GaugeFamily drain_age_s;               // windlass_controller_drain_age_seconds
  GaugeFamily drain_timeout_s;           // windlass_controller_drain_timeout_seconds
  GaugeFamily worker_start_p90_s;        // windlass_controller_worker_start_p90_seconds
  GaugeFamily worker_starts;             // windlass_controller_worker_starts

  // Per configuration of a model; labels namespace, model, engine, accelerator, gpus_per_worker and phase.
  GaugeFamily calibration_scale;    // windlass_controller_calibration_scale_ratio
  GaugeFamily calibration_error;    // windlass_controller_calibration_error_ratio
  GaugeFamily calibration_samples;  // windlass_controller_calibration_samples

  // Per AcceleratorClass; label accelerator.
  GaugeFamily allocatable_gpus;  // windlass_controller_allocatable_gpus
  GaugeFamily used_gpus;         // windlass_controller_used_gpus
  GaugeFamily pending_gpus;      // windlass_controller_pending_gpus

  // The controller itself.
  Gauge leader;                             // windlass_controller_leader
  Histogram reconcile_duration;             // windlass_controller_reconcile_duration_seconds
  HistogramFamily reconcile_step_duration;  // windlass_controller_reconcile_step_duration_seconds
  CounterFamily reconcile_errors;           // windlass_controller_reconcile_errors_total
  CounterFamily api_requests;               // windlass_controller_api_requests_total
  CounterFamily status_writes;              // windlass_controller_status_writes_total
  CounterFamily scrape_errors;              // windlass_controller_scrape_errors_total
  CounterFamily broken_series;              // windlass_controller_broken_series_total
  GaugeFamily unreadable_objects;           // windlass_controller_unreadable_objects
};

}  // namespace windlass::metrics
