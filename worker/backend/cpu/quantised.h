// Products with weights of eight bits: some rows at a time become FP32 and go into the matrix product that all others go into.
//
// So the products are those of a model in FP32 whose numbers are what the eight bits stand for, and differ from them by the
// order of sums alone. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/weight_matrix.h"

namespace windlass::worker::cpu {

// y (T, out) = x (T, in) * w (out, in)^T, or y += that. `scratch` is kept by the caller, so that a step allocates nothing once
// it has grown; FP32 needs none.
void matmul(const float* x, const WeightMatrix& w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
            bool accumulate, std::vector<float>& scratch);

// Rows from `first` to before `end` as FP32: (end - first, in). REQUIRES: not kFp32.
void dequantise(const WeightMatrix& w, std::int64_t in, std::int64_t first, std::int64_t end, float* to);

}  // namespace windlass::worker::cpu
