// Builds and evaluates operator models; see operator_model.h.
#include "planner/perf/operator_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "planner/catalog/weight_matrices.h"

namespace windlass::planner {

namespace {

constexpr int kCurveSizes = 16384;
constexpr int kBatchNodes = kAttentionBatchOctaves * kAttentionStepsPerOctave + 1;
constexpr int kLengthNodes = kAttentionLengthOctaves * kAttentionStepsPerOctave + 1;
constexpr double kActivationBytes = 2;

double node(int index) { return std::exp2(static_cast<double>(index) / kAttentionStepsPerOctave); }

const std::array<double, std::max(kBatchNodes, kLengthNodes)> kNodes = [] {
  std::array<double, std::max(kBatchNodes, kLengthNodes)> result{};
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = node(static_cast<int>(i));
  return result;
}();

// The interval of nodes around x, and the position of x in it. REQUIRES: count >= 2.
struct Place {
  int below = 0;
  double share = 0;
};
Place locate(double x, int count) {
  if (x <= 1) return {};
  const int octave = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023;  // of a double's 52 bits of mantissa
  int below = std::min(octave * kAttentionStepsPerOctave, count - 2);
  while (below < count - 2 && kNodes[static_cast<std::size_t>(below) + 1] <= x) ++below;
  const double low = kNodes[static_cast<std::size_t>(below)];
  const double high = kNodes[static_cast<std::size_t>(below) + 1];
  return {below, std::min(1.0, (x - low) / (high - low))};
}

// Seconds, and what they are based on.
struct Priced {
  double s = 0;
  double extrapolated_s = 0;
  double modelled_s = 0;

  Priced() = default;
  Priced(const OperatorTime& time)  // NOLINT(google-explicit-constructor)
      : s(time.s),
        extrapolated_s(time.coverage == Coverage::kExtrapolated ? time.s : 0),
        modelled_s(time.coverage == Coverage::kModelled ? time.s : 0) {}
  Priced& operator+=(const Priced& more) {
    s += more.s;
    extrapolated_s += more.extrapolated_s;
    modelled_s += more.modelled_s;
    return *this;
  }
  // Adds time from the data sheet alone.
  void add_modelled(double more_s) { *this += OperatorTime{more_s, Coverage::kModelled}; }
};
Priced operator*(double factor, Priced priced) {
  priced.s *= factor;
  priced.extrapolated_s *= factor;
  priced.modelled_s *= factor;
  return priced;
}

float share_of(double part_s, double all_s) { return all_s > 0 ? static_cast<float>(part_s / all_s) : 0; }

// Work of causal attention with a window, relative to attention without one.
double windowed_share(double length, double window) {
  return window >= length ? 1 : (window * length - window * window / 2) / (length * length / 2);
}

}  // namespace

OperatorHardware operator_hardware(const AcceleratorSpec& spec) {
  const double flops_16bit = std::max(peak_flops_for(spec, DType::kBFloat16), peak_flops_for(spec, DType::kFloat16));
  const auto float8 = spec.peak_flops.find(DType::kFloat8);
  return {.flops_16bit = flops_16bit,
          .flops_8bit = float8 == spec.peak_flops.end() ? 0 : float8->second,
          .memory_bandwidth_bytes_per_s = spec.memory_bandwidth_bytes_per_s,
          .link_bandwidth_bytes_per_s = spec.intra_link_bandwidth_bytes_per_s};
}

double OperatorModel::Curve::at(double size) const {
  const double last = static_cast<double>(s.size());
  if (size >= last) return s.back() + (size - last) * slope_s;
  if (size <= 1) return s.front();
  const auto below = static_cast<std::size_t>(size);
  const double share = size - static_cast<double>(below);
  return s[below - 1] + share * (s[below] - s[below - 1]);
}

void OperatorModel::Curve::add_basis(double size, Basis& to) const {
  const double time_s = at(size), last = static_cast<double>(s.size());
  const std::size_t nearest = static_cast<std::size_t>(std::ceil(std::clamp(size, 1.0, last))) - 1;
  const double modelled_s = time_s * modelled[nearest];
  to.kernels_s += time_s;
  to.modelled_s += modelled_s;
  to.extrapolated_s += size > last ? time_s - modelled_s : time_s * extrapolated[nearest];
}

double OperatorModel::Surface::at(double batch, double length) const {
  const Place row = locate(batch, kBatchNodes);
  const Place column = locate(length, kLengthNodes);
  const double* below = &s[static_cast<std::size_t>(row.below) * kLengthNodes + static_cast<std::size_t>(column.below)];
  const double* above = below + kLengthNodes;
  const double low = below[0] + column.share * (below[1] - below[0]);
  const double high = above[0] + column.share * (above[1] - above[0]);
  double time_s = low + row.share * (high - low);
  const double max_batch = kNodes[kBatchNodes - 1];
  const double max_length = kNodes[kLengthNodes - 1];
  if (batch > max_batch) time_s *= batch / max_batch;
  if (length > max_length) time_s *= std::pow(length / max_length, growth);
  return time_s;
}

void OperatorModel::Surface::add_basis(double batch, double length, Basis& to) const {
  const Place row = locate(batch, kBatchNodes);
  const Place column = locate(length, kLengthNodes);
  const int nearest_row = row.below + (row.share > 0.5 ? 1 : 0);
  const int nearest_column = column.below + (column.share > 0.5 ? 1 : 0);
  const auto nearest = static_cast<std::size_t>(nearest_row) * kLengthNodes + static_cast<std::size_t>(nearest_column);
  const bool beyond = batch > kNodes[kBatchNodes - 1] || length > kNodes[kLengthNodes - 1];
  const double time_s = at(batch, length);
  const double modelled_s = time_s * modelled[nearest];
  to.kernels_s += time_s;
  to.modelled_s += modelled_s;
  to.extrapolated_s += beyond ? time_s - modelled_s : time_s * extrapolated[nearest];
}

namespace {

// What operators go by (Vidur's equivalences): the tokens and sequences of the whole batch, and the equal prompts and contexts
// that attend like its own.
struct Sizes {
  double tokens = 0, sequences = 0, prefill_length = 0, decode_context = 0;

  explicit Sizes(const Batch& batch)
      : tokens(batch.prefill_tokens + batch.decode_sequences), sequences(batch.prefill_sequences + batch.decode_sequences) {
    if (batch.prefill_sequences > 0) prefill_length = std::sqrt(batch.prefill_attention / batch.prefill_sequences);
    if (batch.decode_sequences > 0) decode_context = batch.decode_context_tokens / batch.decode_sequences;
  }
};

}  // namespace

// Data used while a model is built.
struct OperatorModel::Builder {
  const ModelShape& shape;
  const AcceleratorSpec& spec;
  const OperatorTimes& times;
  const OperatorModelOptions& options;
  const std::vector<WeightMatrix> matrices = weight_matrices(shape);

  [[nodiscard]] double tp() const { return options.tensor_parallel; }
  [[nodiscard]] double heads() const { return shape.heads / tp(); }
  [[nodiscard]] double kv_heads() const { return std::max(1.0, shape.kv_heads / tp()); }

  // One product of `matrix` for a layer, or of all chosen experts, on one GPU.
  [[nodiscard]] OperatorTime product(const WeightMatrix& matrix, double tokens) const {
    auto n = static_cast<double>(matrix.rows);
    auto k = static_cast<double>(matrix.columns);
    const std::string_view name = matrix.name;
    // Megatron's split: the first product of a pair by outputs, the second by inputs; products with small outputs are on every
    // GPU.
    const bool second = name == "attention_output" ||
                        ((matrix.role == MatrixRole::kMlp || matrix.role == MatrixRole::kExpert) && name.ends_with("down"));
    const bool whole = matrix.role == MatrixRole::kRouter || name == "query_down" || name == "kv_down";
    if (name == "qkv") {
      n = (heads() + 2 * kv_heads()) * shape.head_dim;
    } else if (second) {
      k /= tp();
    } else if (!whole) {
      n /= tp();
    }
    const GemmKind kind = matrix.role == MatrixRole::kRouter ? GemmKind::kBFloat16 : options.weights;
    if (matrix.role != MatrixRole::kExpert) return times.cold_gemm(kind, tokens, n, k);
    // A grouped product: all routed tokens at the speed of one product, but the weights of each chosen expert are read.
    const double chosen = expected_distinct_experts(shape, tokens);
    OperatorTime time = times.cold_gemm(kind, tokens * shape.experts->experts_per_token, n, k);
    const double bandwidth = times.hardware().memory_bandwidth_bytes_per_s * times.efficiency().gemm_16bit.bandwidth;
    time.s = std::max(time.s, chosen * bytes_per_element(kind) * n * k / bandwidth);
    return {time.s, std::max(time.coverage, Coverage::kExtrapolated)};
  }

  [[nodiscard]] Priced token_level(double tokens) const {
    Priced sum;
    for (const WeightMatrix& matrix : matrices) {
      double products = static_cast<double>(matrix.copies);
      switch (matrix.role) {
        case MatrixRole::kLookup:
        case MatrixRole::kOutput: continue;
        case MatrixRole::kExpert: products = shape.experts->layers; break;
        case MatrixRole::kAttention:
        case MatrixRole::kMlp:
        case MatrixRole::kRouter:
        case MatrixRole::kProjection: break;
      }
      sum += products * Priced(product(matrix, tokens));
    }
    const double row = tokens * shape.hidden * kActivationBytes;
    const double heads_row = tokens * (heads() + kv_heads()) * shape.head_dim * kActivationBytes;
    const double cache_row = tokens * 2 * kv_heads() * shape.head_dim * kActivationBytes;
    const double active_experts = shape.experts ? shape.experts->experts_per_token : 1;
    const double width = shape.experts ? active_experts * shape.experts->intermediate + shape.experts->shared_intermediate
                                       : static_cast<double>(shape.intermediate);
    const double inner_row = tokens * width / tp() * kActivationBytes;
    double layer_s = shape.norms_per_layer * times.elementwise_s(4 * row)  // residual and norm: read two, write two
                     + times.elementwise_s(2 * heads_row) + times.elementwise_s(2 * cache_row)  // rotary positions, cache
                     + times.elementwise_s((shape.gated_mlp ? 3 : 2) * inner_row);              // activation
    if (shape.qk_norm) layer_s += times.elementwise_s(2 * heads_row);
    sum.add_modelled(shape.layers * layer_s + times.elementwise_s(2 * row));  // embedding
    return sum;
  }

  [[nodiscard]] Priced communication(double tokens) const {
    const double bytes = tokens * shape.hidden * kActivationBytes;
    // The embedding is split by vocabulary, so it needs an all-reduce too.
    const double all_reduces = options.tensor_parallel > 1 ? shape.layers * (shape.parallel_attention ? 1 : 2) + 1 : 0;
    Priced sum = all_reduces * Priced(times.all_reduce(options.tensor_parallel, bytes));
    const int hops = options.pipeline_parallel - 1;
    if (hops > 0) sum.add_modelled(hops * send_recv_roofline_s(times.hardware(), times.efficiency(), bytes));
    return sum;
  }

  [[nodiscard]] Priced output(double sequences) const {
    const double vocab = static_cast<double>(shape.vocab) / tp();
    Priced sum = times.cold_gemm(GemmKind::kBFloat16, sequences, vocab, shape.hidden);
    sum.add_modelled(times.elementwise_s(4 * sequences * shape.hidden * kActivationBytes));
    // Gathering the logits moves half as much as an all-reduce of them.
    sum += times.all_reduce(options.tensor_parallel, sequences * shape.vocab * kActivationBytes / 2);
    // Sampling: logits to float32, softmax and a draw: about four passes over them.
    constexpr double kPassBytes = 4 * 4;
    sum.add_modelled(4 * times.elementwise_s(sequences * shape.vocab * kPassBytes / 4));
    return sum;
  }

  [[nodiscard]] AttentionKey key() const { return {.head_dim = shape.head_dim, .float8_cache = options.float8_cache}; }

  [[nodiscard]] Priced prefill(double batch, double length) const {
    const bool latent = shape.latent_attention.has_value();  // keys and values of every head are computed again
    const Priced full = times.context_attention(key(), batch, length, heads(), latent ? heads() : kv_heads());
    if (!shape.sliding_window) return shape.layers * full;
    const double windowed = shape.sliding_window->layers * windowed_share(length, shape.sliding_window->tokens);
    return (shape.layers - shape.sliding_window->layers + windowed) * full;
  }

  [[nodiscard]] Priced decode(double batch, double context) const {
    if (shape.latent_attention) {
      const OperatorWork work{.flops = batch * decode_attention_flops_per_token(shape, context) / tp() / shape.layers,
                              .bytes = batch * kv_bytes(shape, context) / shape.layers,
                              .serial_length = context,
                              .groups = batch};
      const double s = roofline_s(work, times.hardware().flops_16bit, times.hardware().memory_bandwidth_bytes_per_s,
                                  times.efficiency().generation_attention, true);
      return OperatorTime{shape.layers * s, Coverage::kModelled};
    }
    const Priced full = times.generation_attention(key(), batch, context, heads(), kv_heads());
    if (!shape.sliding_window) return shape.layers * full;
    const double window = std::min<double>(context, shape.sliding_window->tokens);
    const Priced windowed = times.generation_attention(key(), batch, window, heads(), kv_heads());
    Priced sum = (shape.layers - shape.sliding_window->layers) * full;
    sum += shape.sliding_window->layers * windowed;
    return sum;
  }

  [[nodiscard]] Curve curve(const std::function<Priced(double)>& price) const {
    std::set<double> sizes = {kCurveSizes};
    for (const double m : times.measured_m(options.weights)) {
      if (m < kCurveSizes) sizes.insert(m);
    }
    for (int i = 0; node(i) < kCurveSizes; ++i) sizes.insert(std::round(node(i)));
    Curve result;
    double from = 0;
    Priced from_time;
    for (const double to : sizes) {
      const Priced to_time = price(to);
      if (from == 0) from_time = to_time;
      for (double size = from + 1; size <= to; ++size) {
        const double share = (size - from) / (to - from);
        Priced between = (1 - share) * from_time;
        between += share * to_time;
        result.s.push_back(between.s);
        result.extrapolated.push_back(share_of(between.extrapolated_s, between.s));
        result.modelled.push_back(share_of(between.modelled_s, between.s));
      }
      from = to;
      from_time = to_time;
    }
    result.slope_s = std::max(0.0, price(2.0 * kCurveSizes).s - result.s.back()) / kCurveSizes;
    return result;
  }

  [[nodiscard]] Surface surface(const std::function<Priced(double, double)>& price, double growth) const {
    Surface result;
    result.growth = growth;
    for (int batch = 0; batch < kBatchNodes; ++batch) {
      for (int length = 0; length < kLengthNodes; ++length) {
        const Priced time = price(node(batch), node(length));
        result.s.push_back(time.s);
        result.extrapolated.push_back(share_of(time.extrapolated_s, time.s));
        result.modelled.push_back(share_of(time.modelled_s, time.s));
      }
    }
    return result;
  }

  [[nodiscard]] double kv_capacity() const {
    double weights = static_cast<double>(vector_parameter_count(shape)) * kActivationBytes;
    for (const WeightMatrix& matrix : matrices) {
      if (!matrix.stored) continue;
      const bool in_blocks =
          matrix.role == MatrixRole::kAttention || matrix.role == MatrixRole::kMlp || matrix.role == MatrixRole::kExpert;
      weights += static_cast<double>(matrix.parameters()) * (in_blocks ? bytes_per_element(options.weights) : kActivationBytes);
    }
    const double gpus = tp() * options.pipeline_parallel;
    const double free_bytes =
        spec.memory_bytes * options.overhead.memory_share - options.overhead.reserved_bytes - weights / gpus;
    const double cache_scale = options.float8_cache ? 0.5 : 1;
    const double shards = std::min(options.tensor_parallel, kv_shards(shape)) * options.pipeline_parallel;
    return free_bytes / (kv_bytes_per_token(shape) * cache_scale / shards);
  }
};

Result<OperatorModel> OperatorModel::make(const ModelShape& shape, const AcceleratorSpec& spec, const OperatorTimes& times,
                                          const OperatorModelOptions& options, const OperatorModel* like, Executor* executor) {
  WINDLASS_RETURN_IF_ERROR(validate(shape));
  WINDLASS_RETURN_IF_ERROR(validate(spec));
  const int tp = options.tensor_parallel;
  if (tp < 1 || shape.heads % tp != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("tensor_parallel: must be a divisor of the model's {} heads (got {})", shape.heads, tp)};
  }
  if (options.pipeline_parallel < 1 || options.pipeline_parallel > shape.layers) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("pipeline_parallel: must be from 1 to the model's {} layers (got {})",
                                                          shape.layers, options.pipeline_parallel)};
  }
  const Builder builder{shape, spec, times, options};
  OperatorModel model = like == nullptr ? OperatorModel() : *like;
  model.layers_ = shape.layers;
  model.stages_ = options.pipeline_parallel;
  model.overhead_ = options.overhead;
  if (like == nullptr) {
    run_tasks(
        executor,
        {[&] { model.prefill_ = builder.surface([&](double b, double length) { return builder.prefill(b, length); }, 2); },
         [&] { model.decode_ = builder.surface([&](double b, double context) { return builder.decode(b, context); }, 1); },
         [&] { model.tokens_ = builder.curve([&](double tokens) { return builder.token_level(tokens); }); },
         [&] { model.output_ = builder.curve([&](double sequences) { return builder.output(sequences); }); }});
  }
  model.communication_ = builder.curve([&](double tokens) { return builder.communication(tokens); });
  model.kv_capacity_tokens_ = builder.kv_capacity();
  return model;
}

std::vector<double> OperatorModel::iterations_s(const ModelShape& shape, const AcceleratorSpec& spec,
                                                const OperatorTimes& times, const OperatorModelOptions& options,
                                                std::span<const Batch> batches) {
  const Builder builder{shape, spec, times, options};
  std::vector<double> seconds;
  for (const Batch& batch : batches) {
    const Sizes sizes(batch);
    Parts parts;
    parts.token_level_s = builder.token_level(sizes.tokens).s;
    parts.communication_s = builder.communication(sizes.tokens).s;
    if (batch.prefill_sequences > 0)
      parts.prefill_attention_s = builder.prefill(batch.prefill_sequences, sizes.prefill_length).s;
    if (batch.decode_sequences > 0) parts.decode_attention_s = builder.decode(batch.decode_sequences, sizes.decode_context).s;
    parts.output_s = builder.output(sizes.sequences).s;
    parts.overhead_s = engine_overhead_s(options.overhead, shape.layers, batch, parts.layers_s());
    seconds.push_back(parts.sum_s());
  }
  return seconds;
}

OperatorModel::Parts OperatorModel::parts(const Batch& batch) const {
  const Sizes sizes(batch);
  Parts parts;
  parts.token_level_s = tokens_.at(sizes.tokens);
  parts.communication_s = communication_.at(sizes.tokens);
  if (batch.prefill_sequences > 0) parts.prefill_attention_s = prefill_.at(batch.prefill_sequences, sizes.prefill_length);
  if (batch.decode_sequences > 0) parts.decode_attention_s = decode_.at(batch.decode_sequences, sizes.decode_context);
  parts.output_s = output_.at(sizes.sequences);
  parts.overhead_s = engine_overhead_s(overhead_, layers_, batch, parts.layers_s());
  return parts;
}

double OperatorModel::iteration_s(const Batch& batch) const { return parts(batch).sum_s(); }

OperatorModel::Basis OperatorModel::basis(const Batch& batch) const {
  const Sizes sizes(batch);
  Basis result;
  tokens_.add_basis(sizes.tokens, result);
  communication_.add_basis(sizes.tokens, result);
  if (batch.prefill_sequences > 0) prefill_.add_basis(batch.prefill_sequences, sizes.prefill_length, result);
  if (batch.decode_sequences > 0) decode_.add_basis(batch.decode_sequences, sizes.decode_context, result);
  output_.add_basis(sizes.sequences, result);
  return result;
}

Coverage OperatorModel::coverage(const Batch& batch) const {
  const Basis all = basis(batch);
  if (all.measured_share() >= kMeasuredShare) return Coverage::kMeasured;
  return all.modelled_s > all.extrapolated_s ? Coverage::kModelled : Coverage::kExtrapolated;
}

}  // namespace windlass::planner
