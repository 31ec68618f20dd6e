// Moves measured operators from one GPU to another by the ratio of their rooflines, and replaces measurements that cannot be
// true by such transferred ones.
//
// A measured row of GPU A becomes, on GPU B, measured time x roofline(B) / roofline(A): what is above the roofline (tiles,
// launch, scheduling) is taken to stay in proportion. Two kinds of contradictions are known in published tables: attention that
// needs more FLOP/s than the data sheet has (a third of H200's context attention), and attention that is slower than on a GPU
// with less bandwidth and no more FLOP/s (H200's decodes of few KV heads, up to six times slower than H100's). Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/catalog/efficiency.h"
#include "planner/perf/operator_table.h"
#include "planner/perf/operator_times.h"
#include "planner/perf/roofline.h"

namespace windlass::planner {

// A GPU and what was measured on it.
struct GpuTables {
  OperatorHardware hardware;
  AcceleratorEfficiency efficiency;
  OperatorTables tables;
};

// A row counts as slower than another GPU's only beyond this factor; repeated measurements differ by less.
inline constexpr double kSlowerBy = 1.1;

struct Replaced {
  std::string table;  // "generation attention of 128-wide heads, FP8 cache"
  std::size_t rows = 0, of = 0;
  std::string why;
};

// The tables of `gpu`. Attention that contradicts its data sheet or `reference`, and attention and products that were not
// measured, come from `reference`; collectives, if there are none, as they are. `replaced`, if given, lists what was moved.
[[nodiscard]] OperatorTables completed_from(const GpuTables& gpu, const GpuTables& reference,
                                            std::vector<Replaced>* replaced = nullptr);

}  // namespace windlass::planner
