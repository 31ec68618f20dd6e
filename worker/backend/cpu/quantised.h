// Weights of sixteen or eight bits as FP32: what products with them compute with (matrix_product.h).
//
// So these are the products of a model in FP32 whose numbers are what the bits stand for. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "worker/model/weight_matrix.h"

namespace windlass::worker::cpu {

// `count` columns of a row of a matrix (out, in), from column `first` on. REQUIRES: not kFp32.
void dequantise(const WeightMatrix& w, std::int64_t in, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

}  // namespace windlass::worker::cpu
