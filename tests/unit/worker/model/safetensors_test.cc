// Safetensors and weight loading: number formats, shards, and every way in which a file can be broken.
#include <bit>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/reference_model.h"
#include "worker/model/block_weights.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/load_progress.h"
#include "worker/model/tensor_store.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string safetensors_error(const std::string& bytes) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "model.safetensors", bytes);
  const auto store = TensorStore::open(folder.path());
  EXPECT_FALSE(store.ok());
  if (store.ok()) return "";
  EXPECT_THAT(store.error().message, HasSubstr("model.safetensors"));
  return store.error().message;
}

// Given one tensor of each dtype; expects exactly the floats of the bits, including subnormals, infinities and signs.
TEST(Safetensors, ReadsThreeNumberFormats) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"f32":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"f16":{"dtype":"F16","shape":[2,2],"data_offsets":[8,16]},)"
      R"("bf16":{"dtype":"BF16","shape":[1],"data_offsets":[16,18]},"__metadata__":{"format":"pt"}})";
  // 1.5 and -2 as F32; 1, smallest subnormal, -inf, 65504 as F16; -0.5 as BF16
  const std::string data("\x00\x00\xC0\x3F\x00\x00\x00\xC0\x00\x3C\x01\x00\x00\xFC\xFF\x7B\x00\xBF", 18);
  write_bytes(folder.path() / "model.safetensors", safetensors_bytes(header, data));
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ(store->tensors().size(), 3U);
  const auto floats = [&](const char* name) {
    const TensorView* tensor = store->find(name);
    std::vector<float> out(static_cast<std::size_t>(tensor->elements()));
    copy_as_float(*tensor, out);
    return out;
  };
  EXPECT_THAT(floats("f32"), ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(floats("f16"), ElementsAre(1.0F, 0x1.0p-24F, -INFINITY, 65504.0F));
  EXPECT_THAT(floats("bf16"), ElementsAre(-0.5F));
  EXPECT_EQ(store->find("nothing"), nullptr);
}

// Given many random floats; expects rounding to BF16 to pick the nearer neighbour, and a BF16 value to stay the same.
TEST(Safetensors, Bf16RoundsToNearest) {
  Rng rng(3, "bf16");
  for (int i = 0; i < effort(2000, 20'000); ++i) {
    const auto value = static_cast<float>(rng.uniform(-100, 100));
    const std::uint16_t bits = bf16_from_float(value);
    const float rounded = float_from_bf16(bits);
    const float distance = std::abs(value - rounded);
    EXPECT_LE(distance, std::abs(value - float_from_bf16(static_cast<std::uint16_t>(bits + 1))));
    EXPECT_LE(distance, std::abs(value - float_from_bf16(static_cast<std::uint16_t>(bits - 1))));
    EXPECT_EQ(bf16_from_float(rounded), bits);
  }
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(NAN))));
}

// Given broken files of each kind; expects an error with the file, the rule and the value, and no reads beyond the file.
TEST(Safetensors, NamesWhatIsBroken) {
  EXPECT_THAT(safetensors_error(""), HasSubstr("must not be empty"));
  EXPECT_THAT(safetensors_error("abc"), HasSubstr("size: must be at least 8 bytes (got 3)"));
  EXPECT_THAT(safetensors_error(std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}", 10)), HasSubstr("(got 9223372036854775807)"));
  EXPECT_THAT(safetensors_error(safetensors_bytes("{nonsense", "")), HasSubstr("header: not JSON"));
  EXPECT_THAT(safetensors_error(safetensors_bytes("[]", "")), HasSubstr("header: must be a JSON object"));
  EXPECT_THAT(
      safetensors_error(safetensors_bytes(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234")),
      HasSubstr("tensor 'w': data_offsets: must be within the file's 4 bytes of data (got [0, 8]); is the file truncated?"));
  EXPECT_THAT(safetensors_error(safetensors_bytes(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678")),
              HasSubstr("tensor 'w': data_offsets: must span 12 bytes, for shape [3] of F32 (got 8)"));
  EXPECT_THAT(safetensors_error(safetensors_bytes(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "12345678")),
              HasSubstr("tensor 'w': shape: must be whole numbers from 0 (got [-1])"));
  EXPECT_THAT(safetensors_error(safetensors_bytes(
                  R"({"w":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})", "12345678")),
              HasSubstr("tensor 'w': data_offsets: must span"));
  EXPECT_THAT(safetensors_error(safetensors_bytes(R"({"w":{"dtype":"F32","shape":[2]}})", "12345678")),
              HasSubstr("tensor 'w': header entry must have dtype, shape and data_offsets"));
}

// Given a folder without weights, or an index that names a missing shard; expects the missing file to be named.
TEST(Safetensors, NamesMissingFiles) {
  const TemporaryFolder folder;
  auto store = TensorStore::open(folder.path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(store.error().message, HasSubstr("model.safetensors"));
  write_bytes(folder.path() / "model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  store = TensorStore::open(folder.path());
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message, HasSubstr("model-00001-of-00002.safetensors"));
  write_bytes(folder.path() / "model.safetensors.index.json", R"({"weight_map":{"a":"../secret"}})");
  EXPECT_THAT(TensorStore::open(folder.path()).error().message,
              HasSubstr("weight_map['a']: must be a file name in the same folder (got '../secret')"));
}

// Given a folder or an empty file in place of the weights; expects an error that says which.
TEST(Safetensors, SaysWhatCannotBeMapped) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  EXPECT_THAT(TensorStore::open(folder.path()).error().message,
              EndsWith("model.safetensors: must be a regular file (got a folder)"));
  std::filesystem::remove(folder.path() / "model.safetensors");
  write_bytes(folder.path() / "model.safetensors", "");
  EXPECT_THAT(TensorStore::open(folder.path()).error().message, EndsWith("model.safetensors: must not be empty"));
}

// Given two shards and an index; expects the tensors of both.
TEST(Safetensors, ReadsShards) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "a.safetensors",
              safetensors_bytes(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  write_bytes(folder.path() / "b.safetensors",
              safetensors_bytes(R"({"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  write_bytes(folder.path() / "model.safetensors.index.json", R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_NE(store->find("x"), nullptr);
  EXPECT_NE(store->find("y"), nullptr);
}

class Weights : public ::testing::Test {
 protected:
  void SetUp() override { make(Architecture::kLlama); }
  void make(Architecture architecture) {
    ASSERT_TRUE(init_model(testing::tiny_shape(architecture), folder_.path()).ok());
    const auto config = load_model_config(folder_.path());
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
  }
  // Rewrites the header of the model's file; the data does not move.
  void edit_header(const std::function<void(json&)>& edit) {
    const std::string bytes = testing::read_bytes(folder_.path() / "model.safetensors");
    std::uint64_t size = 0;
    for (unsigned i = 0; i < 8; ++i) size |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    json header = json::parse(bytes.substr(8, size));
    edit(header);
    write_bytes(folder_.path() / "model.safetensors", safetensors_bytes(header.dump(), bytes.substr(8 + size)));
  }
  std::string load_error() {
    const auto store = TensorStore::open(folder_.path());
    EXPECT_TRUE(store.ok());
    const auto weights = load_weights(config_, *store);
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "" : weights.error().message;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
};

// Given a whole model; expects all matrices in their shapes, with joined projections.
TEST_F(Weights, LoadsAWholeModel) {
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto weights = load_weights(config_, *store);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->embedding.elements(), 300 * 32);
  ASSERT_EQ(weights->layers.size(), 2U);
  EXPECT_EQ(weights->layers[1].qkv.elements(), (32 + 2 * 16) * 32);
  EXPECT_EQ(weights->layers[1].mlp.in.elements(), 2 * 48 * 32);
  EXPECT_EQ(&weights->output_matrix(), &weights->lm_head);
}

// Given BF16; expects the layers' matrices to have the files' numbers bit for bit, in half of the memory, and everything else
// unchanged.
TEST_F(Weights, KeepsTheHalvesOfTheFiles) {
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto whole = load_weights(config_, *store);
  const auto found = load_weights(config_, *store, config_.all_blocks(), {}, WeightFormat::kBf16);
  ASSERT_TRUE(whole.ok() && found.ok());
  EXPECT_EQ(found->embedding, whole->embedding);
  std::int64_t halves = 0;
  for (std::size_t i = 0; i < whole->layers.size(); ++i) {
    const LayerWeights &plain = whole->layers[i], &layer = found->layers[i];
    for (const auto matrix : {&LayerWeights::qkv, &LayerWeights::attention_out}) {
      EXPECT_TRUE((layer.*matrix).values.empty());
      ASSERT_EQ((layer.*matrix).halves.size(), (plain.*matrix).values.size());
      for (std::size_t n = 0; n < (plain.*matrix).values.size(); ++n) {
        ASSERT_EQ(testing::meaning((layer.*matrix).halves[n]), (plain.*matrix).values[n]);
      }
    }
    for (const WeightMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.mlp.in, &layer.mlp.out})
      halves += matrix->elements();
  }
  EXPECT_EQ(bytes_of(*found).held, bytes_of(*whole).held - 2 * halves);
}

// Given an 8-bit format; expects the layers' matrices in it, with a scale for each row, in a quarter of the memory, and
// everything else unchanged. A matrix with an infinite number is named in an error.
TEST_F(Weights, QuantisesTheLayersMatrices) {
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto whole = load_weights(config_, *store);
  ASSERT_TRUE(whole.ok());
  const WeightBytes plain = bytes_of(*whole);
  EXPECT_EQ(plain.held, plain.as_plain);
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFp8}) {
    const auto found = load_weights(config_, *store, config_.all_blocks(), {}, format);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->embedding, whole->embedding);
    EXPECT_EQ(found->lm_head, whole->lm_head);
    std::int64_t saved = 0;
    for (const LayerWeights& layer : found->layers) {
      for (const WeightMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.mlp.in, &layer.mlp.out}) {
        EXPECT_EQ(matrix->format, format);
        EXPECT_TRUE(matrix->values.empty());
        saved += 3 * matrix->elements() - 4 * static_cast<std::int64_t>(matrix->scales.size());
      }
      EXPECT_EQ(layer.qkv.scales.size(), 32U + 2U * 16U);
      EXPECT_EQ(layer.mlp.out.scales.size(), 32U);
    }
    const WeightBytes bytes = bytes_of(*found);
    EXPECT_EQ(bytes.as_plain, plain.held);
    EXPECT_EQ(bytes.held, plain.held - saved);
  }
  std::int64_t at = 0;
  edit_header([&](json& header) { at = header["model.layers.1.mlp.down_proj.weight"]["data_offsets"][0]; });
  std::string bytes = testing::read_bytes(folder_.path() / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto number = 8 + static_cast<std::size_t>(header_bytes) + static_cast<std::size_t>(at) + 2 * 48 * 3;
  bytes[number] = '\x80';
  bytes[number + 1] = '\x7F';  // BF16 infinity, in row 3
  write_bytes(folder_.path() / "model.safetensors", bytes);
  const auto damaged = TensorStore::open(folder_.path());
  ASSERT_TRUE(damaged.ok());
  EXPECT_TRUE(load_weights(config_, *damaged).ok());
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8}) {
    const auto refused = load_weights(config_, *damaged, config_.all_blocks(), {}, format);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(
        refused.error().message,
        HasSubstr(std::string("tensor 'model.layers.1.mlp.down_proj.weight': must have only numbers that are finite as ") +
                  to_string(format) + " (got another one in row 3)"));
  }
}

// Given two missing tensors and one of a wrong shape; expects one message with the file, the tensors, the rule and the value.
TEST_F(Weights, NamesMissingAndMisshapenTensors) {
  edit_header([](json& header) {
    header.erase("model.layers.1.mlp.down_proj.weight");
    header.erase("lm_head.weight");
    header["model.norm.weight"]["shape"] = {2, 16};
  });
  const std::string message = load_error();
  const std::string file = (folder_.path() / "model.safetensors").string();
  EXPECT_THAT(
      message,
      HasSubstr(file + ": tensor 'model.layers.1.mlp.down_proj.weight': must have shape [32, 48] (got no such tensor)"));
  EXPECT_THAT(message, HasSubstr(file + ": tensor 'lm_head.weight': must have shape [300, 32] (got no such tensor)"));
  EXPECT_THAT(message, HasSubstr(file + ": tensor 'model.norm.weight': must have shape [32] (got [2, 16])"));
}

// Given a tensor in an unsupported number format; expects an error with the format and the allowed ones.
TEST_F(Weights, NamesUnsupportedDtype) {
  edit_header([](json& header) { header["model.norm.weight"]["dtype"] = "F8_E4M3"; });
  EXPECT_THAT(load_error(), HasSubstr("tensor 'model.norm.weight': must have type F32, F16 or BF16 (got F8_E4M3)"));
}

// Given a model with a tied lm_head; expects no lm_head tensor to be needed, and the embedding to serve for both.
TEST_F(Weights, TiedEmbeddingsNeedNoHead) {
  edit_header([](json& header) { header.erase("lm_head.weight"); });
  config_.tie_word_embeddings = true;
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto weights = load_weights(config_, *store);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(&weights->output_matrix(), &weights->embedding);
}

// Given models of all kinds, whole, in part and for one of two ranks; expects the size counted in advance to equal that of the
// loaded weights in each format, and the progress while reading to reach the expected bytes.
TEST_F(Weights, AreCountedBeforeTheyAreRead) {
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3,
                                          Architecture::kMixtral, Architecture::kQwen3Moe, Architecture::kOpt}) {
    make(architecture);
    const auto store = TensorStore::open(folder_.path());
    ASSERT_TRUE(store.ok());
    for (const BlockRange blocks : {config_.all_blocks(), BlockRange{0, 1}, BlockRange{1, config_.layers}}) {
      for (const TensorSlice slice : {TensorSlice{}, TensorSlice{1, 2}}) {
        const auto sizes = check_weights(config_, *store, blocks, slice);
        ASSERT_TRUE(sizes.ok()) << sizes.error().message;
        for (const WeightFormat format : {WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8}) {
          LoadProgress progress;
          const auto weights = load_weights(config_, *store, blocks, slice, format, &progress);
          ASSERT_TRUE(weights.ok()) << weights.error().message;
          EXPECT_EQ(sizes->bytes(format), bytes_of(*weights).held) << to_string(architecture) << " " << to_string(format);
          EXPECT_EQ(progress.now().read_bytes, sizes->file_bytes) << to_string(architecture) << " " << to_string(format);
        }
      }
    }
    std::int64_t whole_file = 0;
    for (const auto& [name, tensor] : store->tensors()) whole_file += static_cast<std::int64_t>(tensor.bytes.size());
    EXPECT_EQ(check_weights(config_, *store, config_.all_blocks(), {})->file_bytes, whole_file);
  }
}

// Given a model's first block; expects the missing size counted for two blocks to be what is then read.
TEST_F(Weights, CountsMissingWeights) {
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  BlockWeights weights(config_, {}, WeightFormat::kBf16);
  auto first = weights.read(*store, {0, 1});
  ASSERT_TRUE(first.ok()) << first.error().message;
  weights.add(std::move(first).value(), {0, 1});
  const auto counted = weights.missing(*store, {0, 2});
  const auto read = weights.read(*store, {0, 2});
  ASSERT_TRUE(counted.ok() && read.ok());
  EXPECT_EQ(counted->bytes(WeightFormat::kBf16), bytes_of(*read).held);
  EXPECT_LT(counted->matrix_numbers, check_weights(config_, *store, {0, 2}, {})->matrix_numbers);
}

// Given each stage of loading; expects a text for people, even before anything is known.
TEST(LoadProgress, IsToldInWords) {
  LoadProgress progress;
  EXPECT_EQ(to_text(progress.now()), "checking the files");
  progress.enter(LoadStage::kWeights);
  EXPECT_EQ(to_text(progress.now()), "read 0.00 of 0.00 GB of weights (0%)");
  progress.expect(5'000'000'000);
  progress.expect_kv_cache(2'147'483'648);
  progress.read(600'000'000);
  progress.read(600'000'000);
  EXPECT_EQ(to_text(progress.now()), "read 1.20 of 5.00 GB of weights (24%)");
  progress.enter(LoadStage::kKvCache);
  EXPECT_EQ(to_text(progress.now()), "allocating a KV cache of 2.15 GB");
  EXPECT_EQ(progress.now(), (LoadProgressNow{LoadStage::kKvCache, 1'200'000'000, 5'000'000'000, 2'147'483'648}));
}

// Given a model with experts in two shards, with the tensors of one expert split between them; expects the weights of one file.
// An expert missing from both is named.
TEST_F(Weights, ExpertsMayBeInSeveralFiles) {
  for (const Architecture architecture : {Architecture::kMixtral, Architecture::kQwen3Moe}) {
    make(architecture);
    const auto store = TensorStore::open(folder_.path());
    ASSERT_TRUE(store.ok());
    const auto whole = load_weights(config_, *store);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    const TemporaryFolder sharded;
    json index = json::object();
    for (const bool second : {false, true}) {
      const std::string name = second ? "b.safetensors" : "a.safetensors";
      edit_header([&](json& header) {
        json part = json::object();
        for (const auto& [tensor, entry] : header.items()) {
          if ((testing::hash_of(tensor) % 2 == 1) == second && tensor != "__metadata__") part[tensor] = entry;
        }
        for (const auto& [tensor, entry] : part.items()) index[tensor] = name;
        std::swap(header, part);
      });
      std::filesystem::rename(folder_.path() / "model.safetensors", sharded.path() / name);
      ASSERT_TRUE(init_model(testing::tiny_shape(architecture), folder_.path()).ok());
    }
    write_bytes(sharded.path() / "model.safetensors.index.json", json{{"weight_map", index}}.dump());
    const auto shards = TensorStore::open(sharded.path());
    ASSERT_TRUE(shards.ok()) << shards.error().message;
    const auto found = load_weights(config_, *shards);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->layers[0].router, whole->layers[0].router);
    EXPECT_EQ(found->layers[1].experts, whole->layers[1].experts);
    std::string missing;
    edit_header([&](json& header) {
      for (const auto& [tensor, entry] : header.items()) {
        if (tensor.find("layers.1.") != tensor.npos && tensor.find("experts.3.") != tensor.npos) missing = tensor;
      }
      header.erase(missing);
    });
    EXPECT_THAT(load_error(), HasSubstr("tensor '" + missing + "': must have shape ["));
  }
}

// Given OPT's tensors with only the decoder's names, as in some of its files; expects them to be found, and a missing one to be
// named in the same way.
TEST_F(Weights, OptsDecoderMayStandAlone) {
  make(Architecture::kOpt);
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto whole = load_weights(config_, *store);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  edit_header([](json& header) {
    json bare = json::object();
    for (const auto& [name, value] : header.items()) bare[name.starts_with("model.") ? name.substr(6) : name] = value;
    header = bare;
  });
  const auto renamed = TensorStore::open(folder_.path());
  ASSERT_TRUE(renamed.ok());
  const auto bare = load_weights(config_, *renamed);
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  EXPECT_EQ(bare->positions, whole->positions);
  EXPECT_EQ(bare->layers[1].mlp, whole->layers[1].mlp);
  EXPECT_EQ(bare->final_norm, whole->final_norm);
  edit_header([](json& header) { header.erase("decoder.layers.1.fc2.bias"); });
  EXPECT_THAT(load_error(), HasSubstr("tensor 'decoder.layers.1.fc2.bias': must have shape [32] (got no such tensor)"));
}

// Given a part of the model's blocks; expects exactly their tensors, the embedding with the first block, and the norm and head
// with the last. Tensors of other parts may be missing.
TEST_F(Weights, LoadsAPart) {
  const auto store = TensorStore::open(folder_.path());
  ASSERT_TRUE(store.ok());
  const auto whole = load_weights(config_, *store);
  const auto first = load_weights(config_, *store, {0, 1});
  const auto last = load_weights(config_, *store, {1, 2});
  ASSERT_TRUE(whole.ok() && first.ok() && last.ok());
  ASSERT_EQ(first->layers.size(), 1U);
  ASSERT_EQ(last->layers.size(), 1U);
  EXPECT_EQ(first->layers[0].qkv, whole->layers[0].qkv);
  EXPECT_EQ(last->layers[0].qkv, whole->layers[1].qkv);
  EXPECT_EQ(first->embedding, whole->embedding);
  EXPECT_TRUE(first->final_norm.weight.empty() && first->lm_head.empty());
  EXPECT_TRUE(last->embedding.empty());
  EXPECT_EQ(last->final_norm, whole->final_norm);
  EXPECT_EQ(last->lm_head, whole->lm_head);

  edit_header([](json& header) {
    header.erase("model.layers.0.mlp.down_proj.weight");
    header.erase("lm_head.weight");
  });
  const auto rest = TensorStore::open(folder_.path());
  ASSERT_TRUE(rest.ok());
  EXPECT_FALSE(load_weights(config_, *rest, {0, 1}).ok());
  EXPECT_FALSE(load_weights(config_, *rest, {1, 2}).ok());
  config_.tie_word_embeddings = true;
  const auto tied = load_weights(config_, *rest, {1, 2});
  ASSERT_TRUE(tied.ok()) << tied.error().message;
  EXPECT_EQ(tied->output_matrix(), whole->embedding);
}

}  // namespace
}  // namespace windlass::worker
