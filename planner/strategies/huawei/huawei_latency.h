// The latency of an instance as the Huawei planner has it: p1 to p8 of Eq. 3 and 4 (Xiong et al. 2025, "High-Throughput LLM
// inference on Heterogeneous Clusters", Section 3.1.2), fitted by least squares on samples of whole batches.
//
// A sample is what the paper's light profiling records: a batch of equal requests, the time of its prefill, and the time of all
// its decode iterations together. profile_batches() takes such samples of a latency model (a stated roofline) in place of a
// machine. Pure.
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
  int input_tokens = 1;   // I, of each
  int output_tokens = 1;  // O, of each
  double prefill_s = 0;   // of the batch
  double decode_s = 0;    // of its O decode iterations together
};

struct BatchTimesFit {
  dispatch::BatchTimes times;
  planner::LinearFit prefill, decode;  // with their errors on the samples; coefficients in the order p1 .. p4 and p5 .. p8
};

// The paper fits by scipy's curve_fit: ordinary least squares of absolute errors (non_negative and relative false). The default
// keeps coefficients from falling below 0 and counts errors relative to the times, as all fits here do.
// Errors kInvalidArgument name the sample and the field: sizes below 1, times that are not positive and finite, fewer than four
// samples; kFailedPrecondition: samples that differ in too little to tell the coefficients apart.
[[nodiscard]] Result<BatchTimesFit> fit_batch_times(std::span<const BatchSample> samples,
                                                    const planner::FitOptions& options = {});

struct BatchGrid {
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  std::vector<int> inputs = {64, 128, 256, 512, 1024, 2048};
  std::vector<int> outputs = {32, 128, 512};
};

// Every batch of the grid whose caches hold at their end, and those of one and two requests whether they do or not, so that
// what a request adds can be told from what an iteration takes. REQUIRES: sizes of at least 1.
[[nodiscard]] std::vector<BatchSample> profile_batches(const planner::IterationModel& model, double kv_tokens,
                                                       const BatchGrid& grid = {});

}  // namespace windlass::hetero
