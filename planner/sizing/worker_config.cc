// Aladdin's worker configuration: finds the batch of each tensor-parallel degree by bisection, then the degree with the best
// throughput per GPU.
#include "planner/sizing/worker_config.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "planner/perf/linear_model.h"

namespace windlass::planner {
namespace {

// The largest b in [0, high] with holds(b), if holds is true up to some b and false after it.
template <class Holds>
int largest_where(int high, Holds holds) {
  int good = 0;
  int bad = high + 1;
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

double request_kv_tokens(const Lengths& lengths) { return lengths.input_tokens + lengths.output_tokens + kKvBlockTokens; }

bool lengths_exceed_cache(const LatencyModel& model, const Lengths& lengths) {
  return model.kv_capacity_tokens() < request_kv_tokens(lengths);
}

}  // namespace

const char* to_string(BatchLimit limit) {
  switch (limit) {
    case BatchLimit::kKvCache: return "KvCache";
    case BatchLimit::kTpot: return "Tpot";
    case BatchLimit::kTtft: return "Ttft";
    case BatchLimit::kEngine: return "Engine";
  }
  return "Unknown";
}

const char* to_string(RejectCode code) {
  switch (code) {
    case RejectCode::kDoesNotFit: return "DoesNotFit";
    case RejectCode::kContextDoesNotFit: return "ContextDoesNotFit";
    case RejectCode::kTpot: return "TpotTooTight";
    case RejectCode::kTtft: return "TtftTooTight";
    case RejectCode::kDataType: return "NoComputeForDataType";
  }
  return "Unknown";
}

WorkerTimes worker_times(const LatencyModel& model, double batch, const Lengths& lengths) {
  WorkerTimes times;
  const double decode_steps = std::max(0.0, lengths.output_tokens - 1);  // the prefill produces the first token
  times.prefill_s = model.prefill_s(lengths.input_tokens);
  times.decode_s = model.decode_s(batch, lengths.input_tokens + kContextGrowth * lengths.output_tokens);
  times.service_s = batch * times.prefill_s + decode_steps * times.decode_s;
  // A single token has no time between tokens. If the mean answer is shorter than two tokens, stalls count as for two.
  const double stalls_s = decode_steps > 0 ? (batch - 1) * times.prefill_s / std::max(1.0, decode_steps) : 0;
  times.tpot_s = times.decode_s + stalls_s;
  // The prefills of a worker queue like M/D/1, at the share of time that prefills take while slots are as busy as allowed.
  const double prefill_share = kMaxUtilisation * batch * times.prefill_s / times.service_s;
  const double behind_others_s = batch > 1 ? times.prefill_s * prefill_share / (2 * (1 - prefill_share)) : 0;
  const double iteration_under_way_s = batch > 1 ? times.decode_s : 0;
  times.ttft_s = iteration_under_way_s + behind_others_s + times.prefill_s;
  return times;
}

BatchChoice largest_batch(const LatencyModel& model, const Objective& objective, const Lengths& lengths) {
  const double kv_tokens = model.kv_capacity_tokens();
  const auto by_kv =
      static_cast<int>(std::clamp(std::floor(kv_tokens / request_kv_tokens(lengths)), 0.0, static_cast<double>(kMaxBatch)));
  const int by_tpot = largest_where(kMaxBatch, [&](int b) {
    return worker_times(model, b, lengths).tpot_s <= kTpotMargin * objective.tpot_s || lengths.output_tokens <= 1;
  });
  const int by_ttft =
      largest_where(kMaxBatch, [&](int b) { return worker_times(model, b, lengths).ttft_s <= objective.ttft_s; });

  BatchChoice choice;
  choice.batch = std::min({kMaxBatch, by_kv, by_tpot, by_ttft});
  if (choice.batch == by_tpot && by_tpot < kMaxBatch) choice.limit = BatchLimit::kTpot;
  if (choice.batch == by_ttft && by_ttft < std::min(by_tpot, kMaxBatch)) choice.limit = BatchLimit::kTtft;
  if (choice.batch == by_kv && by_kv < std::min({by_tpot, by_ttft, kMaxBatch})) choice.limit = BatchLimit::kKvCache;
  choice.times = worker_times(model, std::max(1, choice.batch), lengths);
  return choice;
}

std::string text_of(const WorkerSpec& spec) {
  if (spec.pipeline_stages == 1) return fmt::format("{} x {}", spec.gpus(), spec.accelerator);
  const std::string server =
      spec.tensor_parallel == 1 ? spec.accelerator : fmt::format("({} x {})", spec.tensor_parallel, spec.accelerator);
  return fmt::format("a chain of {} x {}", spec.pipeline_stages, server);
}

double tokens_per_s_per_gpu(const BatchChoice& choice, const Objective& objective, int gpus) {
  const double iteration_s = choice.limit == BatchLimit::kTpot ? kTpotMargin * objective.tpot_s : choice.times.tpot_s;
  return choice.batch / (gpus * iteration_s);
}

int batch_in_memory(double kv_capacity_tokens, const Lengths& lengths, int reserved_tokens) {
  const double each = reserved_tokens > 0 ? reserved_tokens : request_kv_tokens(lengths);
  return static_cast<int>(std::clamp(std::floor(kv_capacity_tokens / each), 1.0, static_cast<double>(kMaxBatch)));
}

std::vector<int> tensor_parallel_degrees(const ModelShape& shape, int max_gpus) {
  const auto even = [&](int n) {
    const bool kv_even = shape.kv_heads % n == 0 || n % shape.kv_heads == 0;
    const bool has_mlp = !shape.experts || shape.experts->layers < shape.layers;
    const bool mlp_even = !has_mlp || shape.intermediate % n == 0;
    const bool experts_even =
        !shape.experts || (shape.experts->intermediate % n == 0 && shape.experts->shared_intermediate % n == 0);
    return shape.heads % n == 0 && kv_even && mlp_even && experts_even;
  };
  std::vector<int> degrees;
  for (int n = 1; n <= std::min(max_gpus, shape.heads); ++n) {
    if (even(n)) degrees.push_back(n);
  }
  return degrees;
}

namespace {

WorkerSpec spec_of(const WorkerSearchInput& input, const GpuSplit& split) {
  return {input.accelerator.name, split.tensor_parallel, split.stages};
}

// Refusals because of the class; none: it may hold the model.
std::optional<Rejected> rejected_class(const WorkerSearchInput& input, const GpuSplit& split) {
  if (peak_flops_for(input.accelerator, input.shape.dtype) <= 0) {
    return Rejected{spec_of(input, split), RejectCode::kDataType,
                    fmt::format("{} has no peak FLOP/s for {}", text_of(spec_of(input, split)), to_string(input.shape.dtype))};
  }
  if (split.tensor_parallel > 1 && input.accelerator.intra_link_bandwidth_bytes_per_s <= 0) {
    return Rejected{
        spec_of(input, split), RejectCode::kDoesNotFit,
        fmt::format("{} cannot share a model: the class gives no intra-node link bandwidth", text_of(spec_of(input, split)))};
  }
  if (split.stages > 1 && input.accelerator.inter_link_bandwidth_bytes_per_s <= 0) {
    return Rejected{
        spec_of(input, split), RejectCode::kDoesNotFit,
        fmt::format("{} cannot share a model: the class gives no inter-node link bandwidth", text_of(spec_of(input, split)))};
  }
  return std::nullopt;
}

// Refusals because of memory; none: the model and one request of any length fit.
std::optional<Rejected> rejected_memory(const WorkerSearchInput& input, const GpuSplit& split, const LatencyModel& model) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const int context = input.max_context_tokens > 0 ? input.max_context_tokens : input.shape.max_context_tokens;
  if (model.kv_capacity_tokens() < 1) {
    return Rejected{spec_of(input, split), RejectCode::kDoesNotFit,
                    fmt::format("the model's {:.3g} GiB do not fit into the {:.3g} GiB of {}", weight_bytes(input.shape) / kGiB,
                                split.gpus() * input.accelerator.memory_bytes / kGiB, text_of(spec_of(input, split)))};
  }
  if (model.kv_capacity_tokens() < context) {
    return Rejected{spec_of(input, split), RejectCode::kContextDoesNotFit,
                    fmt::format("one request of {} tokens does not fit into the KV cache of {}, which holds {:.0f}", context,
                                text_of(spec_of(input, split)), model.kv_capacity_tokens())};
  }
  return std::nullopt;
}

// For a worker that misses the objective even with one request at a time.
Rejected rejected_speed(const WorkerSearchInput& input, const GpuSplit& split, const LatencyModel& model) {
  const WorkerTimes alone = worker_times(model, 1, input.lengths);
  const std::string who = text_of(spec_of(input, split));
  if (alone.ttft_s > input.objective.ttft_s) {
    return {spec_of(input, split), RejectCode::kTtft,
            fmt::format("a prompt of {:.0f} tokens alone takes {} {:.4g} ms, above timeToFirstToken {:.4g} ms",
                        input.lengths.input_tokens, who, alone.ttft_s * 1e3, input.objective.ttft_s * 1e3),
            alone.tpot_s / kTpotMargin, alone.ttft_s};
  }
  if (lengths_exceed_cache(model, input.lengths)) {
    return {spec_of(input, split), RejectCode::kContextDoesNotFit,
            fmt::format("one request of {:.0f} + {:.0f} tokens does not fit into the KV cache of {}, which holds {:.0f}",
                        input.lengths.input_tokens, input.lengths.output_tokens, who, model.kv_capacity_tokens())};
  }
  return {spec_of(input, split), RejectCode::kTpot,
          fmt::format("one request alone takes {} {:.4g} ms a token, above {:.0f} % of timePerOutputToken {:.4g} ms", who,
                      alone.tpot_s * 1e3, kTpotMargin * 100, input.objective.tpot_s * 1e3),
          alone.tpot_s / kTpotMargin, alone.ttft_s};
}

// The figures of one kind of worker, or why it is refused. `server`: the line of the whole model on the GPUs of one server.
using Tried = std::variant<WorkerConfig, Rejected>;
Tried try_split(const WorkerSearchInput& input, const GpuSplit& split, const LinearCoefficients& server) {
  if (auto why = rejected_class(input, split)) return *std::move(why);
  const LinearCoefficients sheet = split.stages > 1 ? chained(server, input.shape, input.accelerator, split) : server;
  const WorkerEstimate* known = find_estimate(input.estimates, input.accelerator.name, split);
  const LinearModel model(known == nullptr ? sheet : estimated(sheet, known->estimate));
  if (auto why = rejected_memory(input, split, model)) return *std::move(why);
  const BatchChoice choice = largest_batch(model, input.objective, input.lengths);
  if (choice.batch < 1) return rejected_speed(input, split, model);
  WorkerConfig config;
  config.spec = spec_of(input, split);
  config.batch = choice.batch;
  config.limit = choice.limit;
  config.kv_capacity_tokens = model.kv_capacity_tokens();
  config.times = choice.times;
  config.tokens_per_s_per_gpu = tokens_per_s_per_gpu(choice, input.objective, split.gpus());
  return config;
}

void take(WorkerConfig config, WorkerSearch& search) {
  if (!search.best || config.tokens_per_s_per_gpu > search.best->tokens_per_s_per_gpu) search.best = config;
  search.feasible.push_back(std::move(config));
}

int most_tensor_parallel(const WorkerSearchInput& input) {
  return std::min({input.max_gpus, input.accelerator.gpus_per_node, input.max_tensor_parallel.value_or(input.max_gpus)});
}

int most_stages(const WorkerSearchInput& input, int tensor_parallel) {
  return std::min({kMaxStages, input.shape.layers, input.max_gpus / tensor_parallel});
}

// Chains of servers with this many GPUs. If none is feasible, the refusal of the longest says why.
void search_chains(const WorkerSearchInput& input, int tensor_parallel, const LinearCoefficients& server,
                   WorkerSearch& search) {
  const int most = most_stages(input, tensor_parallel);
  std::optional<Rejected> rejected;
  double best = 0;
  for (int stages = 2; stages <= most; ++stages) {
    Tried tried = try_split(input, {tensor_parallel, stages}, server);
    if (auto* const why = std::get_if<Rejected>(&tried)) {
      if (best > 0) return;
      rejected = std::move(*why);
      continue;
    }
    auto& config = std::get<WorkerConfig>(tried);
    if (config.tokens_per_s_per_gpu <= best) return;
    best = config.tokens_per_s_per_gpu;
    take(std::move(config), search);
  }
  if (best == 0 && rejected) search.rejected.push_back(*std::move(rejected));
}

}  // namespace

std::optional<WorkerConfig> chain_config(const WorkerSearchInput& input, const GpuSplit& split) {
  const std::vector<int> degrees = tensor_parallel_degrees(input.shape, most_tensor_parallel(input));
  if (std::find(degrees.begin(), degrees.end(), split.tensor_parallel) == degrees.end() ||
      split.stages > most_stages(input, split.tensor_parallel))
    return std::nullopt;
  Tried tried =
      try_split(input, split, linear_coefficients(input.shape, input.accelerator, split.tensor_parallel, input.engine));
  auto* const config = std::get_if<WorkerConfig>(&tried);
  return config == nullptr ? std::nullopt : std::optional(std::move(*config));
}

WorkerSearch search_worker_config(const WorkerSearchInput& input) {
  WorkerSearch search;
  for (const int gpus : tensor_parallel_degrees(input.shape, most_tensor_parallel(input))) {
    if (auto why = rejected_class(input, gpus)) {
      search.rejected.push_back(*std::move(why));
      continue;
    }
    const LinearCoefficients server = linear_coefficients(input.shape, input.accelerator, gpus, input.engine);
    if (input.chained) {
      search_chains(input, gpus, server, search);
      continue;
    }
    Tried tried = try_split(input, gpus, server);
    if (auto* const why = std::get_if<Rejected>(&tried)) {
      search.rejected.push_back(std::move(*why));
    } else {
      take(std::get<WorkerConfig>(std::move(tried)), search);
    }
  }
  return search;
}

}  // namespace windlass::planner
