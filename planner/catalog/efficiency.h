// AcceleratorEfficiency: what shares of their data sheets accelerators reach in single operators: the coefficients of
// planner/perf/roofline.h.
//
// Fitted by `latency_fidelity operator-efficiencies` (tests/bench/fidelity) on the measured operators of A100-SXM4-80GB,
// H100-SXM5-80GB, H200-SXM-141GB and L40S under vLLM 0.14 and 0.19 (ai-dynamo/aiconfigurator, Apache-2.0); an accelerator
// without measurements gets those of the measured one whose architecture is nearest, and says so. Plain data; pure functions.
#pragma once

#include <string>
#include <string_view>

namespace windlass::planner {

struct OperatorEfficiency {
  double launch_s = 4e-6;        // the least that the operator takes
  double compute = 0.7;          // share of peak FLOP/s
  double bandwidth = 0.8;        // share of memory bandwidth
  double sharpness = 3;          // p
  double serial_s = 0;           // per unit of the serial length
  double group_s = 0;            // per group
  double cache_gain = 0;         // bandwidth from the L2 cache over that from memory, less 1
  double cache_bytes = 1e7;      // size of that cache
  double exponential_flops = 0;  // that one exponential of a softmax costs as much as

  bool operator==(const OperatorEfficiency&) const = default;
};

struct AcceleratorEfficiency {
  OperatorEfficiency gemm_16bit;
  OperatorEfficiency gemm_float8;
  OperatorEfficiency gemm_float8_block;
  OperatorEfficiency context_attention;
  OperatorEfficiency generation_attention;
  double collective_launch_s = 4e-6;
  double collective_hop_s = 1e-6;  // per step of the ring
  double collective_share = 0.7;   // of the link's bandwidth

  bool operator==(const AcceleratorEfficiency&) const = default;
};

struct EfficiencyEntry {
  std::string measured_on;  // catalog name of the accelerator whose measurements these are
  bool measured = false;    // it is the one that was asked for
  AcceleratorEfficiency efficiency;
};

// By catalog name ("h100-80gb"); an unknown name gets an entry too, by `has_float8` alone (Hopper's, else Ampere's).
[[nodiscard]] EfficiencyEntry efficiency_of(std::string_view accelerator, bool has_float8);

}  // namespace windlass::planner
