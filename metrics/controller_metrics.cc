// Names and help texts of the controller's metrics.
#include "metrics/controller_metrics.h"

#include "metrics/buckets.h"

namespace windlass::metrics {

ControllerMetrics::ControllerMetrics(Registry& registry)
    : process(registry),
      wanted_workers(registry.gauges("windlass_controller_wanted_workers",
                                     "Workers needed for the demand, before limits by capacity, budgets and other services.")),
      desired_workers(registry.gauges("windlass_controller_desired_workers", "Workers that the plan wants.")),
      recommended_workers(registry.gauges("windlass_controller_recommended_workers", "Workers that mode Apply would run.")),
      ready_workers(registry.gauges("windlass_controller_ready_workers", "Workers that are ready to serve.")),
      workers(registry.gauges("windlass_controller_workers", "Workers that exist, by state.")),
      troubled_workers(registry.gauges("windlass_controller_troubled_workers", "Workers that cannot serve, by cause.")),
      denied_workers(
          registry.gauges("windlass_controller_denied_workers", "Workers that are needed but not granted, by reason.")),
      desired_gpus(registry.gauges("windlass_controller_desired_gpus", "GPUs of the desired workers.")),
      ready_gpus(registry.gauges("windlass_controller_ready_gpus", "GPUs of the ready workers.")),
      denied_gpus(registry.gauges("windlass_controller_denied_gpus", "GPUs of the denied workers, by reason.")),
      cost_per_hour(registry.gauges("windlass_controller_cost_per_hour",
                                    "Price per hour of the workers that exist, in the currency of the AcceleratorClasses.")),
      desired_cost_per_hour(
          registry.gauges("windlass_controller_desired_cost_per_hour", "Price per hour of the desired workers.")),
      arrivals_per_s(registry.gauges("windlass_controller_arrivals_per_second", "Requests per second over the last seconds.")),
      forecast_arrivals_per_s(
          registry.gauges("windlass_controller_forecast_arrivals_per_second",
                          "Requests per second expected at the time when a worker started now would be ready.")),
      forecast_horizon_s(registry.gauges("windlass_controller_forecast_horizon_seconds", "How far ahead the forecast looks.")),
      forecast_error(registry.gauges("windlass_controller_forecast_error_ratio",
                                     "Mean absolute error of past forecasts, relative to actual arrivals.")),
      forecast_method(registry.gauges("windlass_controller_forecast_method", "1 for the forecast method in use.")),
      backlog(registry.gauges("windlass_controller_backlog_requests", "Requests waiting at the gateways and in the workers.")),
      kv_cache_usage(registry.gauges("windlass_controller_kv_cache_usage_ratio",
                                     "Mean KV cache use of the ready workers that report it, 0 to 1.")),
      predicted_ttft_s(registry.gauges("windlass_controller_predicted_time_to_first_token_seconds",
                                       "TTFT that the plan predicts, at the objective's percentile.")),
      predicted_tpot_s(
          registry.gauges("windlass_controller_predicted_time_per_output_token_seconds", "TPOT that the plan predicts.")),
      predicted_requests_per_s(registry.gauges("windlass_controller_predicted_requests_per_second",
                                               "Requests per second that the planned workers can serve within the objective.")),
      ttft_s(registry.gauges("windlass_controller_time_to_first_token_seconds",
                             "TTFT at the gateways, at the objective's percentile over its window.")),
      tpot_s(registry.gauges("windlass_controller_time_per_output_token_seconds",
                             "TPOT at the gateways, at the objective's percentile over its window.")),
      objective_ttft_s(
          registry.gauges("windlass_controller_objective_time_to_first_token_seconds", "spec.slo.timeToFirstToken.")),
      objective_tpot_s(
          registry.gauges("windlass_controller_objective_time_per_output_token_seconds", "spec.slo.timePerOutputToken.")),
      objective_ratio(
          registry.gauges("windlass_controller_objective_ratio", "Share of requests that must attain the objective, 0 to 1.")),
      slo_attainment_ratio(
          registry.gauges("windlass_controller_slo_attainment_ratio",
                          "Share of judged requests that attained the objective over the SLO window, 0 to 1.")),
      service_info(
          registry.gauges("windlass_controller_service_info", "Always 1; labels give the served name of a ModelService.")),
      condition(registry.gauges("windlass_controller_condition", "1 for the current status and reason of a condition.")),
      mode(registry.gauges("windlass_controller_mode", "1 for the scaling mode.")),
      signal_age_s(registry.gauges("windlass_controller_signal_age_seconds", "Age of the newest reading of a signal.")),
      signal_state(
          registry.gauges("windlass_controller_signal_state", "1 for the current state of a signal: fresh, stale or missing.")),
      decisions(registry.counters("windlass_controller_decisions_total", "Times that a reason appeared in the plan.")),
      scale_changes(
          registry.counters("windlass_controller_scale_changes_total", "Times that the number of desired workers changed.")),
      drain_age_s(registry.gauges("windlass_controller_drain_age_seconds",
                                  "Longest time that a current worker has been draining; 0 when none drains.")),
      drain_timeout_s(registry.gauges("windlass_controller_drain_timeout_seconds", "spec.scaling.drainTimeout.")),
      worker_start_p90_s(registry.gauges("windlass_controller_worker_start_p90_seconds",
                                         "P90 of the time from a worker's creation to its first readiness, in seconds.")),
      worker_starts(registry.gauges("windlass_controller_worker_starts", "Worker starts that the P90 is computed from.")),
      calibration_scale(registry.gauges("windlass_controller_calibration_scale_ratio",
                                        "Calibrated iteration time, relative to the data sheet's.")),
      calibration_error(
          registry.gauges("windlass_controller_calibration_error_ratio",
                          "Standard deviation of observed iteration times around the calibrated one, relative to it.")),
      calibration_samples(registry.gauges("windlass_controller_calibration_samples", "Observations used for the calibration.")),
      allocatable_gpus(registry.gauges("windlass_controller_allocatable_gpus", "GPUs that the nodes of the class offer.")),
      used_gpus(registry.gauges("windlass_controller_used_gpus", "GPUs of the class in use, by Windlass or others.")),
      pending_gpus(registry.gauges("windlass_controller_pending_gpus", "GPUs of our workers that fit on no node.")),
      leader(registry.gauges("windlass_controller_leader", "1 while this replica leads.").with({})),
      reconcile_duration(registry
                             .histograms("windlass_controller_reconcile_duration_seconds",
                                         "Time of one reconcile: observe, plan and apply.", reconcile_bounds_s())
                             .with({})),
      reconcile_step_duration(registry.histograms("windlass_controller_reconcile_step_duration_seconds",
                                                  "Time of one step of a reconcile.", reconcile_bounds_s())),
      reconcile_errors(registry.counters("windlass_controller_reconcile_errors_total", "Failed reconcile steps, by step.")),
      api_requests(registry.counters("windlass_controller_api_requests_total",
                                     "Requests to the API server, by verb, resource and HTTP status.")),
      status_writes(registry.counters("windlass_controller_status_writes_total", "Statuses written, by kind.")),
      scrape_errors(registry.counters("windlass_controller_scrape_errors_total", "Failed scrapes, by kind of target.")),
      broken_series(registry.counters("windlass_controller_broken_series_total",
                                      "Series on workers' metrics pages that could not be read.")),
      unreadable_objects(
          registry.gauges("windlass_controller_unreadable_objects", "Objects that this version cannot read, by kind.")) {}

}  // namespace windlass::metrics
