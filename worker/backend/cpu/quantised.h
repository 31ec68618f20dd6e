// Converts 16-bit and 8-bit weights to the FP32 values that products use (matrix_product.h).
//
// A product with them is an FP32 product with exactly the numbers that the codes stand for. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "worker/model/weight_matrix.h"

namespace windlass::worker::cpu {

// Converts `count` columns of a row of a matrix (out, in), from column `first` on. REQUIRES: not kFp32.
void dequantise(const WeightMatrix& w, std::int64_t in, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

}  // namespace windlass::worker::cpu
