// Iteration estimates: see iteration_estimate.h. A row of the regression is the contribution of one unit of each term to the
// observation, divided by the observation: 1 = row * mean + noise.
#include "planner/perf/iteration_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

#include <Eigen/Dense>
#include <fmt/format.h>

namespace windlass::planner {
namespace {

constexpr int kTerms = IterationEstimate::kTerms;
using Vector = Eigen::Matrix<double, kTerms, 1>;
using Matrix = Eigen::Matrix<double, kTerms, kTerms>;

// Standard deviations of the prior: of each term by itself, and of each term as a fraction of the others, because a data sheet
// may be right for one term and almost irrelevant for another.
constexpr double kPriorDeviation = 2;
constexpr double kPriorCross = 0.3;
constexpr double kContextTokens = ReferenceSizes{}.context_tokens;  // at which terms are compared
constexpr double kPromptTokens = 256;

constexpr double kFirstNoiseDeviation = 0.1;
constexpr double kLeastNoiseDeviation = 0.02;
constexpr double kMaxNoiseDeviation = 0.5;
constexpr double kNoiseMemory = 0.05;     // weight of the newest observation
constexpr double kClippedResidual = 2.5;  // limit of a residual's effect on the noise estimate
constexpr double kGateDeviations = 4;
constexpr int kOutliersForChange = 3;
constexpr double kSureDeviation = 0.35;     // an observation with a smaller own deviation ends a run of outliers
constexpr std::int64_t kFewestToJudge = 4;  // samples; before that, the prior would be the judge
constexpr double kMemoryS = 900;            // forgetting falls by a factor of e in this time
constexpr double kMaxForgotten = 0.1;       // limit per observation
constexpr double kLargestBatchMemoryS = 600;
constexpr double kLeastTimes = 1e-3;      // minimum as a fraction of the prior: no term is free or negative
constexpr double kMaxTimes = 1e4;         // maximum as a multiple of the prior; more is a faulty measurement
constexpr double kMaxSeconds = 1000;      // of an iteration; more is not a valid measurement
constexpr double kBoundDeviations = 1.3;  // one-sided 90 %
constexpr double kSurely = 0.15;          // maximum deviation, relative to the mean decode iteration, to report it

double per_request_s(const LinearCoefficients& base, double context_tokens) { return base.k2 * context_tokens + base.c2; }

Vector row_of(const LinearCoefficients& base, const IterationContent& content) {
  return Vector(content.iterations * base.c3, content.batch * per_request_s(base, content.context_tokens),
                content.prompt_tokens * base.k1, content.prompts);
}

Vector prior_deviations(const LinearCoefficients& base) {
  const double request_s = per_request_s(base, kContextTokens);
  const double prompt_s = base.k1 * kPromptTokens;
  return Vector(kPriorDeviation + kPriorCross * request_s / base.c3, kPriorDeviation + kPriorCross * base.c3 / request_s,
                kPriorDeviation + kPriorCross * base.c3 / prompt_s, kPriorCross * (base.c3 + prompt_s));
}

Matrix prior_of(const LinearCoefficients& base) { return prior_deviations(base).array().square().matrix().asDiagonal(); }

Matrix unpacked(const IterationEstimate& estimate) {
  Matrix out;
  std::size_t at = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = i; j < kTerms; ++j) out(i, j) = out(j, i) = estimate.covariance[at++];
  }
  return out;
}

void pack(const Matrix& matrix, IterationEstimate& estimate) {
  std::size_t at = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = i; j < kTerms; ++j) estimate.covariance[at++] = (matrix(i, j) + matrix(j, i)) / 2;
  }
}

Vector mean_of(const IterationEstimate& estimate) { return Vector(estimate.mean.data()); }

// Moves the information (the inverse of the covariance) by `share` towards the prior's. Terms differ by orders of magnitude, so
// this happens in units of the prior's deviations. By eigenvalues, because inverting a nearly singular matrix twice would make
// variances negative; those that rounding made negative become 0.
void forget(Matrix& covariance, const Vector& deviations, double share) {
  const Matrix units = deviations.asDiagonal(), inverse_units = deviations.cwiseInverse().asDiagonal();
  const Eigen::SelfAdjointEigenSolver<Matrix> scaled(inverse_units * covariance * inverse_units);
  const Vector variances = scaled.eigenvalues().cwiseMax(0);
  const Vector faded = variances.array() / ((1 - share) + share * variances.array());
  const Matrix axes = units * scaled.eigenvectors();
  covariance = axes * faded.asDiagonal() * axes.transpose();
}

bool usable(const LinearCoefficients& base) {
  return base.c3 > 0 && per_request_s(base, kContextTokens) > 0 && base.k1 > 0 && std::isfinite(base.c3 + base.c2 + base.k1);
}

bool usable(const IterationObservation& observation) {
  const IterationContent& c = observation.content;
  const bool finite = std::isfinite(c.iterations + c.batch + c.context_tokens + c.prompt_tokens + c.prompts);
  const bool positive = c.iterations >= 0 && c.batch >= 0 && c.context_tokens >= 0 && c.prompt_tokens >= 0 && c.prompts >= 0;
  const bool bounded =
      std::max({c.iterations, c.batch, c.prompts}) <= kMaxTimes && c.context_tokens <= 1e9 && c.prompt_tokens <= 1e9;
  return finite && positive && bounded && observation.seconds > 0 && observation.seconds < kMaxSeconds &&
         observation.noise_deviation >= 0 && std::isfinite(observation.noise_deviation) &&
         c.iterations + c.batch + c.prompt_tokens > 0;
}

// Snapshots may hold values that learn() never produces.
bool makes_sense(const IterationEstimate& estimate) {
  const Vector mean = mean_of(estimate);
  const Matrix covariance = unpacked(estimate);
  return estimate.knows() && mean.allFinite() && covariance.allFinite() && mean.head<3>().minCoeff() >= kLeastTimes &&
         std::max({estimate.largest_batch, estimate.seen_batch, 0.0}) <= kMaxTimes && estimate.largest_batch >= 0 &&
         estimate.seen_batch >= 0 && mean.cwiseAbs().maxCoeff() <= kMaxTimes && covariance.diagonal().minCoeff() >= 0 &&
         estimate.noise_variance >= 0;
}

// Standard deviation of the mean time of such an iteration.
double deviation_s(const LinearCoefficients& base, const IterationEstimate& estimate, const IterationContent& content) {
  const Vector row = row_of(base, content);
  return std::sqrt(std::max(0.0, row.dot(unpacked(estimate) * row)));
}

// Whether the estimate is valid and knows a decode iteration (of the last batch seen, if any). What changed was known before,
// and so is closer than the data sheet.
bool is_sure(const LinearCoefficients& base, const IterationEstimate& estimate) {
  if (!makes_sense(estimate)) return false;
  if (estimate.changes > 0) return true;
  const double batch = std::max(1.0, estimate.seen_batch);
  const double decode_s = LinearModel(estimated(base, estimate)).decode_s(batch, kContextTokens);
  return decode_deviation_s(base, estimate, batch, kContextTokens) <= kSurely * decode_s;
}

// Keeps every term positive, and the cost of a prompt non-negative in addition to its iteration. A term moved to its bound
// moves the others along by the covariance; moving it alone would contradict the measurements.
void keep_sane(IterationEstimate& estimate, const LinearCoefficients& base) {
  const Matrix covariance = unpacked(estimate);
  const Vector deviations = prior_deviations(base);
  Vector mean = mean_of(estimate);
  for (int round = 0; round < kTerms; ++round) {
    const Vector least(kLeastTimes, kLeastTimes, kLeastTimes, -std::max(kLeastTimes, mean(0)) * base.c3);
    int worst = -1;
    for (int i = 0; i < kTerms; ++i) {
      const auto below = [&](int k) { return (least(k) - mean(k)) / deviations(k); };
      if (mean(i) < least(i) && covariance(i, i) > 0 && (worst < 0 || below(i) > below(worst))) worst = i;
    }
    if (worst < 0) break;
    mean += covariance.col(worst) / covariance(worst, worst) * (least(worst) - mean(worst));
  }
  for (int i = 0; i < kTerms; ++i) mean(i) = std::clamp(mean(i), i < 3 ? kLeastTimes : -kMaxTimes, kMaxTimes);
  Eigen::Map<Vector>(estimate.mean.data()) = mean;
}

}  // namespace

Learnt learn(IterationEstimate& estimate, const LinearCoefficients& base, const IterationObservation& observation,
             double elapsed_s) {
  if (!usable(base) || !usable(observation)) return Learnt::kInvalid;
  const Matrix prior = prior_of(base);
  if (!mean_of(estimate).allFinite() || !unpacked(estimate).allFinite() || !std::isfinite(estimate.noise_variance)) {
    estimate = IterationEstimate{};
  }
  const bool first = !estimate.knows() && estimate.covariance.front() == 0;
  Matrix covariance = first ? prior : unpacked(estimate);
  if (estimate.noise_variance <= 0) estimate.noise_variance = kFirstNoiseDeviation * kFirstNoiseDeviation;

  forget(covariance, prior_deviations(base), std::clamp(elapsed_s / kMemoryS, 0.0, kMaxForgotten));
  if (elapsed_s > 0) {
    estimate.largest_batch *= std::exp(-std::min(elapsed_s, 1e6) / kLargestBatchMemoryS);
  }

  const Vector row = row_of(base, observation.content) / observation.seconds;
  const double extra = observation.noise_deviation * observation.noise_deviation;
  double expected = row.dot(covariance * row) + estimate.noise_variance + extra;
  const double innovation = 1 - row.dot(mean_of(estimate));
  const double deviations = std::abs(innovation) / std::sqrt(expected);

  // The expected square is 1. The difference is an error of the noise estimate, scaled by the noise's share of the expectation.
  const double own = estimate.noise_variance / expected;
  const double clipped = std::min(deviations, kClippedResidual);
  const double noise = estimate.noise_variance * (1 + kNoiseMemory * own * (clipped * clipped - 1));
  estimate.noise_variance =
      std::clamp(noise, kLeastNoiseDeviation * kLeastNoiseDeviation, kMaxNoiseDeviation * kMaxNoiseDeviation);

  // Prompts that waited say nothing about decoding, and an observation that is certain about little ends no run.
  int& run = observation.decodes ? estimate.outlier_run : estimate.prompt_outlier_run;
  Learnt learnt = Learnt::kLearnt;
  if (deviations > kGateDeviations && estimate.samples >= kFewestToJudge) {
    ++estimate.outliers;
    const int side = innovation > 0 ? 1 : -1;
    run = run * side > 0 ? run + side : side;
    if (std::abs(run) < kOutliersForChange) {
      pack(covariance, estimate);
      return Learnt::kOutlier;
    }
    ++estimate.changes;
    // What was known is now as uncertain as a data sheet. Prompts that changed say nothing against what is known of decoding.
    const Matrix of_decoding = covariance;
    const Vector units(estimate.mean[0], estimate.mean[1], estimate.mean[2], 1);
    covariance = units.asDiagonal() * prior_of(estimated(base, estimate)) * units.asDiagonal();
    if (!observation.decodes) covariance.topLeftCorner<2, 2>() = of_decoding.topLeftCorner<2, 2>();
    expected = row.dot(covariance * row) + estimate.noise_variance + extra;
    learnt = Learnt::kChange;
  }
  if (learnt == Learnt::kChange) estimate.outlier_run = estimate.prompt_outlier_run = 0;
  if (observation.noise_deviation <= kSureDeviation) run = 0;
  const Vector gain = covariance * row / expected;
  // Joseph form, for numerical stability.
  const Matrix left = Matrix::Identity() - gain * row.transpose();
  const Matrix updated = left * covariance * left.transpose() + gain * gain.transpose() * (estimate.noise_variance + extra);
  if (!gain.allFinite() || !updated.allFinite()) return Learnt::kInvalid;
  Eigen::Map<Vector>(estimate.mean.data()) += gain * innovation;
  pack(updated, estimate);
  keep_sane(estimate, base);
  ++estimate.samples;
  if (observation.decodes) {
    estimate.largest_batch = std::max(estimate.largest_batch, observation.content.batch);
    estimate.seen_batch = observation.content.batch;
    estimate.decode_count += observation.count;
  }
  return learnt;
}

void rebase(IterationEstimate& estimate, const LinearCoefficients& from, const LinearCoefficients& to) {
  if (!usable(from) || !usable(to)) {
    estimate = {};
    return;
  }
  const Vector factors(from.c3 / to.c3, per_request_s(from, kContextTokens) / per_request_s(to, kContextTokens),
                       from.k1 / to.k1, 1);
  Eigen::Map<Vector>(estimate.mean.data()).array() *= factors.array();
  pack(factors.asDiagonal() * unpacked(estimate) * factors.asDiagonal(), estimate);
}

ReferenceSizes reference_sizes(const TokenRange& contexts, const TokenRange& prompts) {
  ReferenceSizes sizes;
  const double least_context = std::max(1.0, contexts.least);
  sizes.context_tokens = std::clamp(sizes.context_tokens, least_context, std::max(least_context, contexts.most));
  // A slope and a constant can be told apart only by two sizes.
  const double least_prompt = std::max(1.0, prompts.least);
  if (prompts.most < 2 * least_prompt) return sizes;
  sizes.short_prompt = std::clamp(sizes.short_prompt, least_prompt, prompts.most / 2);
  sizes.long_prompt = std::clamp(sizes.long_prompt, 2 * sizes.short_prompt, prompts.most);
  return sizes;
}

IterationEstimate estimate_from(const LinearCoefficients& base, const LatencyModel& measured, double relative_error,
                                std::int64_t samples, double largest_batch, const ReferenceSizes& at) {
  IterationEstimate estimate;
  if (!usable(base)) return estimate;
  // Fits the line through four of its points, each as certain as the fit.
  Matrix rows;
  int point = 0;
  const auto add = [&](const IterationContent& content, double seconds) {
    rows.row(point++) = row_of(base, content) / (usable({content, seconds}) ? seconds : 0);
  };
  for (const double tokens : {at.short_prompt, at.long_prompt}) add({1, 0, 0, tokens, 1}, measured.prefill_s(tokens));
  for (const double batch : {1.0, std::max(2.0, largest_batch)})
    add({1, batch, at.context_tokens, 0, 0}, measured.decode_s(batch, at.context_tokens));
  const Matrix inverse = rows.inverse();
  if (!rows.allFinite() || !inverse.allFinite()) return estimate;
  const double error = std::max(relative_error, kLeastNoiseDeviation);
  Eigen::Map<Vector>(estimate.mean.data()) = inverse * Vector::Ones();
  pack(error * error * inverse * inverse.transpose(), estimate);
  keep_sane(estimate, base);
  estimate.noise_variance = error * error;
  estimate.samples = std::max<std::int64_t>(1, samples);
  estimate.largest_batch = largest_batch;
  return estimate;
}

LinearCoefficients estimated(const LinearCoefficients& base, const IterationEstimate& estimate) {
  LinearCoefficients out = base;
  out.c3 *= estimate.mean[0];
  out.k2 *= estimate.mean[1];
  out.c2 *= estimate.mean[1];
  out.k1 *= estimate.mean[2];
  out.c1 = std::max(0.0, estimate.knows() ? out.c3 + estimate.mean[3] : base.c1);
  return out;
}

double decode_deviation_s(const LinearCoefficients& base, const IterationEstimate& estimate, double batch,
                          double mean_context_tokens) {
  return deviation_s(base, estimate, {1, batch, mean_context_tokens, 0, 0});
}

double relative_deviation(const LinearCoefficients& base, const IterationEstimate& estimate, const IterationContent& content) {
  const double seconds = row_of(base, content).dot(mean_of(estimate));
  return seconds > 0 ? deviation_s(base, estimate, content) / seconds : std::numeric_limits<double>::infinity();
}

const WorkerEstimate* find_estimate(std::span<const WorkerEstimate> estimates, const std::string& accelerator,
                                    const GpuSplit& split) {
  const WorkerEstimate* nearest = nullptr;
  const auto distance = [&](const WorkerEstimate& one) {
    const std::int64_t off = std::int64_t{one.split().tensor_parallel} - split.tensor_parallel;
    return std::tuple(one.stages != split.stages, off > 0, std::abs(off));
  };
  for (const WorkerEstimate& one : estimates) {
    if (one.accelerator != accelerator || !makes_sense(one.estimate)) continue;
    if (nearest == nullptr || distance(one) < distance(*nearest)) nearest = &one;
  }
  return nearest;
}

LinearCoefficients believed_coefficients(const ModelShape& shape, const AcceleratorSpec& spec, const GpuSplit& split,
                                         EngineType engine, std::span<const WorkerEstimate> estimates) {
  const LinearCoefficients base = linear_coefficients(shape, spec, split, engine);
  const WorkerEstimate* known = find_estimate(estimates, spec.name, split);
  return known == nullptr ? base : estimated(base, known->estimate);
}

double moved_by(const LinearCoefficients& before, const LinearCoefficients& sheet, const IterationEstimate& now) {
  if (!is_sure(sheet, now)) return 1;
  const LinearModel then(before), believed(estimated(sheet, now));
  const auto factor = [](double one, double other) { return std::max(one / other, other / one); };
  const double batch = std::max(1.0, now.seen_batch);
  const double decode = factor(then.decode_s(batch, kContextTokens), believed.decode_s(batch, kContextTokens));
  const double prompt_tokens = 2 * kPromptTokens;
  const double prefill_s = believed.prefill_s(prompt_tokens);
  const bool prompts_known = deviation_s(sheet, now, {1, 0, 0, prompt_tokens, 1}) <= kSurely * prefill_s;
  return prompts_known ? std::max(decode, factor(then.prefill_s(prompt_tokens), prefill_s)) : decode;
}

std::optional<SheetAdvice> advise_on_sheet(const ModelShape& shape, const AcceleratorSpec& spec, EngineType engine,
                                           const WorkerEstimate& measured) {
  constexpr double kOff = 4.0 / 3;  // in either direction
  const IterationEstimate& estimate = measured.estimate;
  const LinearCoefficients sheet = linear_coefficients(shape, spec, measured.split(), engine);
  if (estimate.largest_batch < 1 || !is_sure(sheet, estimate)) return std::nullopt;
  const LinearModel planned(sheet), believed(estimated(sheet, estimate));
  const double batch = std::max(1.0, estimate.seen_batch);
  const double decode_s = believed.decode_s(batch, kContextTokens);
  // If the CPU takes much of an iteration, neither bandwidth nor FLOP/s would explain it. The rest is compared without it.
  const EngineOverhead cpu = overhead_of(engine).value_or(EngineOverhead{});
  if (std::max(shape.layers * Efficiency{}.layer_overhead_s, cpu.iteration_s) > 0.3 * sheet.c3) return std::nullopt;
  const double cpu_decode_s = cpu.iteration_s + (cpu.overlaps ? 0 : batch * cpu.sequence_s);
  const double cpu_prefill_s = cpu.iteration_s + cpu.prefill_s;
  const auto times = [](double measured_s, double planned_s, double cpu_s) {
    return std::max(measured_s - cpu_s, 0.1 * measured_s) / (planned_s - cpu_s);
  };
  SheetAdvice advice;
  advice.decode_times = times(decode_s, planned.decode_s(batch, kContextTokens), cpu_decode_s);
  advice.prefill_times = times(believed.prefill_s(2 * kPromptTokens), planned.prefill_s(2 * kPromptTokens), cpu_prefill_s);
  const auto off = [](double times) { return times > kOff || times < 1 / kOff; };
  advice.off = off(advice.decode_times) || off(advice.prefill_times);
  const auto two_digits = [](double value) {
    const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
    return std::round(value / unit) * unit;
  };
  advice.memory_bandwidth_bytes_per_s = two_digits(spec.memory_bandwidth_bytes_per_s / advice.decode_times);
  advice.peak_flops_per_s = two_digits(peak_flops_for(spec, shape.dtype) / advice.prefill_times);
  return advice;
}

std::string SheetAdvice::to_text(const ModelShape& shape) const {
  return fmt::format(
      "decoding takes {:.2g} times and prompts {:.2g} times what the data sheet says: memory bandwidth of about {:.2g} "
      "GB/s and {:.2g} TFLOP/s of {} would fit",
      decode_times, prefill_times, memory_bandwidth_bytes_per_s / 1e9, peak_flops_per_s / 1e12, to_string(shape.dtype));
}

double UpperBoundModel::decode_s(double batch, double mean_context_tokens) const {
  return mean_.decode_s(batch, mean_context_tokens) +
         kBoundDeviations * decode_deviation_s(base_, estimate_, batch, mean_context_tokens);
}

}  // namespace windlass::planner
