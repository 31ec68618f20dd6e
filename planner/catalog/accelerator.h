// AcceleratorSpec holds the figures of one accelerator of a class: memory, speed, links, price and power. Plain data, taken
// from an AcceleratorClass object or from the catalog by name (accelerators_by_name.h).
#pragma once

#include <map>
#include <string>

#include "planner/base/result.h"
#include "planner/catalog/dtype.h"

namespace windlass::planner {

struct AcceleratorSpec {
  std::string name;                             // in the AcceleratorClass or in the catalog
  double memory_bytes = 0;                      // of one GPU
  std::map<DType, double> peak_flops;           // FLOP/s of one GPU, dense, by data type; a missing type is not supported
  double memory_bandwidth_bytes_per_s = 0;      // of one GPU
  double intra_link_bandwidth_bytes_per_s = 0;  // from one GPU to others in its node, one direction
  double intra_link_latency_s = 0;              // of one message between two GPUs in a node
  double inter_link_bandwidth_bytes_per_s = 0;  // from one GPU to a GPU in another node, one direction; 0: unknown
  double inter_link_latency_s = 0;
  int gpus_per_node = 1;
  double price_per_hour = 0;  // of one GPU
  double power_watts = 0;     // of one GPU

  bool operator==(const AcceleratorSpec&) const = default;
};

// Errors name the class, the field, what was found and what is allowed.
[[nodiscard]] Result<void> validate(const AcceleratorSpec& spec);

// FLOP/s for `dtype`. A type that the chip lacks runs at the speed of the next larger one that it has: 8-bit types as each
// other, then as 16-bit, then as float32. 0 if there is none.
[[nodiscard]] double peak_flops_for(const AcceleratorSpec& spec, DType dtype);

}  // namespace windlass::planner
