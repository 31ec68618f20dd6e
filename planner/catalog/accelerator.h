// AcceleratorSpec: what one accelerator of a class can do. Plain data, made from an AcceleratorClass object or from the catalog
// by name (accelerators_by_name.h).
#pragma once

#include <map>
#include <string>

#include "planner/base/result.h"
#include "planner/catalog/dtype.h"

namespace windlass::planner {

struct AcceleratorSpec {
  std::string name;                         // of the AcceleratorClass, or in the catalog
  double memory_bytes = 0;                  // of one GPU
  std::map<DType, double> peak_flops;       // FLOP/s of one GPU, dense, by data type; a type that is missing is not supported
  double memory_bandwidth_bytes_per_s = 0;  // of one GPU
  double intra_link_bandwidth_bytes_per_s = 0;  // of one GPU to its peers in the node, one direction
  double intra_link_latency_s = 0;              // of one message between two GPUs of a node
  double inter_link_bandwidth_bytes_per_s = 0;  // of one GPU to a GPU of another node, one direction; 0: unknown
  double inter_link_latency_s = 0;
  int gpus_per_node = 1;
  double price_per_hour = 0;  // of one GPU
  double power_watts = 0;     // of one GPU

  bool operator==(const AcceleratorSpec&) const = default;
};

// Names the class, the field, what was found and what is allowed.
[[nodiscard]] Result<void> validate(const AcceleratorSpec& spec);

// FLOP/s for `dtype`; a smaller type that the chip lacks runs at the speed of the next larger one it has (the 8-bit types as
// one another, then the 16-bit ones, then float32). 0 when there is none.
[[nodiscard]] double peak_flops_for(const AcceleratorSpec& spec, DType dtype);

}  // namespace windlass::planner
