// One forward pass: passes data to the kernels and decides when the host waits. config_ has this rank's heads and width;
// tensors of the whole hidden size are complete, with the same bits, on every rank.
#include "worker/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/core.h>

#include "worker/backend/cpu/ops.h"
#include "worker/backend/cuda/batch.h"
#include "worker/backend/cuda/device_weights.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/collective/rank_watch.h"

namespace windlass::worker::cuda {
namespace {

constexpr auto kCompute = Device::Stream::kCompute;
constexpr auto kTransfer = Device::Stream::kTransfer;
// Largest decode batch that runs as a graph; in larger ones launches no longer dominate.
constexpr std::int64_t kMaxGraphRows = 256;

// Memory of one forward pass, on the device and pinned.
struct Working {
  OnDevice residual, normed, qkv, queries, mixed, mlp_in, activated, router_logits, entry_numbers, entry_rows, last, narrow,
      rounded, unpacked, activations, row_scales, fp8_products, logits, summaries, partial, partial_stats, batch, cos, sin;
  Pinned host_batch, host_rows;  // the batch's description; hidden states in or out, or logits
  Pinned host_summaries;         // of the rows of logits; at rank 0, of all ranks' parts
};

// Memory of read_kv() and write_kv().
struct KvCopies {
  OnDevice plain, slots;
  Pinned host_plain, host_slots;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(const ModelConfig& config, std::unique_ptr<Device> device, const CudaBackendOptions& options,
              std::function<void(const Error&)> lost)
      : slice_(options.slice()),
        whole_(config),
        config_(config_of_rank(config, slice_.ranks)),
        options_(options),
        blocks_(options.blocks.value_or(config.all_blocks())),
        lost_(std::move(lost)),
        device_(std::move(device)) {}

  // Allocates all memory and uploads the weights.
  Result<void> prepare(const WeightSource& source) {
    WINDLASS_RETURN_IF_ERROR(check_cuda_model(config_));
    assert(blocks_.first >= 0 && blocks_.size() >= 1 && blocks_.end <= config_.layers);
    if (blocks_.size() > Device::kMarks) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("num_hidden_layers: must be at most {} with --backend cuda (got {})", Device::kMarks, blocks_.size())};
    }
    if (options_.kv_blocks * kKvBlockTokens > std::numeric_limits<std::int32_t>::max()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--kv-cache-tokens: must be at most {} with --backend cuda (got {})",
                               std::numeric_limits<std::int32_t>::max(), options_.kv_blocks * kKvBlockTokens)};
    }
    WINDLASS_RETURN_IF_ERROR(check_activations());
    sizes_ = working_sizes(whole_, options_, options_.slice(), multiprocessors());
    WINDLASS_ASSIGN_OR_RETURN(weights_, upload_weights(*device_, config_, blocks_, source));
    WINDLASS_RETURN_IF_ERROR(take_working_memory());
    const std::int64_t element = bytes_of(device_->precision());
    cache_layer_elements_ = options_.kv_blocks * kKvBlockTokens * config_.kv_heads * padded_dim_of(config_.head_dim);
    for (OnDevice* cache : {&keys_, &values_}) {
      WINDLASS_ASSIGN_OR_RETURN(*cache, OnDevice::make(*device_, blocks_.size() * cache_layer_elements_ * element));
      device_->clear(kCompute, cache->get(), cache->bytes());  // dimensions between head_dim and padded_dim stay 0 for ever
    }
    device_->clear(kCompute, working_.queries.get(), working_.queries.bytes());  // likewise
    WINDLASS_RETURN_IF_ERROR(device_->wait(kCompute));
    if (options_.group != nullptr && lost_)
      watch_.emplace(
          *options_.group, options_.group->patience().stall_s, [this] { return device_->fault(); }, lost_);
    return {};
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return config_.vocab_size; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return options_.kv_blocks; }
  [[nodiscard]] KvShape kv_shape() const override { return {blocks_.size(), 2 * config_.kv_size()}; }

  [[nodiscard]] bool kv_is_bf16() const override { return device_->precision() == Precision::kBf16; }

  [[nodiscard]] const LogitSummary* summary(std::size_t row) const override {
    return row < needs_.size() && needs_[row].likeliest > 0 ? working_.host_summaries.as<LogitSummary>() + row : nullptr;
  }
  [[nodiscard]] Result<std::span<const float>> row(std::size_t row) override {
    assert(summary(row) != nullptr);
    const auto at = static_cast<std::int64_t>(row);
    download_rows(at, at + 1);
    Result<void> done = device_->wait(kCompute);
    if (done.ok() && options_.group != nullptr) {
      give_rows(at, at + 1);
      done = options_.group->barrier();
    }
    if (!done.ok()) return lost(done.error());
    return rows_of_all().subspan(static_cast<std::size_t>(at * config_.vocab_size),
                                 static_cast<std::size_t>(config_.vocab_size));
  }

  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    copy_kv(range, blocks, [&](std::int64_t first, std::int64_t floats, const CopyKv& copy) {
      device_->kernels().read_kv(device_->handle(kTransfer), copy);
      const std::int64_t bytes = floats * static_cast<std::int64_t>(sizeof(float));
      device_->download(kTransfer, copies_.host_plain.get(), copies_.plain.get(), bytes);
      if (!device_->wait(kTransfer).ok()) return;  // the next forward() reports the error, too
      std::copy_n(copies_.host_plain.as<float>(), floats, out + first * kv_shape().values);
    });
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    copy_kv(range, blocks, [&](std::int64_t first, std::int64_t floats, const CopyKv& copy) {
      std::copy_n(in + first * kv_shape().values, floats, copies_.host_plain.as<float>());
      const std::int64_t bytes = floats * static_cast<std::int64_t>(sizeof(float));
      device_->upload(kTransfer, copies_.plain.get(), copies_.host_plain.get(), bytes);
      device_->kernels().write_kv(device_->handle(kTransfer), copy);
      static_cast<void>(device_->wait(kTransfer));
    });
  }

 private:
  // Determines which kernels run, with which arguments, in a batch of single tokens: one graph per key.
  using GraphKey = std::tuple<std::int64_t, std::int64_t>;  // padded rows, splits
  struct Graph {
    bool seen = false;  // run once without a graph, so libraries have loaded what they need
    int id = -1;        // of the device; negative: none yet
  };

  [[nodiscard]] Result<void> check_activations() const {
    if (!options_.fp8_activations) return {};
    assert(options_.weights == WeightFormat::kFp8 && device_->precision() == Precision::kBf16);
    if (device_->multiplies_fp8()) return {};
    return Error{
        ErrorCode::kFailedPrecondition,
        fmt::format("--activations: must be bf16 on {} (got fp8): its tensor cores do not support FP8", device_->name())};
  }

  Result<void> take_working_memory() {
    const std::int64_t element = bytes_of(device_->precision());
    const std::int64_t number = sizeof(float);
    const std::tuple<OnDevice*, std::int64_t, std::int64_t> on_device[] = {
        {&working_.residual, sizes_.residual, number},
        {&working_.normed, sizes_.normed, element},
        {&working_.qkv, sizes_.qkv, element},
        {&working_.queries, sizes_.queries, element},
        {&working_.mixed, sizes_.mixed, element},
        {&working_.mlp_in, sizes_.mlp_in, element},
        {&working_.activated, sizes_.activated, element},
        {&working_.router_logits, sizes_.router_logits, number},
        {&working_.entry_numbers, sizes_.entry_numbers, number},
        {&working_.entry_rows, sizes_.entry_rows, number},
        {&working_.last, sizes_.last, element},
        {&working_.narrow, sizes_.narrow, number},
        {&working_.rounded, sizes_.rounded, element},
        {&working_.unpacked, sizes_.unpacked, element},
        {&working_.activations, sizes_.activations, 1},
        {&working_.row_scales, sizes_.row_scales, number},
        {&working_.fp8_products, sizes_.fp8_products, number},
        {&working_.logits, sizes_.logits, number},
        {&working_.summaries, sizes_.summaries, number},
        {&working_.partial, sizes_.partial, number},
        {&working_.partial_stats, sizes_.partial_stats, number},
        {&working_.batch, sizes_.batch, number},
        {&copies_.plain, kKvCopyTokens * 2 * config_.kv_size(), number},
        {&copies_.slots, kKvCopyTokens, number}};
    for (const auto& [memory, elements, bytes] : on_device) {
      if (elements == 0) continue;  // the model does not need it
      WINDLASS_ASSIGN_OR_RETURN(*memory, OnDevice::make(*device_, elements * bytes));
    }
    const bool rows_pass = !begins() || !ends();
    const std::pair<Pinned*, std::int64_t> pinned[] = {
        {&working_.host_batch, sizes_.batch},
        {&working_.host_rows, std::max(rows_pass ? sizes_.residual : 0, sizes_.logits)},
        {&working_.host_summaries, ends() ? padded_decode_rows(options_.max_logit_rows) * kSummaryFloats : 0},
        {&copies_.host_plain, kKvCopyTokens * 2 * config_.kv_size()},
        {&copies_.host_slots, kKvCopyTokens}};
    for (const auto& [memory, elements] : pinned) {
      WINDLASS_ASSIGN_OR_RETURN(*memory, Pinned::make(*device_, elements * number));
    }
    if (config_.positions != Positions::kRotary) return {};
    const cpu::RopeTable table = cpu::make_rope_table(config_, options_.max_context_tokens);
    WINDLASS_ASSIGN_OR_RETURN(working_.cos, upload_floats(*device_, table.cos));
    WINDLASS_ASSIGN_OR_RETURN(working_.sin, upload_floats(*device_, table.sin));
    return {};
  }

  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    for (const SequenceChunk& chunk : chunks) {
      tokens += tokens_of(chunk, config_.hidden_size);
      rows += chunk.wants_logits && ends() ? 1 : 0;
    }
    // An error of the batch is found by all ranks alike and does no harm.
    Result<PackedBatch> batch = PackedBatch();
    std::int64_t padded_rows = 0;
    if (tokens > options_.max_batch_tokens || rows > options_.max_logit_rows) {
      batch = Error{ErrorCode::kInternal, fmt::format("forward: must have at most {} tokens and {} logit rows (got {} and {})",
                                                      options_.max_batch_tokens, options_.max_logit_rows, tokens, rows)};
    } else if (tokens > 0) {
      padded_rows = padded_rows_of(chunks, tokens, layer_done != nullptr || skip > 0);
      const std::span<std::int32_t> packed(working_.host_batch.as<std::int32_t>(), static_cast<std::size_t>(sizes_.batch));
      batch = pack(chunks, config_.hidden_size, ends(), padded_rows, packed);
    }
    Result<std::span<const float>> rows_back = std::span<const float>();
    needs_.clear();
    if (batch.ok() && tokens > 0) {
      if (!begins()) take(chunks);
      const auto* needs = reinterpret_cast<const RowNeed*>(working_.host_batch.as<std::int32_t>() + batch->needs_at);
      needs_.assign(needs, needs + rows);
      const std::int64_t floats = ends() ? rows * vocab_part() : slice_.rank == 0 ? tokens * config_.hidden_size : 0;
      rows_back = compute(*batch, padded_rows > 0, floats, layer_done, skip);
    }
    if (rows_back.ok() && options_.group != nullptr) rows_back = met(*rows_back);
    if (!rows_back.ok()) return lost(rows_back.error());
    if (!batch.ok()) return batch.error();
    return rows_back;
  }

  // Waits until all ranks have finished the batch, so that they can get the next one. At rank 0, assembles logits and summaries
  // from each rank's part of the vocabulary.
  [[nodiscard]] Result<std::span<const float>> met(std::span<const float> own) {
    RankGroup& group = *options_.group;
    const auto rows = static_cast<std::int64_t>(needs_.size());
    if (rows > 0) {
      for_whole_rows([&](std::int64_t first, std::int64_t end) { give_rows(first, end); });
      std::memcpy(summaries_of(slice_.rank), working_.host_summaries.get(), needs_.size() * sizeof(LogitSummary));
      own = rows_of_all().first(static_cast<std::size_t>(rows * config_.vocab_size));
    }
    WINDLASS_RETURN_IF_ERROR(group.barrier());
    if (slice_.rank > 0) return std::span<const float>();
    std::vector<LogitSummary> parts(static_cast<std::size_t>(slice_.ranks));
    for (std::size_t row = 0; row < needs_.size(); ++row) {
      if (needs_[row].likeliest == 0) continue;
      for (int rank = 0; rank < slice_.ranks; ++rank)
        std::memcpy(static_cast<void*>(&parts[static_cast<std::size_t>(rank)]),
                    summaries_of(rank) + static_cast<std::int64_t>(row) * kSummaryFloats, sizeof(LogitSummary));
      working_.host_summaries.as<LogitSummary>()[row] = merged(parts, needs_[row]);
    }
    return own;
  }
  // Where a rank writes its summaries in shared memory: after the logits.
  [[nodiscard]] float* summaries_of(int rank) const {
    return options_.group->gather().data() + options_.max_logit_rows * (config_.vocab_size + rank * kSummaryFloats);
  }
  // Copies this rank's part of these rows to shared memory.
  void give_rows(std::int64_t first, std::int64_t end) {
    const float* const own = working_.host_rows.as<float>();
    float* const to = options_.group->gather().data() + slice_.first(config_.vocab_size);
    for (std::int64_t row = first; row < end; ++row)
      std::copy_n(own + row * vocab_part(), vocab_part(), to + row * config_.vocab_size);
  }
  // (rows, vocabulary) of logits that have been fetched.
  [[nodiscard]] std::span<const float> rows_of_all() const {
    if (options_.group != nullptr) return options_.group->gather();
    return {working_.host_rows.as<float>(), static_cast<std::size_t>(sizes_.logits)};
  }

  // Calls work(first, end) for runs of rows of logits that are wanted whole.
  template <typename Work>
  void for_whole_rows(const Work& work) const {
    const auto is_whole = [](const RowNeed& need) { return need.likeliest == 0; };
    for (auto first = needs_.begin(); first != needs_.end();) {
      first = std::find_if(first, needs_.end(), is_whole);
      const auto end = std::find_if_not(first, needs_.end(), is_whole);
      if (first != end) work(first - needs_.begin(), end - needs_.begin());
      first = end;
    }
  }
  void download_rows(std::int64_t first, std::int64_t end) {
    device_->download(kCompute, working_.host_rows.as<float>() + first * vocab_part(),
                      working_.logits.as<float>() + first * vocab_part(),
                      (end - first) * vocab_part() * static_cast<std::int64_t>(sizeof(float)));
  }
  void download_logits() {
    for_whole_rows([this](std::int64_t first, std::int64_t end) { download_rows(first, end); });
    const bool summed_up = std::any_of(needs_.begin(), needs_.end(), [](const RowNeed& need) { return need.likeliest > 0; });
    if (!summed_up) return;
    device_->download(kCompute, working_.host_summaries.get(), working_.summaries.get(),
                      static_cast<std::int64_t>(needs_.size() * sizeof(LogitSummary)));
  }

  // Reports that the device is unusable.
  [[nodiscard]] Error lost(const Error& why) const {
    Error told = named(why);
    if (lost_) lost_(told);
    return told;
  }

  // An error of the device, as other ranks should see it.
  [[nodiscard]] Error named(const Error& why) const {
    if (options_.group == nullptr || why.code == ErrorCode::kUnavailable) return why;
    return {ErrorCode::kUnavailable, fmt::format("rank {} of {}: {}", slice_.rank, slice_.ranks, why.message)};
  }

  // `floats`: number of hidden states or logits, whether or not all are fetched. Errors are the device's.
  [[nodiscard]] Result<std::span<const float>> compute(const PackedBatch& batch, bool as_graph, std::int64_t floats,
                                                       const LayerDone& layer_done, std::int64_t skip) {
    std::optional<RankWatch::Step> step;
    if (watch_) step.emplace(*watch_);
    device_->upload(kCompute, working_.batch.get(), working_.host_batch.get(),
                    batch.size * static_cast<std::int64_t>(sizeof(std::int32_t)));
    const std::int64_t splits = decode_splits(config_, batch.decode_rows, batch.longest, multiprocessors());
    if (as_graph) {
      WINDLASS_RETURN_IF_ERROR(start_as_graph(batch, splits));
    } else {
      start(batch, splits, skip, layer_done != nullptr);
    }
    if (ends()) {
      download_logits();
    } else if (floats > 0) {
      device_->download(kCompute, working_.host_rows.get(), working_.residual.get(),
                        floats * static_cast<std::int64_t>(sizeof(float)));
    }
    // All work is queued; report layers as the device passes them.
    for (std::int64_t layer = skip; layer_done && layer < blocks_.size(); ++layer) {
      WINDLASS_RETURN_IF_ERROR(device_->wait_for_mark(static_cast<int>(layer)));
      layer_done(layer);
    }
    WINDLASS_RETURN_IF_ERROR(device_->wait(kCompute));
    return std::span<const float>(working_.host_rows.as<float>(), static_cast<std::size_t>(floats));
  }

  // 0: not a batch for a graph.
  [[nodiscard]] std::int64_t padded_rows_of(std::span<const SequenceChunk> chunks, std::int64_t tokens, bool watched) const {
    if (watched || static_cast<std::int64_t>(chunks.size()) != tokens) return 0;
    const std::int64_t padded = padded_decode_rows(tokens);
    const bool fits = padded <= kMaxGraphRows && padded <= sizes_.rows && (!ends() || padded * vocab_part() <= sizes_.logits);
    return fits ? padded : 0;
  }

  void take(std::span<const SequenceChunk> chunks) {
    float* const rows = working_.host_rows.as<float>();
    float* to = rows;
    for (const SequenceChunk& chunk : chunks) to = std::copy(chunk.hidden.begin(), chunk.hidden.end(), to);
    device_->upload(kCompute, working_.residual.get(), rows, (to - rows) * static_cast<std::int64_t>(sizeof(float)));
  }

  Result<void> start_as_graph(const PackedBatch& batch, std::int64_t splits) {
    Graph& graph = graphs_[{batch.decode_rows, splits}];
    if (!graph.seen) {
      graph.seen = true;
      start(batch, splits, 0, false);
      return {};
    }
    if (graph.id < 0) {
      device_->begin_capture();
      start(batch, splits, 0, false);
      WINDLASS_ASSIGN_OR_RETURN(graph.id, device_->end_capture());
    }
    device_->replay(graph.id);
    return {};
  }

  template <typename T>
  [[nodiscard]] const T* packed_at(std::int64_t at) const {
    return reinterpret_cast<const T*>(working_.batch.as<std::int32_t>() + at);
  }

  // Queues the whole pass: embedding (if it is here), layers, logits (likewise).
  void start(const PackedBatch& batch, std::int64_t splits, std::int64_t skip, bool marks) {
    const auto tokens = static_cast<int>(batch.tokens);
    const std::int64_t hidden = config_.hidden_size;
    if (begins()) embed(batch);
    if (config_.norm_after) round(working_.residual, nullptr, tokens, hidden, working_.normed);
    for (std::int64_t i = skip; i < blocks_.size(); ++i) {
      const DeviceLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
      if (!config_.norm_after) norm(layer.attention_norm, nullptr, nullptr, tokens, working_.normed);
      multiply(working_.normed, layer.qkv, working_.qkv, tokens, hidden, config_.q_size() + 2 * config_.kv_size());
      attend(batch, layer, i, splits, marks && slice_.ranks == 1);
      add_product(working_.mixed, layer.attention_out, tokens, config_.q_size());
      if (marks && slice_.ranks > 1) device_->set_mark(static_cast<int>(i));  // only now have all ranks written theirs
      // The MLP's input: normalised before it, or after attention.
      norm(config_.norm_after ? layer.attention_norm : layer.mlp_norm, layer.out_bias.as<float>(), nullptr, tokens,
           working_.normed);
      if (layer.router.get() != nullptr) {
        add_experts(layer, packed_at<std::int32_t>(batch.slots_at), tokens);
      } else {
        add_mlp(layer, tokens);
      }
      if (config_.norm_after) {
        norm(layer.mlp_norm, layer.mlp_out_bias.as<float>(), nullptr, tokens, working_.normed);
      } else if (const auto* bias = layer.mlp_out_bias.as<float>()) {
        device_->kernels().add_bias(device_->handle(kCompute),
                                    {working_.residual.as<float>(), bias, tokens, static_cast<int>(hidden)});
      }
    }
    if (ends() && batch.logit_rows > 0) give_logits(batch);
  }

  // residual: the tokens' rows of the embedding, as wide as the layers, plus learned positions if any.
  void embed(const PackedBatch& batch) {
    const auto* const learned =  // in the sum over ranks they come from one of them
        config_.positions == Positions::kLearned && slice_.rank == 0
            ? weights_.positions.as<float>() + kLearnedPositionsOffset * config_.hidden_size
            : nullptr;
    EmbedTokens work{packed_at<std::int32_t>(batch.ids_at),
                     weights_.embedding.get(),
                     working_.residual.as<float>(),
                     static_cast<int>(batch.tokens),
                     static_cast<int>(config_.hidden_size),
                     static_cast<int>(slice_.first(config_.vocab_size)),
                     static_cast<int>(slice_.end(config_.vocab_size)),
                     packed_at<std::int32_t>(batch.positions_at),
                     learned};
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    if (config_.embedding_size == 0) {
      kernels.embed_tokens(stream, work);
      device_->all_reduce(work.residual, batch.tokens * config_.hidden_size);  // only the rank with a token's id has its row
      return;
    }
    assert(slice_.ranks == 1);  // guaranteed by check_tensor_parallel()
    EmbedTokens positions = work;
    positions.end = positions.first;  // no token's embedding, only positions
    kernels.embed_tokens(stream, positions);
    work.residual = working_.narrow.as<float>();
    work.hidden = static_cast<int>(config_.embedding_size);
    work.learned = nullptr;
    kernels.embed_tokens(stream, work);
    round(working_.narrow, nullptr, work.count, config_.embedding_size, working_.rounded);  // to the type of the table
    Gemm widen{working_.rounded.get(), weights_.project_in.get(), positions.residual,
               batch.tokens,           config_.embedding_size,    config_.hidden_size};
    widen.float_out = widen.accumulate = true;
    device_->gemm(widen);
  }

  // residual += the MLP of `normed`, without its last bias.
  void add_mlp(const DeviceLayer& layer, std::int64_t tokens) {
    const std::int64_t width = config_.intermediate_size;
    multiply(working_.normed, layer.mlp_in, working_.mlp_in, tokens, config_.hidden_size, config_.mlp_in_size(width));
    activate(tokens, width, layer.mlp_in_bias.as<float>());
    add_product(working_.activated, layer.mlp_out, tokens, width);
  }

  // Computes logits of the rows that want them, and their summaries.
  void give_logits(const PackedBatch& batch) {
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    const auto rows = static_cast<int>(batch.logit_rows);
    const auto* const which = packed_at<std::int32_t>(batch.logit_rows_at);
    if (config_.norm_after) {
      round(working_.residual, which, rows, config_.hidden_size, working_.last);
    } else {
      norm(weights_.final_norm, nullptr, which, rows, working_.last);
    }
    const bool projects = config_.embedding_size > 0;
    if (projects) {
      device_->gemm({working_.last.get(), weights_.project_out.get(), working_.rounded.get(), rows, config_.hidden_size,
                     config_.embedding_size});
    }
    Gemm logits{projects ? working_.rounded.get() : working_.last.get(),
                weights_.output_matrix(),
                working_.logits.get(),
                rows,
                config_.embedding_width(),
                vocab_part()};
    logits.float_out = true;
    device_->gemm(logits);
    auto* const summaries = working_.summaries.as<LogitSummary>();
    kernels.summarise_logits(stream, {working_.logits.as<float>(), packed_at<RowNeed>(batch.needs_at),
                                      summaries + padded_decode_rows(options_.max_logit_rows), summaries, rows,
                                      static_cast<int>(vocab_part()), static_cast<int>(slice_.first(config_.vocab_size))});
  }

  // Rotates queries and keys, stores keys and values in the cache, then mixes: qkv -> mixed. `layer`: counted from this
  // backend's first block.
  void attend(const PackedBatch& batch, const DeviceLayer& weights, std::int64_t layer, std::int64_t splits, bool mark) {
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    void* const keys = keys_of(layer);
    void* const values = values_of(layer);
    const auto heads = static_cast<int>(config_.heads);
    const auto kv_heads = static_cast<int>(config_.kv_heads);
    const auto head_dim = static_cast<int>(config_.head_dim);
    const auto padded_dim = static_cast<int>(padded_dim_of(config_.head_dim));
    kernels.rope_store(
        stream, {working_.qkv.get(), weights.qkv_bias.as<float>(), weights.q_norm.as<float>(), weights.k_norm.as<float>(),
                 working_.cos.as<float>(), working_.sin.as<float>(), packed_at<std::int32_t>(batch.positions_at),
                 packed_at<std::int32_t>(batch.slots_at), working_.queries.get(), keys, values, static_cast<int>(batch.tokens),
                 heads, kv_heads, head_dim, padded_dim, static_cast<float>(config_.norm_eps)});
    if (mark) device_->set_mark(static_cast<int>(layer));
    const Attention attention{working_.queries.get(),
                              keys,
                              values,
                              packed_at<std::int32_t>(batch.tables_at),
                              working_.mixed.get(),
                              heads,
                              kv_heads,
                              head_dim,
                              padded_dim,
                              static_cast<int>(config_.window_of(blocks_.first + layer)),
                              1.0F / std::sqrt(static_cast<float>(head_dim))};
    if (batch.decode_rows > 0) {
      kernels.decode_attention(
          stream, {attention, packed_at<DecodeRow>(batch.decode_rows_at), working_.partial.as<float>(),
                   working_.partial_stats.as<float>(), static_cast<int>(batch.decode_rows), static_cast<int>(splits)});
    }
    if (batch.tiles > 0) {
      kernels.prefill_attention(stream, {attention, packed_at<PrefillTile>(batch.tiles_at), static_cast<int>(batch.tiles)});
    }
  }

  // mlp_in (rows) -> activated (rows, width)
  void activate(std::int64_t rows, std::int64_t width, const float* bias) {
    const Activate work{working_.mlp_in.get(), working_.activated.get(), static_cast<int>(rows), static_cast<int>(width), bias};
    if (config_.activation == Activation::kSwiGlu) {
      device_->kernels().swiglu(device_->handle(kCompute), work);
    } else {
      device_->kernels().relu(device_->handle(kCompute), work);
    }
  }

  // residual += the weighted sum of each token's experts applied to `normed`, summed over all ranks.
  void add_experts(const DeviceLayer& layer, const std::int32_t* slots, int tokens) {
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    const auto hidden = static_cast<int>(config_.hidden_size);
    const auto experts = static_cast<int>(config_.experts);
    const auto each = static_cast<int>(config_.experts_per_token);
    const auto width = static_cast<int>(config_.expert_intermediate_size);
    const auto in = static_cast<int>(config_.mlp_in_size(width));
    const std::int64_t most = sizes_.rows * each;
    auto* const begins = working_.entry_numbers.as<std::int32_t>();
    std::int32_t* const chosen = begins + experts + 1;
    const ExpertEntries entries{begins, chosen + most, chosen + 2 * most, reinterpret_cast<float*>(chosen + 3 * most)};
    kernels.route_tokens(stream, {working_.normed.get(), layer.router.as<float>(), slots, working_.router_logits.as<float>(),
                                  chosen, entries, tokens, hidden, experts, each, config_.normalise_expert_weights});
    const bool fp8 = options_.weights == WeightFormat::kFp8;
    kernels.multiply_experts(stream,
                             {working_.normed.get(), entries.rows, layer.mlp_in.numbers.get(), layer.mlp_in.scales.as<float>(),
                              working_.mlp_in.get(), begins, tokens, each, experts, hidden, in, fp8, false});
    activate(std::int64_t{tokens} * each, width, nullptr);
    kernels.multiply_experts(stream,
                             {working_.activated.get(), nullptr, layer.mlp_out.numbers.get(), layer.mlp_out.scales.as<float>(),
                              working_.entry_rows.get(), begins, tokens, each, experts, width, hidden, fp8, true});
    kernels.add_experts(stream, {working_.entry_rows.as<float>(), entries.places, entries.weights,
                                 working_.residual.as<float>(), tokens, each, hidden, slice_.rank == 0});
    device_->all_reduce(working_.residual.as<float>(), std::int64_t{tokens} * hidden);
  }

  // If norms come after each part (and `rows` is null), the normalised rows replace residual.
  void norm(const DeviceNorm& weights, const float* bias, const std::int32_t* rows, int count, const OnDevice& out) {
    assert(rows == nullptr || !config_.norm_after);
    device_->kernels().norm_rows(
        device_->handle(kCompute),
        {working_.residual.as<float>(), bias, weights.weight.as<float>(), weights.shift.as<float>(), rows, out.get(), count,
         static_cast<int>(config_.hidden_size), static_cast<float>(config_.norm_eps), config_.norm_after});
  }
  void round(const OnDevice& x, const std::int32_t* rows, int count, std::int64_t width, const OnDevice& out) {
    device_->kernels().round_rows(device_->handle(kCompute), {x.as<float>(), rows, out.get(), count, static_cast<int>(width)});
  }
  void multiply(const OnDevice& x, const DeviceMatrix& w, const OnDevice& y, std::int64_t rows, std::int64_t in,
                std::int64_t out) {
    multiply({x.get(), nullptr, y.get(), rows, in, out}, w);
  }
  // `work` without its w.
  void multiply(Gemm work, const DeviceMatrix& w) {
    work.w = w.numbers.get();
    if (w.scales.get() == nullptr) return device_->gemm(work);
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    const bool fp8 = options_.weights == WeightFormat::kFp8;
    const auto* const codes = w.numbers.as<std::uint8_t>();
    const auto* const scales = w.scales.as<float>();
    const auto in = static_cast<int>(work.in);
    if (kernels.multiply_few(stream, {work.x, codes, scales, work.y, static_cast<int>(work.rows), in,
                                      static_cast<int>(work.out), fp8, work.float_out, work.accumulate})) {
      return;
    }
    const std::int64_t element = work.float_out ? static_cast<std::int64_t>(sizeof(float)) : bytes_of(device_->precision());
    if (options_.fp8_activations && work.in % 16 == 0 && work.out % 16 == 0) return multiply_fp8(work, w, element);
    Gemm part = work;
    part.w = working_.unpacked.get();
    part.y_stride = work.out;
    const std::int64_t most = unpacked_rows(work.out, work.in, options_.max_unpacked);
    for (std::int64_t first = 0; first < work.out; first += most) {
      part.out = std::min(most, work.out - first);
      part.y = static_cast<std::byte*>(work.y) + first * element;
      kernels.unpack_rows(
          stream, {codes + first * work.in, scales + first, working_.unpacked.get(), static_cast<int>(part.out), in, fp8});
      device_->gemm(part);
    }
  }
  // The same with x in FP8, too. `element`: bytes per element of y.
  void multiply_fp8(const Gemm& work, const DeviceMatrix& w, std::int64_t element) {
    const Kernels& kernels = device_->kernels();
    const StreamHandle stream = device_->handle(kCompute);
    auto* const x = working_.activations.as<std::uint8_t>();
    auto* const row_scales = working_.row_scales.as<float>();
    auto* const products = working_.fp8_products.as<float>();
    const auto rows = static_cast<int>(work.rows);
    kernels.quantise_rows(stream, {work.x, x, row_scales, rows, static_cast<int>(work.in)});
    const std::int64_t most = unpacked_rows(work.out, work.rows, options_.max_unpacked);
    for (std::int64_t first = 0; first < work.out; first += most) {
      Gemm part{
          x, w.numbers.as<std::uint8_t>() + first * work.in, products, work.rows, work.in, std::min(most, work.out - first)};
      part.float_out = part.fp8 = true;
      device_->gemm(part);
      kernels.scale_products(
          stream, {products, row_scales, w.scales.as<float>() + first, static_cast<std::byte*>(work.y) + first * element, rows,
                   static_cast<int>(part.out), static_cast<int>(work.out), work.float_out, work.accumulate});
    }
  }
  // residual += x * w^T, summed over all ranks in FP32: no sum is rounded to the precision on its way through the layers. Rank
  // 0 adds its product to the residual stream, the others replace theirs with their product, so the sum over all ranks is the
  // new stream.
  void add_product(const OnDevice& x, const DeviceMatrix& w, std::int64_t rows, std::int64_t in) {
    Gemm work{x.get(), nullptr, working_.residual.get(), rows, in, config_.hidden_size};
    work.float_out = true;
    work.accumulate = slice_.rank == 0;
    multiply(work, w);
    device_->all_reduce(working_.residual.as<float>(), rows * config_.hidden_size);
  }

  [[nodiscard]] void* of_layer(const OnDevice& cache, std::int64_t layer) const {
    return cache.as<std::byte>() + layer * cache_layer_elements_ * bytes_of(device_->precision());
  }
  [[nodiscard]] void* keys_of(std::int64_t layer) const { return of_layer(keys_, layer); }
  [[nodiscard]] void* values_of(std::int64_t layer) const { return of_layer(values_, layer); }

  // Calls move(first token of the piece, floats, work) for each piece of the range.
  template <typename Move>
  void copy_kv(const KvRange& range, std::span<const std::int32_t> blocks, const Move& move) const {
    const std::lock_guard lock(transfer_mutex_);
    for (std::int64_t first = 0; first < range.tokens; first += kKvCopyTokens) {
      const std::int64_t tokens = std::min(kKvCopyTokens, range.tokens - first);
      auto* slots = copies_.host_slots.as<std::int32_t>();
      for (std::int64_t t = 0; t < tokens; ++t) slots[t] = slot_of(blocks, range.start + first + t);
      device_->upload(kTransfer, copies_.slots.get(), slots, tokens * static_cast<std::int64_t>(sizeof(std::int32_t)));
      move(first, tokens * kv_shape().values,
           {copies_.slots.as<std::int32_t>(), keys_of(range.layer), values_of(range.layer), copies_.plain.as<float>(),
            static_cast<int>(tokens), static_cast<int>(config_.kv_heads), static_cast<int>(config_.head_dim),
            static_cast<int>(padded_dim_of(config_.head_dim))});
    }
  }

  [[nodiscard]] bool begins() const { return blocks_.first == 0; }
  [[nodiscard]] bool ends() const { return blocks_.end == config_.layers; }

  // Number of vocabulary ids at this rank.
  [[nodiscard]] std::int64_t vocab_part() const { return slice_.size(config_.vocab_size); }
  [[nodiscard]] int multiprocessors() const {
    return options_.multiprocessors > 0 ? options_.multiprocessors : device_->multiprocessors();
  }

  const TensorSlice slice_;
  const ModelConfig whole_;
  const ModelConfig config_;
  const CudaBackendOptions options_;
  const BlockRange blocks_;
  const std::function<void(const Error&)> lost_;
  const std::unique_ptr<Device> device_;  // before all its memory: destroyed last
  WorkingSizes sizes_;
  DeviceWeights weights_;
  Working working_;
  OnDevice keys_, values_;  // (layers, blocks, kv_heads, kKvBlockTokens, padded_dim)
  std::int64_t cache_layer_elements_ = 0;
  std::map<GraphKey, Graph> graphs_;
  std::vector<RowNeed> needs_;         // of the last step's rows of logits
  mutable std::mutex transfer_mutex_;  // protects the transfer stream and the following members
  KvCopies copies_;
  std::optional<RankWatch> watch_;  // only with several ranks
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelConfig& config, const WeightSource& weights,
                                                   std::unique_ptr<Device> device, const CudaBackendOptions& options,
                                                   std::function<void(const Error&)> lost) {
  auto backend = std::make_unique<CudaBackend>(config, std::move(device), options, std::move(lost));
  WINDLASS_RETURN_IF_ERROR(backend->prepare(weights));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace windlass::worker::cuda
