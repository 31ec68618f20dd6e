// Implements hexgen2_bound.h.
#include "tests/reference/papers/hexgen2_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/mip/mixed_integer_program.h"

namespace windlass::hetero {

Result<double> flow_bound(const StrategyTable& table, int groups) {
  const InferenceTask& task = table.task();
  std::vector<double> gpus(static_cast<std::size_t>(table.kinds()), 0);
  std::vector<int> max_on_a_node(gpus.size(), 0);
  for (std::size_t node = 0; node < table.cluster().nodes.size(); ++node) {
    const auto kind = static_cast<std::size_t>(table.kind(static_cast<int>(node)));
    gpus[kind] += table.cluster().nodes[node].gpus;
    max_on_a_node[kind] = std::max(max_on_a_node[kind], table.cluster().nodes[node].gpus);
  }
  mip::MixedIntegerProgram program;
  const int flow = program.add_variable({0, mip::kInfinity, -1, false});
  // Memory in units of the layers' weights: numbers near one.
  const double weights = task.layers * task.layer_weight_bytes;
  std::vector<mip::Term> all_groups, prefill_rate{{flow, -1}}, decode_rate{{flow, -1}}, prefill_memory, decode_memory;
  for (std::size_t kind = 0; kind < gpus.size(); ++kind) {
    // GPUs of the kind in prefill and in decode.
    const int in_prefill = program.add_variable({}), in_decode = program.add_variable({});
    program.add_at_most({{in_prefill, 1}, {in_decode, 1}}, gpus[kind]);
    const double bytes = table.figures(static_cast<int>(kind), task.tensor_parallel.front()).memory_bytes;
    prefill_memory.push_back({in_prefill, bytes / weights});
    decode_memory.push_back({in_decode, bytes / weights});
    std::vector<mip::Term> prefill_gpus{{in_prefill, -1}}, decode_gpus{{in_decode, -1}};
    for (const int degree : task.tensor_parallel) {
      if (degree > max_on_a_node[kind]) break;
      const StageFigures& figures = table.figures(static_cast<int>(kind), degree);
      if (!std::isfinite(figures.prefill_layer_s)) continue;
      // Groups whose fastest stage is of this kind.
      const int prefills = program.add_variable({});
      all_groups.push_back({prefills, 1});
      prefill_gpus.push_back({prefills, static_cast<double>(degree)});
      prefill_rate.push_back({prefills, 1 / (task.layers * figures.prefill_layer_s)});
      prefill_memory.push_back({prefills, -1 - (task.layers * task.layer_kv_bytes + figures.activation_bytes) / weights});
      const double max_batch = std::floor(figures.memory_bytes / figures.activation_bytes);
      if (max_batch < 1) continue;
      // Decode groups of this kind, the sum of their batches, and of their requests/s.
      const int decodes = program.add_variable({}), batches = program.add_variable({}), rate = program.add_variable({});
      all_groups.push_back({decodes, 1});
      decode_gpus.push_back({decodes, static_cast<double>(degree)});
      decode_rate.push_back({rate, 1});
      decode_memory.push_back({decodes, -1});
      // Caches over the whole group, and the stage's own activations.
      decode_memory.push_back({batches, -(task.layers * task.layer_kv_bytes + degree * figures.activation_bytes) / weights});
      program.add_at_most({{batches, 1}, {decodes, -max_batch}}, 0);
      const double fixed_s = task.layers * figures.decode_layer_s, each_s = task.layers * figures.decode_layer_request_s;
      // rate(b) = b / (fixed + b each) lies below its tangents.
      for (double b = 1; b < 2 * max_batch; b *= 1.05) {
        const double at_s = fixed_s + b * each_s, slope = fixed_s / (at_s * at_s);
        program.add_at_most({{rate, 1}, {decodes, -(b / at_s - slope * b)}, {batches, -slope}}, 0);
      }
    }
    program.add_at_most(prefill_gpus, 0);
    program.add_at_most(decode_gpus, 0);
  }
  program.add_at_most(all_groups, groups);
  program.add_at_least(prefill_rate, 0);
  program.add_at_least(decode_rate, 0);
  program.add_at_least(prefill_memory, 0);
  program.add_at_least(decode_memory, 0);
  WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(program));
  return -solution.objective;
}

}  // namespace windlass::hetero
