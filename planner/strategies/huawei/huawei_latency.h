// Fits the latency model of Huawei's planner: p1 to p8 of Eq. 3 and 4 (Xiong et al. 2025, "High-Throughput LLM inference on
// Heterogeneous Clusters", Section 3.1.2), by least squares on samples of whole batches.
//
// A sample is what the paper's light profiling records: a batch of equal requests, the time of its prefill, and the total time
// of its decode iterations. profile_batches() takes such samples from a latency model (a stated roofline) instead of a machine.
// Pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/batch_times.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/least_squares.h"

namespace windlass::hetero {

struct BatchSample {
  int batch = 1;          // b
  int input_tokens = 1;   // I, per request
  int output_tokens = 1;  // O, per request
  double prefill_s = 0;   // of the batch
  double decode_s = 0;    // of its O decode iterations in total
};

struct BatchTimesFit {
  dispatch::BatchTimes times;
  planner::LinearFit prefill, decode;  // with their errors on the samples; coefficients in the order p1 .. p4 and p5 .. p8
};

// The paper fits with scipy's curve_fit: ordinary least squares of absolute errors (non_negative and relative false). The
// default keeps coefficients non-negative and uses errors relative to the times, as all our fits do. Errors kInvalidArgument
// name the sample and the field: sizes below 1, times that are not positive and finite, fewer than four samples;
// kFailedPrecondition: samples that vary too little to determine all coefficients.
[[nodiscard]] Result<BatchTimesFit> fit_batch_times(std::span<const BatchSample> samples,
                                                    const planner::FitOptions& options = {});

struct BatchGrid {
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  std::vector<int> inputs = {64, 128, 256, 512, 1024, 2048};
  std::vector<int> outputs = {32, 128, 512};
};

// Every batch of the grid that fits into the cache at its end. Batches of one and two requests are always included, to separate
// the cost per request from the cost per iteration. REQUIRES: sizes of at least 1.
[[nodiscard]] std::vector<BatchSample> profile_batches(const planner::IterationModel& model, double kv_tokens,
                                                       const BatchGrid& grid = {});

}  // namespace windlass::hetero
