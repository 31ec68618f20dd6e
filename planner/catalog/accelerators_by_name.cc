// The table of known accelerators. The source of each figure is named above its row; the columns mean:
//
// - Peak FLOP/s: from the data sheet, dense (without 2:4 sparsity), with float32 accumulation if the chip distinguishes. "fp32"
//   is outside the tensor cores. 0: the chip lacks the type.
// - Memory: the total that the driver reports (nvidia-smi, rocm-smi), because that is what an engine can use. It is less than
//   the name says if ECC or firmware takes a part.
// - Links: one GPU, one direction. Data sheets state the sum of both directions, so this is half. PCIe x16 version 3.0: 16
//   GB/s, 4.0: 32 GB/s, 5.0: 64 GB/s. The latency of a message between two GPUs is assumed: 5 us over NVLink or Infinity
//   Fabric, 10 us over PCIe, as in the chart.
// - Network: one GPU's share of the node's network, one direction, in the named system or cloud instance. Latency is 10 us over
//   InfiniBand or RoCE and 30 us over Ethernet with TCP. These are defaults; users can state what their cluster has.
// - Price: one GPU for an hour on demand in US dollars, 2025, rounded: that of the named instance, otherwise estimated from the
//   lists of GPU clouds. Rely only on the order of magnitude.
// - Power: maximum board power from the data sheet.
#include "planner/catalog/accelerators_by_name.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace windlass::planner {
namespace {

struct Row {
  const char* name;
  double memory_mib;
  double fp32_tflops, fp16_tflops, bf16_tflops, fp8_tflops, int8_tops;
  double memory_gb_per_s;
  double intra_gb_per_s, intra_us;
  double inter_gb_per_s, inter_us;
  double price_per_hour;
  double power_watts;
};

// clang-format off
constexpr std::array<Row, 14> kRows = {{
    // "NVIDIA V100 Tensor Core GPU" data sheet (2020), SXM2: NVLink 2 300 GB/s. DGX-1: 4 x EDR 100 Gbit/s for 8 GPUs.
    {"v100-32gb", 32768, 15.7, 125, 0, 0, 0, 900, 150, 5, 6.25, 10, 0.6, 300},
    // "NVIDIA A100 Tensor Core GPU" data sheet (2021), SXM4: NVLink 3 600 GB/s. DGX A100: HDR 200 Gbit/s a GPU.
    {"a100-40gb", 40960, 19.5, 312, 312, 0, 624, 1555, 300, 5, 25, 10, 1.3, 400},
    {"a100-80gb", 81920, 19.5, 312, 312, 0, 624, 2039, 300, 5, 25, 10, 2, 400},
    // "NVIDIA H100 Tensor Core GPU" data sheet (2024), SXM: NVLink 4 900 GB/s. DGX H100: NDR 400 Gbit/s a GPU.
    {"h100-80gb", 81559, 67, 989, 989, 1979, 1979, 3350, 450, 5, 50, 10, 3, 700},
    // "NVIDIA H200 Tensor Core GPU" data sheet (2024), SXM. DGX H200: NDR 400 Gbit/s a GPU.
    {"h200-141gb", 143771, 67, 989, 989, 1979, 1979, 4800, 450, 5, 50, 10, 3.8, 700},
    // "NVIDIA Blackwell" data sheet (2025), HGX B200: 180 of the 192 GB are enabled; NVLink 5 1800 GB/s. DGX B200: 400 Gbit/s a GPU.
    {"b200-192gb", 183359, 75, 2250, 2250, 4500, 4500, 7700, 900, 5, 50, 10, 5.5, 1000},
    // "NVIDIA L4 Tensor Core GPU" data sheet (2023): PCIe 4.0. AWS g6.48xlarge: 100 Gbit/s for 8; price of g6.xlarge.
    {"l4", 23034, 30.3, 121, 121, 242, 242, 300, 32, 10, 1.5625, 30, 0.8, 72},
    // "NVIDIA L40" data sheet (2023): PCIe 4.0. Network as for the L40S.
    {"l40", 46068, 90.5, 181, 181, 362, 362, 864, 32, 10, 6.25, 30, 1, 300},
    // "NVIDIA L40S" data sheet (2023): PCIe 4.0. AWS g6e.48xlarge: 400 Gbit/s for 8; price of g6e.xlarge.
    {"l40s", 46068, 91.6, 362, 362, 733, 733, 864, 32, 10, 6.25, 30, 1.8, 350},
    // "NVIDIA A10G" data sheet by AWS (2022), not the A10: PCIe 4.0. AWS g5.48xlarge: 100 Gbit/s for 8; price of g5.xlarge.
    {"a10g", 23028, 35, 70, 70, 0, 140, 600, 32, 10, 1.5625, 30, 1, 300},
    // "NVIDIA T4 Tensor Core GPU" data sheet (2019): PCIe 3.0, no bfloat16. AWS g4dn.metal: 100 Gbit/s for 8; price of g4dn.xlarge.
    {"t4", 15360, 8.1, 65, 0, 0, 130, 320, 16, 10, 1.5625, 30, 0.5, 70},
    // "NVIDIA RTX A6000" data sheet (2021): PCIe 4.0 (the NVLink bridge joins pairs only). A server of 8 with 100 Gbit/s.
    {"a6000", 49140, 38.7, 154.8, 154.8, 0, 309.7, 768, 32, 10, 1.5625, 30, 0.8, 300},
    // "NVIDIA Ada GPU Architecture" white paper (2022), Appendix A: GeForce halves the rate with float32 accumulation; PCIe 4.0. A server of 8
    // with 25 Gbit/s.
    {"rtx-4090", 24564, 82.6, 165.2, 165.2, 330.3, 660.6, 1008, 32, 10, 0.390625, 30, 0.5, 450},
    // "AMD Instinct MI300X Accelerator" data sheet (2023): seven Infinity Fabric links of 128 GB/s, one to each peer. Azure ND MI300X v5:
    // 400 Gbit/s a GPU.
    {"mi300x", 196592, 163.4, 1307.4, 1307.4, 2614.9, 2614.9, 5300, 448, 5, 50, 10, 3, 750},
}};
// clang-format on

AcceleratorSpec spec_of(const Row& row) {
  constexpr double kTera = 1e12;
  constexpr double kGiga = 1e9;
  constexpr double kMicro = 1e-6;
  constexpr double kMiB = 1024.0 * 1024;
  AcceleratorSpec spec;
  spec.name = row.name;
  spec.memory_bytes = row.memory_mib * kMiB;
  const std::pair<DType, double> peaks[] = {{DType::kFloat32, row.fp32_tflops},
                                            {DType::kFloat16, row.fp16_tflops},
                                            {DType::kBFloat16, row.bf16_tflops},
                                            {DType::kFloat8, row.fp8_tflops},
                                            {DType::kInt8, row.int8_tops}};
  for (const auto& [dtype, tera] : peaks) {
    if (tera > 0) spec.peak_flops[dtype] = tera * kTera;
  }
  spec.memory_bandwidth_bytes_per_s = row.memory_gb_per_s * kGiga;
  spec.intra_link_bandwidth_bytes_per_s = row.intra_gb_per_s * kGiga;
  spec.intra_link_latency_s = row.intra_us * kMicro;
  spec.inter_link_bandwidth_bytes_per_s = row.inter_gb_per_s * kGiga;
  spec.inter_link_latency_s = row.inter_us * kMicro;
  spec.gpus_per_node = 8;
  spec.price_per_hour = row.price_per_hour;
  spec.power_watts = row.power_watts;
  return spec;
}

}  // namespace

std::vector<std::string> accelerator_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

Result<AcceleratorSpec> accelerator_by_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return spec_of(row);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("accelerator: must be one of {} (got '{}')", fmt::join(accelerator_names(), ", "), name)};
}

}  // namespace windlass::planner
