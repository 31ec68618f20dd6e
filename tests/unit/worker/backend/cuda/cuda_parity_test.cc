// Each CUDA operation against its CPU twin, in FP32 and BF16: the real kernel code in the emulation, with several orders of
// threads, and on a GPU if there is one; otherwise those cases skip and say why. Inputs are exact in the precision, so only the
// order of sums and, in BF16, the rounding of results differ.
#include <cmath>
#include <numeric>
#include <tuple>

#include "tests/unit/worker/cuda_devices.h"
#include "tests/unit/worker/cuda_summaries.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cpu/experts.h"
#include "worker/backend/cpu/kv_cache.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/quantised.h"

namespace windlass::worker {
namespace {

using cuda::OnDevice;

class CudaParity : public testing::OnCudaDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaParity, ::testing::ValuesIn(testing::cuda_cases()), testing::case_name);

// Given random matrices of uneven sizes; expects the CPU's products within 1e-4, for sums of up to 700 products below 1: as the
// storage type, as floats, and added to existing values.
TEST_P(CudaParity, Gemm) {
  Rng rng(21, "cuda gemm");
  for (const auto& [rows, in, out] :
       shared_out(std::vector{std::tuple{1, 64, 96}, std::tuple{7, 33, 129}, std::tuple{64, 688, 256}})) {
    const auto x = random(rng, rows * in);
    const auto w = random(rng, out * in);
    const auto before = random(rng, rows * out);
    std::vector<float> expected(before.size());
    cpu::matmul_by_dots(x.data(), w.data(), expected.data(), rows, in, out);
    const OnDevice on_x = put(x), on_w = put(w), on_y = zeros(rows * out), on_float = put_plain(before);
    cuda::Gemm gemm{on_x.get(), on_w.get(), on_y.get(), rows, in, out};
    device_->gemm(gemm);
    expect_near(get(on_y, rows * out), expected, 1e-4);
    gemm.y = on_float.get();
    gemm.float_out = true;
    gemm.accumulate = true;
    device_->gemm(gemm);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    expect_near(get_floats(on_float, rows * out), expected, 1e-4);
  }
}

// Given tokens; expects their rows of the embedding, and zeros for ids outside this part of the vocabulary.
TEST_P(CudaParity, EmbedTokens) {
  Rng rng(22, "cuda embed");
  const int hidden = 37, vocab = 11;
  const auto embedding = random(rng, vocab * hidden);
  const std::vector<std::int32_t> tokens{3, 10, 0, 3};
  const OnDevice on_tokens = put_plain(tokens), out = put_plain(std::vector<float>(4 * hidden));
  for (const int first : {0, 3, 4}) {
    const int end = first == 0 ? vocab : 10;
    const OnDevice part = put(std::vector<float>(embedding.begin() + first * hidden, embedding.begin() + end * hidden));
    kernels().embed_tokens(
        stream(), {on_tokens.as<std::int32_t>(), part.get(), out.as<float>(), 4, hidden, first, end, nullptr, nullptr});
    const auto found = get_floats(out, 4 * hidden);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const bool here = tokens[t] >= first && tokens[t] < end;
      for (int i = 0; i < hidden; ++i) {
        EXPECT_EQ(found[t * hidden + static_cast<std::size_t>(i)],
                  here ? embedding[static_cast<std::size_t>(tokens[t] * hidden + i)] : 0);
      }
    }
  }
}

// Given random rows of widths around and above a block's threads, with a bias; expects the norm of the sum within 1e-5, and the
// sum stored. Given row indices instead; expects the norms of those rows, which do not change.
TEST_P(CudaParity, RmsNorm) {
  Rng rng(23, "cuda rms_norm");
  for (const auto& [rows, hidden] : {std::pair{1, 8}, std::pair{3, 255}, std::pair{4, 256}, std::pair{2, 2311}}) {
    auto residual = random(rng, rows * hidden);
    const auto bias = random(rng, hidden), weight = random(rng, hidden);
    const OnDevice on_residual = put_plain(residual), on_bias = put_plain(bias), on_weight = put_plain(weight),
                   out = zeros(rows * hidden);
    std::vector<float> expected(residual.size());
    cuda::NormRows norm{
        on_residual.as<float>(), on_bias.as<float>(), on_weight.as<float>(), nullptr, nullptr, out.get(), rows, hidden, 1e-5F};
    kernels().norm_rows(stream(), norm);
    cpu::add_bias(bias.data(), residual.data(), rows, hidden);
    cpu::rms_norm(residual.data(), weight.data(), expected.data(), rows, hidden, 1e-5F);
    expect_near(get(out, rows * hidden), expected, 1e-5);
    EXPECT_EQ(get_floats(on_residual, rows * hidden), residual);

    const OnDevice index = put_plain(std::vector<std::int32_t>{rows - 1});
    norm.bias = nullptr;
    norm.rows = index.as<std::int32_t>();
    norm.count = 1;
    kernels().norm_rows(stream(), norm);
    expect_near(get(out, hidden), {expected.end() - hidden, expected.end()}, 1e-5);
    EXPECT_EQ(get_floats(on_residual, rows * hidden), residual);
  }
}

// Given rows of widths around and above a block's threads, far from 0, with a bias; expects the CPU's LayerNorm of the sum
// within 1e-4, the accuracy of differences of numbers near 100, and the sum stored.
TEST_P(CudaParity, LayerNorm) {
  Rng rng(32, "cuda layer norm");
  for (const auto& [rows, hidden] : {std::pair{1, 8}, std::pair{3, 255}, std::pair{2, 2311}}) {
    auto residual = random(rng, rows * hidden);
    for (float& each : residual) each += 100;
    const auto bias = random(rng, hidden), weight = random(rng, hidden), shift = random(rng, hidden);
    const OnDevice on_residual = put_plain(residual), on_bias = put_plain(bias), on_weight = put_plain(weight),
                   on_shift = put_plain(shift), out = zeros(rows * hidden);
    std::vector<float> expected(residual.size());
    kernels().norm_rows(stream(), {on_residual.as<float>(), on_bias.as<float>(), on_weight.as<float>(), on_shift.as<float>(),
                                   nullptr, out.get(), rows, hidden, 1e-5F});
    cpu::add_bias(bias.data(), residual.data(), rows, hidden);
    cpu::layer_norm(residual.data(), weight.data(), shift.data(), expected.data(), rows, hidden, 1e-5F);
    expect_near(get(out, rows * hidden), expected, 1e-4);
    EXPECT_EQ(get_floats(on_residual, rows * hidden), residual);
  }
}

// Given a norm in place; expects the unrounded result in place of the sum. Given rows of it; expects each row, rounded.
TEST_P(CudaParity, NormsInPlaceAndRoundedRows) {
  Rng rng(34, "cuda norm in place");
  const int rows = 3, hidden = 301;
  auto residual = random(rng, rows * hidden);
  const auto bias = random(rng, hidden), weight = random(rng, hidden), shift = random(rng, hidden);
  const std::vector<std::int32_t> which{2, 0};
  const OnDevice on_residual = put_plain(residual), on_bias = put_plain(bias), on_weight = put_plain(weight),
                 on_shift = put_plain(shift), on_which = put_plain(which), out = zeros(rows * hidden), some = zeros(2 * hidden);
  cuda::NormRows work{on_residual.as<float>(),
                      on_bias.as<float>(),
                      on_weight.as<float>(),
                      on_shift.as<float>(),
                      nullptr,
                      out.get(),
                      rows,
                      hidden,
                      1e-5F};
  work.in_place = true;
  kernels().norm_rows(stream(), work);
  cpu::add_bias(bias.data(), residual.data(), rows, hidden);
  std::vector<float> expected(residual.size());
  cpu::layer_norm(residual.data(), weight.data(), shift.data(), expected.data(), rows, hidden, 1e-5F);
  const std::vector<float> normed = get_floats(on_residual, rows * hidden);
  for (std::size_t i = 0; i < normed.size(); ++i) ASSERT_NEAR(normed[i], expected[i], 1e-5) << i;
  expect_near(get(out, rows * hidden), normed, 0);
  kernels().round_rows(stream(), {on_residual.as<float>(), on_which.as<std::int32_t>(), some.get(), 2, hidden});
  const std::vector<float> all = get(out, rows * hidden), found = get(some, 2 * hidden);
  for (std::size_t row = 0; row < which.size(); ++row) {
    const auto from = all.begin() + which[row] * hidden;
    EXPECT_TRUE(std::equal(from, from + hidden, found.begin() + static_cast<std::ptrdiff_t>(row) * hidden)) << row;
  }
}

// Given learned positions; expects each token's embedding plus its position's row, even if another rank has its id, and a bias
// added to each row.
TEST_P(CudaParity, LearnedPositionsAndBias) {
  Rng rng(33, "cuda positions");
  const int hidden = 261, vocab = 7;
  const auto embedding = random(rng, vocab * hidden), learned = random(rng, 5 * hidden), bias = random(rng, hidden);
  const std::vector<std::int32_t> tokens{6, 2, 3}, positions{4, 0, 3};
  const OnDevice on_tokens = put_plain(tokens), on_positions = put_plain(positions), on_learned = put_plain(learned),
                 part = put(std::vector<float>(embedding.begin() + 3 * hidden, embedding.end())), on_bias = put_plain(bias),
                 out = put_plain(std::vector<float>(3 * hidden));
  kernels().embed_tokens(stream(), {on_tokens.as<std::int32_t>(), part.get(), out.as<float>(), 3, hidden, 3, vocab,
                                    on_positions.as<std::int32_t>(), on_learned.as<float>()});
  kernels().add_bias(stream(), {out.as<float>(), on_bias.as<float>(), 3, hidden});
  const auto found = get_floats(out, 3 * hidden);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (int i = 0; i < hidden; ++i) {
      const float token = tokens[t] < 3 ? 0 : embedding[static_cast<std::size_t>(tokens[t] * hidden + i)];
      const float with_position = token + learned[static_cast<std::size_t>(positions[t] * hidden + i)];
      EXPECT_EQ(found[t * hidden + static_cast<std::size_t>(i)], with_position + bias[static_cast<std::size_t>(i)]);
    }
  }
}

// Given values with and without a bias, of widths that are and are not multiples of a block's threads; expects the CPU's relu.
TEST_P(CudaParity, Relu) {
  Rng rng(34, "cuda relu");
  for (const int width : {7, 256, 700}) {
    const auto values = random(rng, 3 * width), bias = random(rng, width);
    const OnDevice in = put(values), on_bias = put_plain(bias), out = zeros(3 * width);
    for (const bool biased : {false, true}) {
      auto expected = values;
      if (biased) cpu::add_bias(bias.data(), expected.data(), 3, width);
      cpu::relu(expected.data(), 3, width);
      kernels().relu(stream(), {in.get(), out.get(), 3, width, biased ? on_bias.as<float>() : nullptr});
      expect_near(get(out, 3 * width), expected, 0);
    }
  }
}

// Given gates and values of widths that are and are not multiples of what a thread reads at once; expects silu(gate) * up
// within 1e-5.
TEST_P(CudaParity, SwiGlu) {
  Rng rng(24, "cuda swiglu");
  for (const auto& [rows, width] : {std::pair{1, 8}, std::pair{3, 13}, std::pair{2, 2056}}) {
    auto gate_up = random(rng, rows * 2 * width);
    const auto bias = random(rng, 2 * width);
    std::vector<float> expected(static_cast<std::size_t>(rows * width));
    const OnDevice in = put(gate_up), on_bias = put_plain(bias), out = zeros(rows * width);
    cpu::swiglu(gate_up.data(), expected.data(), rows, width);
    kernels().swiglu(stream(), {in.get(), out.get(), rows, width, nullptr});
    expect_near(get(out, rows * width), expected, 1e-5);
    cpu::add_bias(bias.data(), gate_up.data(), rows, 2 * width);
    cpu::swiglu(gate_up.data(), expected.data(), rows, width);
    kernels().swiglu(stream(), {in.get(), out.get(), rows, width, on_bias.as<float>()});
    expect_near(get(out, rows * width), expected, 1e-5);
  }
}

// Given random 8-bit matrices of widths that are and are not multiples of what a thread reads at once; expects unpacked rows to
// be the codes' numbers, and the product of few rows to match within 1e-4, as the storage type, as floats and added to existing
// values.
TEST_P(CudaParity, EightBits) {
  Rng rng(31, "cuda eight bits");
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFp8}) {
    for (const auto& [rows, in, out] :
         shared_out(std::vector{std::tuple{1, 16, 3}, std::tuple{9, 528, 33}, std::tuple{20, 64, 96}, std::tuple{64, 720, 40},
                                std::tuple{3, 37, 5}, std::tuple{65, 32, 8}})) {
      SCOPED_TRACE(fmt::format("{} {} x {} x {}", to_string(format), rows, in, out));
      WeightMatrix w;
      w.format = format;
      for (int channel = 0; channel < out; ++channel) {
        const std::vector<float> row = random(rng, in);
        ASSERT_TRUE(append_row(w, row, 0, in));
      }
      std::vector<float> plain(static_cast<std::size_t>(out * in));
      for (int channel = 0; channel < out; ++channel) cpu::dequantise(w, in, channel, 0, in, plain.data() + channel * in);
      const OnDevice codes = put_plain(w.codes), scales = put_plain(w.scales), unpacked = zeros(out * in);
      const bool fp8 = format == WeightFormat::kFp8;
      kernels().unpack_rows(stream(), {codes.as<std::uint8_t>(), scales.as<float>(), unpacked.get(), out, in, fp8});
      expect_near(get(unpacked, out * in), plain, 1e-7);

      const auto x = random(rng, rows * in), before = random(rng, rows * out);
      std::vector<float> expected(before.size());
      cpu::matmul_by_dots(x.data(), plain.data(), expected.data(), rows, in, out);
      const OnDevice on_x = put(x), y = zeros(rows * out), on_float = put_plain(before);
      cuda::MultiplyFew product{on_x.get(), codes.as<std::uint8_t>(), scales.as<float>(), y.get(), rows, in, out, fp8, false,
                                false};
      const bool possible = bf16() && rows <= cuda::kMaxFewRows && in % 16 == 0;
      EXPECT_EQ(kernels().multiply_few(stream(), product), possible);
      if (!possible) continue;
      expect_near(get(y, rows * out), expected, 1e-4);
      product.y = on_float.get();
      product.float_out = true;
      for (const bool accumulate : {false, true}) {
        product.accumulate = accumulate;
        EXPECT_TRUE(kernels().multiply_few(stream(), product));
        const std::vector<float> found = get_floats(on_float, rows * out);
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i] * (accumulate ? 2 : 1), 2e-4);
      }
    }
  }
}

// Given rows of activations, one of zeros and one with a NaN; expects the FP8 codes and scales that weights would get, and
// scaled products of codes within 1e-4 of those of the numbers, as the storage type, as floats and added to existing values.
// NaN gives NaN.
TEST_P(CudaParity, ProductsOfFp8) {
  if (!device_->multiplies_fp8()) return;  // this GPU has none, and the backend refuses them: CudaBackendInBf16.Fp8Activations
  Rng rng(33, "cuda fp8");
  for (const auto& [rows, in, out] :
       shared_out(std::vector{std::tuple{3, 16, 16}, std::tuple{70, 272, 1040}, std::tuple{9, 4112, 32}})) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", rows, in, out));
    std::vector<float> x = random(rng, rows * in);
    for (float& value : x) value *= bf16() ? 0x1p-6F : 0.01F;
    std::fill_n(x.begin() + in, in, 0.0F);
    const auto encoded = [](const std::vector<float>& values, int columns) {
      return testing::weight_matrix(values, columns, WeightFormat::kFp8);
    };
    const auto numbers_of = [](const WeightMatrix& matrix, int columns) {
      std::vector<float> numbers(matrix.codes.size());
      const auto count = static_cast<std::int64_t>(matrix.scales.size());
      for (std::int64_t row = 0; row < count; ++row)
        cpu::dequantise(matrix, columns, row, 0, columns, numbers.data() + row * columns);
      return numbers;
    };
    const WeightMatrix x_there = encoded(x, in), w = encoded(random(rng, out * in), in);
    x.back() = std::nanf("");
    const OnDevice on_x = put(x), codes = put_plain(std::vector<std::uint8_t>(x.size(), 0xFF)),
                   row_scales = put_plain(std::vector<float>(static_cast<std::size_t>(rows), 7)), w_codes = put_plain(w.codes),
                   w_scales = put_plain(w.scales);
    kernels().quantise_rows(stream(), {on_x.get(), codes.as<std::uint8_t>(), row_scales.as<float>(), rows, in});
    auto found_codes = get_plain<std::uint8_t>(codes, rows * in);
    EXPECT_EQ(found_codes.back() & 0x7F, 0x7F);
    found_codes.back() = x_there.codes.back();
    EXPECT_EQ(found_codes, x_there.codes);
    EXPECT_EQ(get_floats(row_scales, rows), x_there.scales);

    const auto before = random(rng, rows * out);
    std::vector<float> expected(before.size());
    cpu::matmul_by_dots(numbers_of(x_there, in).data(), numbers_of(w, in).data(), expected.data(), rows, in, out);
    const OnDevice products = put_plain(before), y = zeros(rows * out), on_float = put_plain(before);
    cuda::Gemm gemm{codes.get(), w_codes.get(), products.get(), rows, in, out};
    gemm.float_out = gemm.fp8 = true;
    device_->gemm(gemm);
    cuda::ScaleProducts scale{
        products.as<float>(), row_scales.as<float>(), w_scales.as<float>(), y.get(), rows, out, out, false, false};
    kernels().scale_products(stream(), scale);
    const auto rounded = get(y, rows * out);
    const auto good = static_cast<std::size_t>((rows - 1) * out);  // the last row contains a NaN
    expect_near({rounded.begin(), rounded.begin() + static_cast<std::ptrdiff_t>(good)},
                {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(good)}, 1e-4);
    scale.y = on_float.get();
    scale.float_out = true;
    for (const bool accumulate : {true, false}) {
      scale.accumulate = accumulate;
      kernels().scale_products(stream(), scale);
      const auto found = get_floats(on_float, rows * out);
      for (std::size_t i = 0; i < good; ++i) ASSERT_NEAR(found[i], expected[i] + (accumulate ? before[i] : 0), 1e-4) << i;
      EXPECT_TRUE(std::isnan(found.back()));
    }
  }
}

// A layer with experts whose numbers are exact in the precision. Some tokens have no slot, the first two experts are equal, and
// one has NaN router logits where it is never chosen.
class CudaExperts : public testing::OnCudaDevice {
 protected:
  struct Shape {
    int tokens, hidden, width, experts, each;
    bool normalise;
  };

  void make(Rng& rng, const Shape& shape, WeightFormat format) {
    shape_ = shape;
    format_ = format;
    config_ = {};
    config_.hidden_size = shape.hidden;
    config_.experts = shape.experts;
    config_.experts_per_token = shape.each;
    config_.normalise_expert_weights = shape.normalise;
    x_ = random(rng, shape.tokens * shape.hidden);
    router_ = random(rng, shape.experts * shape.hidden);
    if (shape.experts > 1) std::copy_n(router_.begin(), shape.hidden, router_.begin() + shape.hidden);
    if (shape.normalise && shape.each < shape.experts) router_.back() = std::numeric_limits<float>::quiet_NaN();
    slots_.clear();
    for (int token = 0; token < shape.tokens; ++token) slots_.push_back(token % 5 == 3 ? -1 : token);
  }
  [[nodiscard]] std::int64_t choices() const { return std::int64_t{shape_.tokens} * shape_.each; }

  // Computed by the device: begins, rows, places and weights.
  void route() {
    const std::vector<std::int32_t> none(static_cast<std::size_t>(choices()), -7);
    on_x_ = put(x_);
    begins_ = put_plain(std::vector<std::int32_t>(static_cast<std::size_t>(shape_.experts + 1), -7));
    rows_ = put_plain(none);
    places_ = put_plain(none);
    weights_ = put_plain(std::vector<float>(none.size(), std::nanf("")));
    const OnDevice router = put_plain(router_), slots = put_plain(slots_), chosen = put_plain(none),
                   logits = put_plain(std::vector<float>(static_cast<std::size_t>(shape_.tokens * shape_.experts)));
    kernels().route_tokens(
        stream(), {on_x_.get(),
                   router.as<float>(),
                   slots.as<std::int32_t>(),
                   logits.as<float>(),
                   chosen.as<std::int32_t>(),
                   {begins_.as<std::int32_t>(), rows_.as<std::int32_t>(), places_.as<std::int32_t>(), weights_.as<float>()},
                   shape_.tokens,
                   shape_.hidden,
                   shape_.experts,
                   shape_.each,
                   shape_.normalise});
    EXPECT_TRUE(device_->wait(kStream).ok());
  }

  // Random matrices of all experts, on the device.
  void make_matrices(Rng& rng, int out, int in) {
    plain_ = random(rng, std::int64_t{shape_.experts} * out * in);
    if (format_ == WeightFormat::kFp32) {
      w_ = put(plain_);
      scales_ = OnDevice();
      return;
    }
    WeightMatrix codes = testing::weight_matrix(plain_, in, format_);
    for (int row = 0; row < shape_.experts * out; ++row)
      cpu::dequantise(codes, in, row, 0, in, plain_.data() + std::int64_t{row} * in);
    w_ = put_plain(codes.codes);
    scales_ = put_plain(codes.scales);
  }
  // Of the input at `x`; `rows`: its row per entry.
  void expect_product(const std::vector<float>& x, const OnDevice& on_x, bool by_rows, int out, int in) {
    const auto begins = get_plain<std::int32_t>(begins_, shape_.experts + 1);
    const auto rows = get_plain<std::int32_t>(rows_, choices());
    const std::int64_t entries = begins.back();
    std::vector<float> expected(static_cast<std::size_t>(entries * out));
    for (int expert = 0; expert < shape_.experts; ++expert) {
      for (std::int64_t entry = begins[static_cast<std::size_t>(expert)]; entry < begins[static_cast<std::size_t>(expert) + 1];
           ++entry) {
        const std::int64_t row = by_rows ? rows[static_cast<std::size_t>(entry)] : entry;
        cpu::matmul_by_dots(x.data() + row * in, plain_.data() + std::int64_t{expert} * out * in, expected.data() + entry * out,
                            1, in, out);
      }
    }
    const OnDevice y = zeros(choices() * out);
    y_ = put_plain(std::vector<float>(static_cast<std::size_t>(choices() * out), 77));
    cuda::MultiplyExperts work{on_x.get(),
                               by_rows ? rows_.as<std::int32_t>() : nullptr,
                               w_.get(),
                               scales_.as<float>(),
                               y.get(),
                               begins_.as<std::int32_t>(),
                               shape_.tokens,
                               shape_.each,
                               shape_.experts,
                               in,
                               out,
                               format_ == WeightFormat::kFp8,
                               false};
    kernels().multiply_experts(stream(), work);
    expect_near(get(y, entries * out), expected, 1e-4);
    work.y = y_.get();
    work.float_out = true;
    kernels().multiply_experts(stream(), work);
    const auto found = get_floats(y_, choices() * out);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], i < expected.size() ? expected[i] : 77, 1e-4) << i;
  }

  Shape shape_{};
  WeightFormat format_ = WeightFormat::kFp32;
  ModelConfig config_;
  std::vector<float> x_, router_, plain_;
  std::vector<std::int32_t> slots_;
  OnDevice on_x_, begins_, rows_, places_, weights_, w_, scales_, y_;
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaExperts, ::testing::ValuesIn(testing::cuda_cases()), testing::case_name);

// Given one and many tokens, few experts and more than a warp has lanes; expects the CPU's experts, its weights within 1e-6,
// and entries in the order of experts and tokens. Tokens without a slot have no entries.
TEST_P(CudaExperts, TokensGoWhereTheCpuSendsThem) {
  Rng rng(41, "cuda routing");
  for (const Shape& shape : {Shape{1, 16, 0, 1, 1, true}, Shape{9, 48, 0, 6, 2, false}, Shape{40, 37, 0, 70, 32, false},
                             Shape{150, 20, 0, 3, 2, true}, Shape{70, 64, 0, 128, 8, true}, Shape{4, 8, 0, 5, 5, false}}) {
    SCOPED_TRACE(fmt::format("{} tokens, {} of {} experts", shape.tokens, shape.each, shape.experts));
    make(rng, shape, WeightFormat::kFp32);
    route();
    const auto begins = get_plain<std::int32_t>(begins_, shape.experts + 1);
    const auto rows = get_plain<std::int32_t>(rows_, choices());
    const auto places = get_plain<std::int32_t>(places_, choices());
    const auto weights = get_floats(weights_, choices());
    cpu::ExpertRouting routing;
    routing.route(config_, x_.data(), router_.data(), shape.tokens);
    std::vector<int> used(static_cast<std::size_t>(shape.tokens));  // the experts a token has used
    std::int32_t entry = 0;
    for (int expert = 0; expert < shape.experts; ++expert) {
      EXPECT_EQ(begins[static_cast<std::size_t>(expert)], entry);
      for (const auto& [token, weight] : routing.of(expert)) {
        const auto at = static_cast<std::size_t>(token * shape.each + used[static_cast<std::size_t>(token)]++);
        if (slots_[static_cast<std::size_t>(token)] < 0) {
          EXPECT_EQ(places[at], -1);
          continue;
        }
        ASSERT_EQ(rows[static_cast<std::size_t>(entry)], token) << "expert " << expert;
        ASSERT_EQ(places[at], entry++);
        EXPECT_NEAR(weights[at], weight, 1e-6);
      }
    }
    EXPECT_EQ(begins.back(), entry);
  }
}

// Given matrices of each format, of widths that tensor cores support and others, and one, some, and more than one tile of
// tokens per expert; expects the CPU's products within 1e-4, no writes outside the experts' entries, and a token's experts
// summed with their weights.
TEST_P(CudaExperts, ProductsAndTheirSums) {
  Rng rng(42, "cuda experts");
  for (const WeightFormat format : {WeightFormat::kFp32, WeightFormat::kInt8, WeightFormat::kFp8}) {
    for (const Shape& shape :
         shared_out(std::vector{Shape{1, 16, 32, 2, 1, true}, Shape{9, 48, 36, 6, 2, false}, Shape{30, 80, 16, 9, 3, true},
                                Shape{230, 144, 48, 3, 2, true}, Shape{70, 33, 20, 5, 3, false}})) {
      SCOPED_TRACE(fmt::format("{}, {} tokens, {} x {}, {} of {} experts", to_string(format), shape.tokens, shape.hidden,
                               shape.width, shape.each, shape.experts));
      make(rng, shape, format);
      route();
      make_matrices(rng, 2 * shape.width, shape.hidden);
      ASSERT_NO_FATAL_FAILURE(expect_product(x_, on_x_, true, 2 * shape.width, shape.hidden));
      const auto activated = random(rng, choices() * shape.width);
      make_matrices(rng, shape.hidden, shape.width);
      ASSERT_NO_FATAL_FAILURE(expect_product(activated, put(activated), false, shape.hidden, shape.width));

      const auto y = get_floats(y_, choices() * shape.hidden), weights = get_floats(weights_, choices()),
                 before = random(rng, shape.tokens * shape.hidden);
      const auto places = get_plain<std::int32_t>(places_, choices());
      for (const bool accumulate : {false, true}) {
        std::vector<float> expected = accumulate ? before : std::vector<float>(before.size());
        for (std::int64_t choice = 0; choice < choices(); ++choice) {
          const std::int64_t entry = places[static_cast<std::size_t>(choice)];
          for (std::int64_t i = 0; entry >= 0 && i < shape.hidden; ++i) {
            expected[static_cast<std::size_t>(choice / shape.each * shape.hidden + i)] +=
                weights[static_cast<std::size_t>(choice)] * y[static_cast<std::size_t>(entry * shape.hidden + i)];
          }
        }
        const OnDevice residual = put_plain(before);
        kernels().add_experts(stream(), {y_.as<float>(), places_.as<std::int32_t>(), weights_.as<float>(), residual.as<float>(),
                                         shape.tokens, shape.each, shape.hidden, accumulate});
        const auto found = get_floats(residual, shape.tokens * shape.hidden);
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
      }
    }
  }
}

// Given rows of logits of widths around a segment, many equal and some not finite (all in one row); expects for each row that
// needs a summary the one computed by sorting, with exactly its tokens and sums within 1e-5, and the others unchanged.
TEST_P(CudaParity, SummariseLogits) {
  Rng rng(29, "cuda summaries");
  const std::vector<RowNeed> needs{{1, 1}, {0, 1}, {64, 0.5F}, {7, 30}, {20, 1}};
  const auto rows = static_cast<std::int64_t>(needs.size());
  for (const int width : shared_out(std::vector{1, 37, 255, 4096, 4097, 8500})) {
    auto logits = testing::random_logits(rng, rows * width);
    std::fill(logits.end() - width, logits.end(), std::numeric_limits<float>::quiet_NaN());
    const int segments = (width + cuda::kSummarySegment - 1) / cuda::kSummarySegment;
    const LogitSummary untouched{-1};
    const OnDevice on_logits = put_plain(logits), on_needs = put_plain(needs),
                   parts = put_plain(std::vector<LogitSummary>(static_cast<std::size_t>(rows * segments), untouched)),
                   out = put_plain(std::vector<LogitSummary>(needs.size(), untouched));
    kernels().summarise_logits(stream(), {on_logits.as<float>(), on_needs.as<RowNeed>(), parts.as<LogitSummary>(),
                                          out.as<LogitSummary>(), static_cast<int>(rows), width, 1000});
    const auto found = get_plain<LogitSummary>(out, rows);
    for (std::size_t row = 0; row < needs.size(); ++row) {
      SCOPED_TRACE(fmt::format("width {}, row {}", width, row));
      if (needs[row].likeliest == 0) {
        EXPECT_EQ(found[row].count, -1);
        continue;
      }
      const auto of_row = std::span(logits).subspan(row * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
      testing::expect_summary(found[row], testing::summary_of(of_row, needs[row], 1000));
    }
  }
}

// A model's heads and a cache of a few blocks, on the device and for the CPU's operations.
struct Heads {
  int heads;
  int kv_heads;
  int dim;
};
constexpr int kBlocks = 24;

ModelConfig config_of(const Heads& heads) {
  ModelConfig config;
  config.heads = heads.heads;
  config.kv_heads = heads.kv_heads;
  config.head_dim = heads.dim;
  return config;
}

// Given queries, keys and values with and without biases and norms of heads; expects rotated queries, and keys and values in
// the cache, within 1e-5 of the CPU's. A token without a slot is not stored.
TEST_P(CudaParity, RopeStore) {
  Rng rng(25, "cuda rope");
  for (const Heads heads : shared_out(std::vector{Heads{1, 1, 2}, Heads{6, 2, 18}, Heads{3, 3, 128}, Heads{4, 1, 256}})) {
    for (const bool extras : {false, true}) {
      const int tokens = 5;
      const ModelConfig config = config_of(heads);
      const int width = (heads.heads + 2 * heads.kv_heads) * heads.dim;
      const int padded = static_cast<int>(cuda::padded_dim_of(heads.dim));
      auto qkv = random(rng, tokens * width);
      const auto bias = random(rng, width), q_norm = random(rng, heads.dim), k_norm = random(rng, heads.dim);
      const cpu::RopeTable table = cpu::make_rope_table(config, 64);
      const std::vector<std::int32_t> positions{0, 63, 17, 18, 40}, slots{5, 17, 383, 0, -1};
      const std::int64_t cache = static_cast<std::int64_t>(kBlocks) * 16 * heads.kv_heads * padded;
      const OnDevice on_qkv = put(qkv), on_bias = put_plain(bias), on_q_norm = put_plain(q_norm), on_k_norm = put_plain(k_norm),
                     cos = put_plain(table.cos), sin = put_plain(table.sin), on_positions = put_plain(positions),
                     on_slots = put_plain(slots), q = zeros(tokens * heads.heads * padded), keys = zeros(cache),
                     values = zeros(cache);
      kernels().rope_store(
          stream(), {on_qkv.get(), extras ? on_bias.as<float>() : nullptr, extras ? on_q_norm.as<float>() : nullptr,
                     extras ? on_k_norm.as<float>() : nullptr, cos.as<float>(), sin.as<float>(),
                     on_positions.as<std::int32_t>(), on_slots.as<std::int32_t>(), q.get(), keys.get(), values.get(), tokens,
                     heads.heads, heads.kv_heads, heads.dim, padded, 1e-6F});
      std::vector<float> expected_q(static_cast<std::size_t>(tokens * heads.heads * padded));
      std::vector<float> expected_keys(static_cast<std::size_t>(cache)), expected_values(expected_keys.size());
      if (extras) cpu::add_bias(bias.data(), qkv.data(), tokens, width);
      for (int t = 0; t < tokens; ++t) {
        float* row = qkv.data() + t * width;
        float* key = row + heads.heads * heads.dim;
        if (extras) {
          cpu::rms_norm(row, q_norm.data(), row, heads.heads, heads.dim, 1e-6F);
          cpu::rms_norm(key, k_norm.data(), key, heads.kv_heads, heads.dim, 1e-6F);
        }
        cpu::rope(row, heads.heads + heads.kv_heads, table, positions[static_cast<std::size_t>(t)]);
        for (int h = 0; h < heads.heads; ++h)
          std::copy_n(row + h * heads.dim, heads.dim, expected_q.data() + (t * heads.heads + h) * padded);
        const int slot = slots[static_cast<std::size_t>(t)];
        for (int g = 0; g < heads.kv_heads && slot >= 0; ++g) {
          const auto at = ((slot / 16 * heads.kv_heads + g) * 16 + slot % 16) * padded;
          std::copy_n(key + g * heads.dim, heads.dim, expected_keys.data() + at);
          std::copy_n(key + (heads.kv_heads + g) * heads.dim, heads.dim, expected_values.data() + at);
        }
      }
      expect_near(get(q, static_cast<std::int64_t>(expected_q.size())), expected_q, 1e-5);
      expect_near(get(keys, cache), expected_keys, 1e-5);
      expect_near(get(values, cache), expected_values, 1e-5);
    }
  }
}

// Given rows written to a cache's slots; expects the same rows back.
TEST_P(CudaParity, CopyKv) {
  Rng rng(26, "cuda copy");
  const Heads heads{4, 2, 18};
  const int padded = static_cast<int>(cuda::padded_dim_of(heads.dim));
  const std::int64_t cache = static_cast<std::int64_t>(kBlocks) * 16 * heads.kv_heads * padded;
  const std::int64_t count = 3 * 2 * heads.kv_heads * heads.dim;
  const auto plain = random(rng, count);
  const OnDevice slots = put_plain(std::vector<std::int32_t>{200, 0, 31}), in = put_plain(plain),
                 out = put_plain(std::vector<float>(plain.size())), keys = zeros(cache), values = zeros(cache);
  cuda::CopyKv copy{slots.as<std::int32_t>(), keys.get(), values.get(), in.as<float>(), 3, heads.kv_heads, heads.dim, padded};
  kernels().write_kv(stream(), copy);
  copy.plain = out.as<float>();
  kernels().read_kv(stream(), copy);
  EXPECT_EQ(get_floats(out, count), plain);
  // The first key of slot 200's second head is where attention expects it.
  EXPECT_EQ(get(keys, cache)[static_cast<std::size_t>(((12 * 2 + 1) * 16 + 8) * padded)], plain[18]);
}

// Queries and a cache with random sequences in shuffled blocks; everything that no sequence has written is NaN on the device.
class CudaAttention : public CudaParity {
 protected:
  struct Sequence {
    std::vector<std::int32_t> blocks;
    std::int64_t table = 0;
    std::int64_t start = 0;  // of its new tokens
    std::int64_t tokens = 0;
    std::int64_t row = 0;  // of its first query
  };

  void make(Rng& rng, const Heads& heads, std::vector<Sequence> sequences) {
    heads_ = heads;
    config_ = config_of(heads);
    padded_ = static_cast<int>(cuda::padded_dim_of(heads.dim));
    sequences_ = std::move(sequences);
    std::vector<std::int32_t> blocks(kBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    for (std::size_t i = blocks.size() - 1; i > 0; --i)
      std::swap(blocks[i], blocks[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
    const std::int64_t size = static_cast<std::int64_t>(kBlocks) * 16 * heads.kv_heads;
    std::vector<float> keys(static_cast<std::size_t>(size * padded_), std::nanf("")), values = keys;
    cpu_keys_.assign(static_cast<std::size_t>(size * heads.dim), 0);
    cpu_values_ = cpu_keys_;
    tables_.clear();
    rows_ = 0;
    for (Sequence& sequence : sequences_) {
      sequence.table = static_cast<std::int64_t>(tables_.size());
      sequence.row = rows_;
      rows_ += sequence.tokens;
      for (std::int64_t p = 0; p < sequence.start + sequence.tokens; ++p) {
        if (p % 16 == 0) {
          sequence.blocks.push_back(blocks.back());
          tables_.push_back(blocks.back());
          blocks.pop_back();
        }
        const auto key = random(rng, heads.kv_heads * heads.dim), value = random(rng, heads.kv_heads * heads.dim);
        cpu::store_kv(config_, key.data(), value.data(), sequence.blocks.back(), p % 16, cpu_keys_.data(), cpu_values_.data());
        for (int g = 0; g < heads.kv_heads; ++g) {
          const auto at = ((sequence.blocks.back() * heads.kv_heads + g) * 16 + p % 16) * padded_;
          std::fill_n(keys.begin() + at, padded_, 0.0F);
          std::fill_n(values.begin() + at, padded_, 0.0F);
          std::copy_n(key.begin() + g * heads.dim, heads.dim, keys.begin() + at);
          std::copy_n(value.begin() + g * heads.dim, heads.dim, values.begin() + at);
        }
      }
    }
    queries_ = random(rng, rows_ * heads.heads * heads.dim);
    std::vector<float> padded_queries(static_cast<std::size_t>(rows_ * heads.heads * padded_));
    for (std::int64_t i = 0; i < rows_ * heads.heads; ++i)
      std::copy_n(queries_.begin() + i * heads.dim, heads.dim, padded_queries.begin() + i * padded_);
    q_ = put(padded_queries);
    keys_ = put(keys);
    values_ = put(values);
    on_tables_ = put_plain(tables_);
    out_ = put(std::vector<float>(static_cast<std::size_t>(rows_ * heads.heads * heads.dim), std::nanf("")));
  }

  [[nodiscard]] cuda::Attention attention(int window) const {
    return {q_.get(),
            keys_.get(),
            values_.get(),
            on_tables_.as<std::int32_t>(),
            out_.get(),
            heads_.heads,
            heads_.kv_heads,
            heads_.dim,
            padded_,
            window,
            1.0F / std::sqrt(static_cast<float>(heads_.dim))};
  }
  [[nodiscard]] std::vector<float> expected(int window) const {
    std::vector<float> out(static_cast<std::size_t>(rows_ * config_.q_size()));
    std::vector<cpu::AttentionRows> sequences;
    for (const Sequence& sequence : sequences_) {
      sequences.push_back({queries_.data() + sequence.row * config_.q_size(),
                           sequence.tokens,
                           sequence.start,
                           {cpu_keys_.data(), cpu_values_.data(), sequence.blocks},
                           out.data() + sequence.row * config_.q_size()});
    }
    cpu::ThreadTeam team(1);
    cpu::AttentionScratch scratch;
    cpu::attention(config_, window, sequences, config_.q_size(), team, scratch);
    return out;
  }

  Heads heads_{};
  ModelConfig config_;
  int padded_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> tables_;
  std::vector<float> queries_, cpu_keys_, cpu_values_;
  std::int64_t rows_ = 0;
  OnDevice q_, keys_, values_, on_tables_, out_;
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaAttention, ::testing::ValuesIn(testing::cuda_cases()), testing::case_name);

// Given single tokens after contexts of 0 to 220, heads of all sizes alone and in groups, windows and splits; expects the CPU's
// decode attention within 1e-5. A row without a position becomes zeros, whatever the cache contains.
TEST_P(CudaAttention, Decode) {
  Rng rng(27, "cuda decode");
  for (const Heads heads : shared_out(std::vector{Heads{2, 2, 2}, Heads{6, 2, 18}, Heads{5, 1, 64}, Heads{4, 4, 80},
                                                  Heads{8, 1, 128}, Heads{2, 1, 256}})) {
    make(rng, heads, {{{}, 0, 0, 1, 0}, {{}, 0, 37, 1, 0}, {{}, 0, 220, 1, 0}, {{}, 0, 31, 1, 0}});
    std::vector<cuda::DecodeRow> rows;
    for (const Sequence& sequence : sequences_) {
      rows.push_back({static_cast<std::int32_t>(sequence.row), static_cast<std::int32_t>(sequence.start),
                      static_cast<std::int32_t>(sequence.table)});
    }
    rows[3].position = -1;
    const OnDevice on_rows = put_plain(rows);
    for (const auto& [splits, window] : {std::pair{1, 0}, std::pair{2, 1}, std::pair{8, 0}, std::pair{4, 30}}) {
      const std::vector<float> unwritten(static_cast<std::size_t>(4 * splits * config_.q_size()), std::nanf(""));
      const OnDevice partial = put_plain(unwritten), stats = put_plain(unwritten);
      kernels().decode_attention(
          stream(), {attention(window), on_rows.as<cuda::DecodeRow>(), partial.as<float>(), stats.as<float>(), 4, splits});
      auto wanted = expected(window);
      std::fill(wanted.end() - config_.q_size(), wanted.end(), 0.0F);
      expect_near(get(out_, 4 * config_.q_size()), wanted, 1e-5);
    }
  }
}

// Given pieces at the beginning and in the middle of prompts, longer and shorter than a tile; expects the same of prefill
// attention.
TEST_P(CudaAttention, Prefill) {
  Rng rng(28, "cuda prefill");
  for (const Heads heads : shared_out(std::vector{Heads{2, 2, 2}, Heads{6, 2, 18}, Heads{3, 1, 64}, Heads{2, 2, 80},
                                                  Heads{4, 1, 128}, Heads{2, 1, 256}})) {
    make(rng, heads, {{{}, 0, 0, 90, 0}, {{}, 0, 61, 7, 0}, {{}, 0, 30, 64, 0}});
    std::vector<cuda::PrefillTile> tiles;
    for (const Sequence& sequence : sequences_) {
      for (std::int64_t t = 0; t < sequence.tokens; t += cuda::kPrefillTileRows) {
        tiles.push_back({static_cast<std::int32_t>(sequence.row + t),
                         static_cast<std::int32_t>(std::min<std::int64_t>(cuda::kPrefillTileRows, sequence.tokens - t)),
                         static_cast<std::int32_t>(sequence.start + t), static_cast<std::int32_t>(sequence.table)});
      }
    }
    const OnDevice on_tiles = put_plain(tiles);
    for (const int window : {0, 1, 23}) {
      kernels().prefill_attention(stream(),
                                  {attention(window), on_tiles.as<cuda::PrefillTile>(), static_cast<int>(tiles.size())});
      expect_near(get(out_, rows_ * config_.q_size()), expected(window), 1e-5);
    }
  }
}

// Given any build; expects describe() to name its CUDA support, and a build without CUDA to open no device.
TEST(Cuda, DescribesItself) {
  EXPECT_FALSE(cuda::describe().empty());
  if (!cuda::compiled()) {
    const auto device = cuda::open_device(cuda::Precision::kBf16);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, ErrorCode::kUnavailable);
  }
}

}  // namespace
}  // namespace windlass::worker
