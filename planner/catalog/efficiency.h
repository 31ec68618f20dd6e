// AcceleratorEfficiency: the fraction of its data sheet that an accelerator reaches in single operators. These are the
// coefficients of planner/perf/roofline.h.
//
// Fitted by `latency_fidelity operator-efficiencies` (tests/bench/fidelity) to the measured operators of A100-SXM4-80GB,
// H100-SXM5-80GB, H200-SXM-141GB and L40S under vLLM 0.14 and 0.19 (ai-dynamo/aiconfigurator, Apache-2.0). An accelerator
// without measurements gets the coefficients of the measured one with the most similar architecture, and the entry says so.
// Plain data; pure functions.
#pragma once

#include <string>
#include <string_view>

namespace windlass::planner {

struct OperatorEfficiency {
  double launch_s = 4e-6;        // minimum time of the operator
  double compute = 0.7;          // fraction of peak FLOP/s
  double bandwidth = 0.8;        // fraction of memory bandwidth
  double sharpness = 3;          // exponent p of the roofline
  double serial_s = 0;           // per unit of the serial length
  double group_s = 0;            // per group
  double cache_gain = 0;         // L2 bandwidth / memory bandwidth - 1
  double cache_bytes = 1e7;      // size of the L2 cache
  double exponential_flops = 0;  // cost of one exponential in a softmax

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
  double collective_share = 0.7;   // fraction of the link's bandwidth

  bool operator==(const AcceleratorEfficiency&) const = default;
};

struct EfficiencyEntry {
  std::string measured_on;  // catalog name of the measured accelerator
  bool measured = false;    // true if that is the accelerator asked for
  AcceleratorEfficiency efficiency;
};

// Looks up a catalog name ("h100-80gb"), or the chart's ("nvidia-h100-80gb"). An unknown name gets Hopper's coefficients if
// `has_float8`, otherwise Ampere's.
[[nodiscard]] EfficiencyEntry efficiency_of(std::string_view accelerator, bool has_float8);

}  // namespace windlass::planner
