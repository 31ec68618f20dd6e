// Implements baseline_dynamo.h.
#include "tests/reference/autoscalers/baseline_dynamo.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/perf/least_squares.h"

namespace windlass::sim {
namespace {

// Autoregression with `order` terms and a constant on `series`: the forecast, and the sum of squared errors over the last
// `judged` values. nullopt if the series is too short.
struct Fit {
  double next = 0;
  double squared_error = 0;
};

std::optional<Fit> fit_autoregression(const std::vector<double>& series, int order, std::size_t judged) {
  if (series.size() < judged || judged < static_cast<std::size_t>(order) + 2) return std::nullopt;
  const auto rows = static_cast<Eigen::Index>(judged);
  Eigen::MatrixXd a(rows, order + 1);
  Eigen::VectorXd b(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const std::size_t at = series.size() - judged + static_cast<std::size_t>(row);
    if (at < static_cast<std::size_t>(order)) return std::nullopt;
    a(row, 0) = 1;
    for (int lag = 1; lag <= order; ++lag) a(row, lag) = series[at - static_cast<std::size_t>(lag)];
    b[row] = series[at];
  }
  const auto x = planner::least_squares(a, b);
  if (!x.ok()) return std::nullopt;
  Fit fit;
  fit.squared_error = (a * *x - b).squaredNorm();
  fit.next = (*x)[0];
  for (int lag = 1; lag <= order; ++lag) fit.next += (*x)[lag] * series[series.size() - static_cast<std::size_t>(lag)];
  return fit;
}

// Time of an iteration with this many prompt tokens and decodes that hold this many KV tokens.
double wall_s(const DynamoEngine& engine, const DynamoLengths& lengths, double prefill_tokens, double kv_tokens) {
  planner::Batch batch;
  if (prefill_tokens > 0) {
    batch.prefill_sequences = std::max(1, static_cast<int>(std::lround(prefill_tokens / std::max(1.0, lengths.input_tokens))));
    batch.prefill_tokens = prefill_tokens;
    batch.prefill_attention = prefill_tokens * prefill_tokens / batch.prefill_sequences;
  }
  if (kv_tokens > 0) {
    const double context = std::max(1.0, lengths.input_tokens + lengths.output_tokens / 2);
    batch.decode_sequences = std::max(1, static_cast<int>(std::lround(kv_tokens / context)));
    batch.decode_context_tokens = kv_tokens;
  }
  return batch.empty() ? 0 : engine.model->iteration_s(batch);
}

double next_ttft_s(const DynamoEngine& engine, const DynamoLengths& lengths, double waiting_tokens, double kv_tokens) {
  double seconds = 0;
  for (double left = waiting_tokens + lengths.input_tokens; left > 0; left -= engine.max_batch_tokens)
    seconds += wall_s(engine, lengths, std::min(left, static_cast<double>(engine.max_batch_tokens)), kv_tokens);
  return seconds;
}

}  // namespace

double predict_next(const std::vector<double>& values, std::size_t fewest) {
  if (values.size() < fewest || values.size() < 5) return values.back();
  std::vector<double> differences;
  for (std::size_t i = 1; i < values.size(); ++i) differences.push_back(values[i] - values[i - 1]);
  // All orders are judged on the same values, so that their errors are comparable.
  const std::size_t judged = values.size() - 3;
  double best = values.back(), best_aic = std::numeric_limits<double>::infinity();
  for (const bool differenced : {false, true}) {
    for (int order = 0; order <= 2; ++order) {
      const auto fit = fit_autoregression(differenced ? differences : values, order, judged);
      if (!fit) continue;
      const auto n = static_cast<double>(judged);
      const double aic = n * std::log(std::max(fit->squared_error / n, 1e-12)) + 2 * (order + 1);
      if (aic >= best_aic) continue;
      best_aic = aic;
      best = differenced ? values.back() + fit->next : fit->next;
    }
  }
  return std::max(0.0, best);
}

double best_engine_rate(const DynamoEngine& engine, const DynamoLengths& lengths, const DynamoOptions& options) {
  const double context = lengths.input_tokens + lengths.output_tokens / 2;
  const double output = std::max(1.0, lengths.output_tokens);
  const int by_kv = std::max(1, static_cast<int>(engine.model->kv_capacity_tokens() / std::max(1.0, context)));
  const int most = std::min({by_kv, engine.max_sequences, engine.max_batch_tokens - 1});
  double rate_per_s = 0;
  for (int batch = 1; batch <= std::max(1, most); ++batch) {
    // In steady state as many prompts are prefilled as requests end.
    if (batch > 1 && lengths.input_tokens / (engine.max_batch_tokens - batch) > output) break;
    const double prefill = std::min(batch * lengths.input_tokens / output, static_cast<double>(engine.max_batch_tokens));
    const double itl_s = wall_s(engine, lengths, prefill, batch * context);
    const bool within = itl_s <= options.itl_s && next_ttft_s(engine, lengths, prefill, batch * context) <= options.ttft_s;
    if (!within && batch > 1) break;
    rate_per_s = batch / (output * itl_s);
    if (!within) break;
  }
  return rate_per_s;
}

int load_decision(const DynamoEngine& engine, const std::vector<DynamoLoad>& engines, const DynamoLengths& lengths,
                  double prefill_tokens, const DynamoOptions& options) {
  const int workers = static_cast<int>(engines.size());
  const double more = workers > 1 ? static_cast<double>(workers) / (workers - 1) : 1;
  const double context = lengths.input_tokens + lengths.output_tokens / 2;
  bool all_above_ttft = true, all_above_itl = true, fewer_would_do = workers > 1;
  for (const DynamoLoad& load : engines) {
    all_above_ttft = all_above_ttft && next_ttft_s(engine, lengths, load.waiting_tokens, load.kv_tokens) > options.ttft_s;
    all_above_itl = all_above_itl && wall_s(engine, lengths, prefill_tokens, load.kv_tokens + context) > options.itl_s;
    const double own_s = next_ttft_s(engine, lengths, 0, load.kv_tokens * more);
    const double with_queue_s = next_ttft_s(engine, lengths, load.waiting_tokens * more, load.kv_tokens * more);
    const double left_s = (options.ttft_s - own_s) * options.scale_down_sensitivity;
    const double kv_tokens = (load.kv_tokens + load.waiting_tokens) * more;
    fewer_would_do =
        fewer_would_do && left_s > 0 && with_queue_s - own_s < left_s && kv_tokens < engine.model->kv_capacity_tokens() &&
        wall_s(engine, lengths, prefill_tokens, kv_tokens + context) < options.itl_s * options.scale_down_sensitivity;
  }
  if (workers == 0) return 0;
  if (all_above_ttft || all_above_itl) return workers + 1;
  return fewer_would_do ? workers - 1 : workers;
}

BaselineDynamo::BaselineDynamo(BaselineDeployment deployment, const DynamoOptions& options)
    : deployment_(deployment),
      options_(options),
      engine_{deployment.pool().model, deployment.slots(), deployment.pool().spec.engine.max_batch_tokens},
      lower_bound_(options.min_replicas) {}

void BaselineDynamo::predict(double now_s, const ObservedService& seen) {
  const double seconds = now_s - before_s_;
  const auto arrived = static_cast<double>(seen.arrived - before_->arrived);
  const auto completed = static_cast<double>(seen.completed - before_->completed);
  if (completed > 0) {
    requests_.push_back(arrived);
    inputs_.push_back(static_cast<double>(seen.input_tokens - before_->input_tokens) / completed);
    outputs_.push_back(static_cast<double>(seen.output_tokens - before_->output_tokens) / completed);
    lengths_ = {predict_next(inputs_, options_.predictor_points), predict_next(outputs_, options_.predictor_points)};
    rate_per_s_ = predict_next(requests_, options_.predictor_points) / seconds;
    const double engine_per_s = best_engine_rate(engine_, lengths_, options_);
    if (engine_per_s > 0) {
      const double workers = std::ceil(rate_per_s_ / engine_per_s - kRounding);
      lower_bound_ = std::clamp(static_cast<int>(std::min(workers, 1e6)), options_.min_replicas, options_.max_replicas);
    }
  }
  before_ = seen;
  before_s_ = now_s;
}

ClusterOrders BaselineDynamo::decide(const ClusterObservation& observation) {
  const ObservedService& seen = observation.services.front();
  const ReplicaCount count = count_replicas(seen);
  if (!before_) {
    before_ = seen;
    before_s_ = observation.now_s;
    wanted_ = count.all();
  }
  if (observation.now_s - before_s_ >= options_.throughput_interval_s - 1e-6) predict(observation.now_s, seen);
  const bool in_progress = count.starting > 0 || count.ready != wanted_;
  if (!in_progress && lengths_.input_tokens > 0) {
    std::vector<DynamoLoad> engines;
    for (const ObservedWorker& worker : seen.workers) {
      if (worker.phase != WorkerPhase::kReady) continue;
      engines.push_back({static_cast<double>(worker.waiting_tokens) + lengths_.input_tokens * seen.queued / count.ready,
                         worker.kv_use * engine_.model->kv_capacity_tokens()});
    }
    const double output = std::max(1.0, lengths_.output_tokens);
    double running = 0;
    for (const ObservedWorker& worker : seen.workers) running += worker.phase == WorkerPhase::kReady ? worker.running : 0;
    const double prefill_tokens = count.ready == 0 ? 0 : running / count.ready * lengths_.input_tokens / output;
    wanted_ = load_decision(engine_, engines, lengths_, prefill_tokens, options_);
    wanted_ = std::clamp(std::max(wanted_, lower_bound_), options_.min_replicas, options_.max_replicas);
  }
  return deployment_.scale_to(seen, wanted_);
}

}  // namespace windlass::sim
