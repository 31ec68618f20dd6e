// KernelSet: implements Kernels for one storage type and chooses each kernel's launch grid.
#pragma once

#include <type_traits>

#include "worker/backend/cuda/kernels/decode_attention.cuh"
#include "worker/backend/cuda/kernels/eight_bits.cuh"
#include "worker/backend/cuda/kernels/elementwise.cuh"
#include "worker/backend/cuda/kernels/execution.cuh"
#include "worker/backend/cuda/kernels/experts.cuh"
#include "worker/backend/cuda/kernels/prefill_attention.cuh"
#include "worker/backend/cuda/kernels/prefill_tensor_cores.cuh"
#include "worker/backend/cuda/kernels/sampling.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr unsigned ceil_div(int amount, int by) { return static_cast<unsigned>((amount + by - 1) / by); }

#if defined(__CUDACC__)
// A failed launch is reported by the device's next wait, through cudaGetLastError().
template <typename Work>
void launch(StreamHandle stream, void (*kernel)(Work), dim3 grid, int threads, std::size_t shared_bytes, const Work& work) {
  constexpr std::size_t kWithoutAsking = 48U << 10U;
  if (shared_bytes > kWithoutAsking) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, static_cast<cudaStream_t>(stream)>>>(work);
}
#endif

template <typename T>
class KernelSet final : public Kernels {
 public:
  void embed_tokens(StreamHandle stream, const EmbedTokens& work) const override {
    launch(stream, embed_tokens_kernel<T>, dim3(static_cast<unsigned>(work.count)), kRowThreads, 0, work);
  }
  void norm_rows(StreamHandle stream, const NormRows& work) const override {
    launch(stream, work.shift == nullptr ? norm_rows_kernel<T, false> : norm_rows_kernel<T, true>,
           dim3(static_cast<unsigned>(work.count)), kRowThreads, sizeof(NormShared), work);
  }
  void round_rows(StreamHandle stream, const RoundRows& work) const override {
    const dim3 grid(static_cast<unsigned>(work.count), ceil_div(work.width, kRowThreads));
    launch(stream, round_rows_kernel<T>, grid, kRowThreads, 0, work);
  }
  void rope_store(StreamHandle stream, const RopeStore& work) const override {
    const dim3 grid(static_cast<unsigned>(work.tokens), ceil_div(work.heads + 2 * work.kv_heads, kRopeWarps));
    launch(stream, rope_store_kernel<T>, grid, kRopeThreads, 0, work);
  }
  void decode_attention(StreamHandle stream, const DecodeAttention& work) const override {
    const Attention& a = work.attention;
    if (a.padded_dim <= 64) {
      decode<64>(stream, work);
    } else if (a.padded_dim <= 128) {
      decode<128>(stream, work);
    } else {
      decode<256>(stream, work);
    }
    if (work.splits == 1) return;
    launch(stream, combine_splits_kernel<T>, dim3(static_cast<unsigned>(work.count), static_cast<unsigned>(a.heads)),
           kDecodeThreads, 0, work);
  }
  void prefill_attention(StreamHandle stream, const PrefillAttention& work) const override {
    if (work.attention.padded_dim <= 64) {
      prefill<64>(stream, work);
    } else if (work.attention.padded_dim <= 128) {
      prefill<128>(stream, work);
    } else {
      prefill<256>(stream, work);
    }
  }
  void relu(StreamHandle stream, const Activate& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.width, kRowThreads));
    launch(stream, relu_kernel<T>, grid, kRowThreads, 0, work);
  }
  void add_bias(StreamHandle stream, const AddBias& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.hidden, kRowThreads));
    launch(stream, add_bias_kernel, grid, kRowThreads, 0, work);
  }
  void swiglu(StreamHandle stream, const Activate& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.width, kSwiGluThreads * kVector<T>));
    launch(stream, swiglu_kernel<T>, grid, kSwiGluThreads, 0, work);
  }
  void summarise_logits(StreamHandle stream, const SummariseLogits& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.width, kSummarySegment));
    launch(stream, summarise_segments_kernel, grid, kSummaryThreads, sizeof(SegmentShared), work);
    launch(stream, merge_summaries_kernel, dim3(static_cast<unsigned>(work.rows)), kWarp, 0, work);
  }
  void read_kv(StreamHandle stream, const CopyKv& work) const override {
    launch(stream, copy_kv_kernel<T, true>, dim3(static_cast<unsigned>(work.tokens)), kCopyKvThreads, 0, work);
  }
  void write_kv(StreamHandle stream, const CopyKv& work) const override {
    launch(stream, copy_kv_kernel<T, false>, dim3(static_cast<unsigned>(work.tokens)), kCopyKvThreads, 0, work);
  }
  void unpack_rows(StreamHandle stream, const UnpackRows& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.in, kUnpackThreads * kCodes));
    launch(stream, work.fp8 ? unpack_rows_kernel<T, true> : unpack_rows_kernel<T, false>, grid, kUnpackThreads, 0, work);
  }
  void quantise_rows(StreamHandle stream, const QuantiseRows& work) const override {
    launch(stream, quantise_rows_kernel<T>, dim3(static_cast<unsigned>(work.rows)), kUnpackThreads, sizeof(QuantiseShared),
           work);
  }
  void scale_products(StreamHandle stream, const ScaleProducts& work) const override {
    const dim3 grid(static_cast<unsigned>(work.rows), ceil_div(work.out, kUnpackThreads * kScaled));
    launch(stream, scale_products_kernel<T>, grid, kUnpackThreads, 0, work);
  }
  [[nodiscard]] bool multiply_few(StreamHandle stream, const MultiplyFew& work) const override {
    if (!std::is_same_v<T, Bf16> || work.rows > kMaxFewRows || work.in % kCodes != 0) return false;
    with_tiles(work.rows, [&](auto tiles) {
      constexpr int kTiles = decltype(tiles)::value;
      launch(stream, work.fp8 ? multiply_few_kernel<kTiles, Stored::kFp8> : multiply_few_kernel<kTiles, Stored::kInt8>,
             dim3(ceil_div(work.out, kFewChannels)), kFewThreads, sizeof(FewShared<kTiles>), work);
    });
    return true;
  }
  void route_tokens(StreamHandle stream, const RouteTokens& work) const override {
    launch(stream, router_logits_kernel<T>, dim3(ceil_div(work.tokens, kRouterTokens), ceil_div(work.experts, kRowWarps)),
           kRowThreads, 0, work);
    launch(stream, choose_experts_kernel, dim3(ceil_div(work.tokens, kRowWarps)), kRowThreads, 0, work);
    launch(stream, list_entries_kernel, dim3(static_cast<unsigned>(work.experts)), kRowThreads, sizeof(EntriesShared), work);
  }
  void multiply_experts(StreamHandle stream, const MultiplyExperts& work) const override {
    if (work.scales == nullptr) {
      multiply_stored<Stored::kPlain>(stream, work);
    } else if (work.fp8) {
      multiply_stored<Stored::kFp8>(stream, work);
    } else {
      multiply_stored<Stored::kInt8>(stream, work);
    }
  }
  void add_experts(StreamHandle stream, const AddExperts& work) const override {
    const dim3 grid(static_cast<unsigned>(work.tokens), ceil_div(work.hidden, kRowThreads));
    launch(stream, add_experts_kernel, grid, kRowThreads, 0, work);
  }

 private:
  // Calls work() with enough tiles of 8 rows for this many rows: one of a few compiled sizes.
  template <typename Work>
  static void with_tiles(int rows, const Work& work) {
    static_assert(kMaxFewRows == 8 * 8);
    if (rows <= 8) {
      work(std::integral_constant<int, 1>());
    } else if (rows <= 16) {
      work(std::integral_constant<int, 2>());
    } else if (rows <= 32) {
      work(std::integral_constant<int, 4>());
    } else {
      work(std::integral_constant<int, 8>());
    }
  }
  template <Stored stored>
  void multiply_stored(StreamHandle stream, const MultiplyExperts& work) const {
    const auto experts = static_cast<unsigned>(work.experts);
    if constexpr (std::is_same_v<T, Bf16>) {
      if (work.in % kCodes == 0 && work.tokens <= kMaxFewRows) {
        with_tiles(work.tokens, [&](auto tiles) {
          constexpr int kTiles = decltype(tiles)::value;
          launch(stream, multiply_experts_few_kernel<kTiles, stored>, dim3(ceil_div(work.out, kFewChannels), experts),
                 kFewThreads, sizeof(FewShared<kTiles>), work);
        });
        return;
      }
      if (work.in % kCodes == 0) {
        launch(stream, multiply_experts_tiles_kernel<stored>,
               dim3(ceil_div(work.out, kTileChannels), experts, blocks_of_expert(work, kTileEntries)), kTileThreads,
               sizeof(TileShared), work);
        return;
      }
    }
    launch(stream, multiply_experts_kernel<T, stored>,
           dim3(ceil_div(work.out, kPlainChannels), experts, blocks_of_expert(work, kPlainEntries)), kPlainThreads,
           sizeof(PlainShared), work);
  }
  // Thread blocks per expert. Enough for twice the average number of entries, so that a popular expert does not delay the
  // others for long, but at most for the whole batch.
  static unsigned blocks_of_expert(const MultiplyExperts& work, int tile) {
    const unsigned most = ceil_div(work.tokens, tile);
    const unsigned fair = ceil_div(2 * ((work.tokens * work.each + work.experts - 1) / work.experts), tile);
    return fair < most ? fair : most;
  }
  template <int kDims>
  void decode(StreamHandle stream, const DecodeAttention& work) const {
    const Attention& a = work.attention;
    const dim3 grid(static_cast<unsigned>(work.count),
                    static_cast<unsigned>(a.kv_heads) * ceil_div(a.heads / a.kv_heads, kDecodeHeads),
                    static_cast<unsigned>(work.splits));
    launch(stream, decode_attention_kernel<T, kDims>, grid, kDecodeThreads, sizeof(DecodeShared<kDims>), work);
  }
  template <int kDims>
  void prefill(StreamHandle stream, const PrefillAttention& work) const {
    const dim3 grid(static_cast<unsigned>(work.count), static_cast<unsigned>(work.attention.heads));
    if constexpr (std::is_same_v<T, Bf16> && kDims <= 128) {
      launch(stream, prefill_tensor_cores_kernel<kDims>, grid, kTensorThreads, sizeof(TensorShared<kDims>), work);
    } else {
      launch(stream, prefill_attention_kernel<T, kDims>, grid, kPrefillThreads, sizeof(PrefillShared<kDims>), work);
    }
  }
};

}  // namespace
}  // namespace windlass::worker::cuda
