// GGUF: the header, numbers of every kind, a model against transformers, tokenizers, and every kind of damage.
#include "planner/base/gguf.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/gguf_config.h"
#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/worker/gguf_files.h"
#include "tests/unit/worker/model_files.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/chat_template.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/gguf_model.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/pretokenizer.h"
#include "worker/model/tokenizer.h"
#include "worker/model/weights.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using testing::as_span;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string golden(const std::string& name) { return source_path("/tests/golden/gguf/" + name); }

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<float> floats_from_hex(const std::string& text) {
  const std::string bytes = from_hex(text);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

// Metadata of a Llama model of one block, and its embedding.
GgufWriter small_llama() {
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .whole("llama.block_count", 1)
      .whole("llama.context_length", 64)
      .whole("llama.embedding_length", 8)
      .whole("llama.feed_forward_length", 16)
      .whole("llama.attention.head_count", 2)
      .whole("llama.attention.head_count_kv", 1)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .number("llama.rope.freq_base", 50000)
      .floats("token_embd.weight", {4, 8}, std::vector<float>(32, 0.5F));
  return writer;
}

std::string parse_error(const std::string& bytes) {
  const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
  EXPECT_FALSE(gguf.ok());
  return gguf.ok() ? "" : gguf.error().message;
}

// Given fields of every type and tensors; expects all of them back as written.
TEST(GgufFile, ReadsFieldsAndTensors) {
  const std::string bytes = GgufWriter()
                                .text("a", "text")
                                .whole("b", 4'000'000'000)
                                .raw("c", 1, "\xFF")
                                .raw("d", 10, std::string(8, '\xFF'))
                                .number("e", 0.5F)
                                .flag("f", true)
                                .texts("g", {"x", ""})
                                .wholes("h", {-1, 2})
                                .list<double>("i", 12, {0.25})
                                .list<std::uint8_t>("j", 7, {0, 1})
                                .floats("t", {2, 1}, {1, 2})
                                .tensor("u", 99, {3}, "???")
                                .bytes();
  const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->text("a").value(), "text");
  EXPECT_EQ(gguf->whole("b", 0, INT64_MAX).value(), 4'000'000'000);
  EXPECT_EQ(gguf->whole("c", -5, 5).value(), -1);
  EXPECT_EQ(gguf->whole("d", 0, INT64_MAX).value(), INT64_MAX);
  EXPECT_EQ(gguf->number("e").value(), 0.5);
  EXPECT_TRUE(gguf->flag("f").value());
  EXPECT_THAT(*gguf->texts("g").value(), ElementsAre("x", ""));
  EXPECT_THAT(*gguf->wholes("h").value(), ElementsAre(-1, 2));
  EXPECT_THAT(*gguf->numbers("i").value(), ElementsAre(0.25));
  EXPECT_THAT(std::get<GgufFlags>(gguf->metadata().at("j")), ElementsAre(false, true));
  const GgufTensor* tensor = gguf->tensor("t");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(2, 1));
  EXPECT_EQ(tensor->bytes.size(), 8U);
  EXPECT_TRUE(gguf->tensor("u")->bytes.empty()) << "of a type that nobody knows";
  EXPECT_THAT(gguf->whole("a", 0, 1).error().message, Says("m.gguf: field 'a': must be a whole number*(got 'text')"));
  EXPECT_THAT(gguf->whole("b", 0, 9).error().message, Says("must be a whole number from 0 to 9*(got 4000000000)"));
  EXPECT_THAT(gguf->text("z").error().message, Says("field 'z': must be a string*(got nothing)"));
}

// Given files that break the format; expects an error with the offset or tensor, the rule and the value.
TEST(GgufFile, NamesWhatIsWrong) {
  const std::string good = small_llama().bytes();
  const auto with = [&](std::size_t at, std::string_view bytes) {
    std::string changed = good;
    changed.replace(at, bytes.size(), bytes);
    return changed;
  };
  const std::string many(8, '\x7F');
  const std::pair<std::string, const char*> cases[] = {
      {"", "offset 0: magic: must be 4 bytes*(got the end of the file after 0 bytes)"},
      {with(0, "GGML"), "offset 0: magic: must be \"GGUF\"*(got 0x4c4d4747)"},
      {with(4, std::string("\1\0\0\0", 4)), "offset 4: version: must be 2 or 3*(got 1)"},
      {with(4, std::string("\0\0\0\3", 4)), "must be 2 or 3 (got a file of big-endian numbers)"},
      {with(8, many), "must be"},
      {with(16, many), "must be"},
      {with(24, many), "a field's key: must be at most*(got a length of"},
      {GgufWriter().text("a", "1").text("a", "2").bytes(), "field 'a': must be unique (got a second one)"},
      {GgufWriter().raw("a", 13, "").bytes(), "field 'a': must be 0 to 12*(got type 13)"},
      {GgufWriter().raw("a", 7, "\2").bytes(), "field 'a': must be 0 or 1*(got 2)"},
      {GgufWriter().raw("a", 9, std::string("\x09\0\0\0\0\0\0\0\0\0\0\0", 12)).bytes(),
       "must be numbers, flags or strings (got elements of type 9)"},
      {GgufWriter().raw("a", 9, std::string("\x04\0\0\0", 4) + many).bytes(), "must be at most*elements)"},
      {GgufWriter().whole("general.alignment", 0).bytes(), "field 'general.alignment': must be a whole number from 1*(got 0)"},
      {GgufWriter().floats("t", {1}, {1}).floats("t", {1}, {1}).bytes(), "tensor 't': must be unique"},
      {GgufWriter().tensor("t", GgmlType::kQ4_0, {2, 33}, "").bytes(),
       "tensor 't': numbers per row must be a multiple of 32 for Q4_0 (got 33)"},
      {GgufWriter().floats("t", {9}, {1}).bytes(), "tensor 't': must be within the 32 bytes of data"},
      {GgufWriter().floats("t", {0}, {}).bytes(), "tensor 't': must be 1 to 2^40*(got an extent of 0)"},
      {GgufWriter().floats("t", {1LL << 40, 1LL << 40}, {}).bytes(), "tensor 't': must be*(got an extent of"},
      {GgufWriter().floats("t", {1, 1, 1, 1, 1}, {1}).bytes(), "tensor 't': must be 1 to 4*(got 5 dimensions)"},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_THAT(parse_error(bytes), Says(expected));
}

// Given damaged files; expects each to be read or refused. Tensors of a file that is read lie inside it, and its other parts
// give a value or an error that names the file.
TEST(GgufFile, SurvivesDamage) {
  const std::string whole = read_bytes(golden("tiny.gguf"));
  const std::string header = whole.substr(0, 6000);
  Rng rng(31, "gguf");
  int read = 0;
  for (int i = 0; i < effort(2000, 100000); ++i) {
    std::string bytes =
        i % 2 == 0 ? small_llama().bytes() : header + std::string(static_cast<std::size_t>(i % 3) * 40000, '\1');
    const auto hits = rng.integer(1, 4);
    for (std::int64_t k = 0; k < hits && !bytes.empty(); ++k) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1));
      switch (rng.integer(0, 3)) {
        case 0: bytes[at] = static_cast<char>(rng.integer(0, 255)); break;
        case 1: bytes.resize(at + 1); break;
        case 2: bytes.erase(at, 1); break;
        default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.integer(0, 7)));
      }
    }
    const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
    if (!gguf.ok()) {
      ASSERT_THAT(gguf.error().message, HasSubstr("m.gguf: "));
      continue;
    }
    ++read;
    for (const GgufTensor& tensor : gguf->tensors()) {
      if (tensor.bytes.empty()) continue;
      ASSERT_GE(tensor.bytes.data(), as_span(bytes).data());
      ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), as_span(bytes).data() + bytes.size());
    }
    const auto check = [&](const auto& result) {
      if (!result.ok()) {
        EXPECT_THAT(result.error().message, HasSubstr("m.gguf: "));
      }
    };
    check(model_config_of(*gguf));
    check(tensors_of(*gguf));
    check(bits_of(*gguf));
    check(tokenizer_json_of(*gguf));
    check(tokenizer_config_of(*gguf));
  }
  EXPECT_GT(read, 0);
}

// Given two blocks of every kind; expects the same numbers as PyPI's gguf, wherever a block begins.
TEST(GgmlBlocks, AreTheReferences) {
  const json all = json::parse(read_bytes(golden("blocks.json")));
  EXPECT_EQ(all.size(), 11U);
  for (const auto& [name, kind] : all.items()) {
    SCOPED_TRACE(name);
    const GgmlTypeInfo* info = nullptr;
    for (std::uint32_t id = 0; id < 40; ++id) {
      if (const GgmlTypeInfo* each = ggml_type_info(id); each != nullptr && each->name == name) info = each;
    }
    ASSERT_NE(info, nullptr);
    const std::string bytes = from_hex(kind["bytes"]);
    const std::vector<float> expected = floats_from_hex(kind["numbers"]);
    for (std::size_t first = 0; first < expected.size(); ++first) {
      for (const std::size_t count : {std::size_t{1}, (expected.size() - first + 1) / 2, expected.size() - first}) {
        std::vector<float> found(count);
        floats_of_blocks(*info, as_span(bytes), static_cast<std::int64_t>(first), found);
        const std::span<const float> part = std::span(expected).subspan(first, count);
        ASSERT_TRUE(std::equal(found.begin(), found.end(), part.begin(),
                               [](float a, float b) { return std::fabs(a - b) <= 1e-6F * std::fabs(b); }))
            << first << " " << count;
      }
    }
  }
}

// Given a model in blocks of every kind that gguf can write; expects transformers' logits, after a prompt and token by token.
TEST(GgufModel, GivesTheLogitsOfTransformers) {
  const json made = json::parse(read_bytes(golden("tiny.json")));
  const auto config = load_model_config(golden("tiny.gguf"));
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto store = TensorStore::open(golden("tiny.gguf"));
  ASSERT_TRUE(store.ok()) << store.error().message;
  auto weights = load_weights(*config, *store);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  CpuBackendOptions options;
  options.kv_blocks = 4;
  options.max_batch_tokens = 32;
  options.max_logit_rows = 1;
  options.max_context_tokens = 64;
  options.threads = 1;
  options.blocks = config->all_blocks();
  auto backend = make_cpu_backend(*config, std::make_shared<const ModelWeights>(std::move(weights).value()), options);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  const auto expected = floats_from_hex(made["logits"]);
  const auto vocab = static_cast<std::size_t>(config->vocab_size);
  std::vector<std::int32_t> blocks(4);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::int64_t done = 0;
  double worst = 0;
  const auto take = [&](const std::vector<std::int32_t>& next, std::size_t row) {
    const SequenceChunk chunk{next, done, blocks, true};
    const auto logits = (*backend)->forward(std::span(&chunk, 1));
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    done += static_cast<std::int64_t>(next.size());
    for (std::size_t i = 0; i < vocab; ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>((*logits)[i]) - static_cast<double>(expected[row * vocab + i])));
    }
  };
  const auto tokens = made["tokens"].get<std::vector<std::int32_t>>();
  take(made["prompt"].get<std::vector<std::int32_t>>(), 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) take({tokens[i]}, i + 1);
  EXPECT_EQ(expected.size(), (tokens.size() + 1) * vocab);
  EXPECT_LT(worst, 1e-4);
}

// Given a model of mixed types and formats, whole and as ranks' slices; expects matrices that are in blocks in the file to stay
// so, with the same numbers as in FP32. Others, and those that a slice cuts within a group, are FP32. Memory is as counted.
TEST(GgufModel, KeepsQuantisedBlocks) {
  const auto config = load_model_config(golden("tiny.gguf"));
  const auto store = TensorStore::open(golden("tiny.gguf"));
  ASSERT_TRUE(config.ok() && store.ok());
  int in_blocks = 0, plain = 0;
  for (const TensorSlice slice : {TensorSlice{}, TensorSlice{0, 2}, TensorSlice{1, 2}}) {
    const auto held = load_weights(*config, *store, config->all_blocks(), slice, WeightFormat::kBlocks);
    const auto floats = load_weights(*config, *store, config->all_blocks(), slice);
    const auto sizes = check_weights(*config, *store, config->all_blocks(), slice);
    ASSERT_TRUE(held.ok() && floats.ok() && sizes.ok());
    EXPECT_EQ(sizes->bytes(WeightFormat::kBlocks), bytes_of(*held).held);
    EXPECT_EQ(sizes->bytes(WeightFormat::kFp32), bytes_of(*floats).held);
    const auto compare = [&](const WeightMatrix& found, const WeightMatrix& expected, std::int64_t columns) {
      ++(found.format == WeightFormat::kBlocks ? in_blocks : plain);
      ASSERT_EQ(found.elements(), expected.elements());
      std::vector<float> row(static_cast<std::size_t>(columns)), row_expected = row;
      for (std::int64_t i = 0; i < found.elements() / columns; ++i) {
        floats_of_row(found, i, columns, row.data());
        floats_of_row(expected, i, columns, row_expected.data());
        ASSERT_EQ(row, row_expected) << i;
      }
    };
    compare(held->embedding, floats->embedding, config->hidden_size);
    compare(held->lm_head, floats->lm_head, config->hidden_size);
    for (std::size_t i = 0; i < held->layers.size(); ++i) {
      const LayerWeights &layer = held->layers[i], &expected = floats->layers[i];
      compare(layer.qkv, expected.qkv, config->hidden_size);
      compare(layer.attention_out, expected.attention_out, slice.size(config->q_size()));
      compare(layer.mlp.in, expected.mlp.in, config->hidden_size);
      compare(layer.mlp.out, expected.mlp.out, slice.size(config->intermediate_size));
      if (slice.ranks == 2) {
        EXPECT_EQ(layer.mlp.out.format, WeightFormat::kFp32) << "48 columns";
      }
    }
  }
  EXPECT_GT(in_blocks, 0);
  EXPECT_GT(plain, 0);
}

// Given a model in several files; expects all to be found from any of them or from their folder, and a missing file, or two
// models in one folder, to be named.
TEST(GgufModel, MayBeSplit) {
  const TemporaryFolder folder;
  const auto part = [&](int i) { return folder.path() / fmt::format("m-{:05}-of-00002.gguf", i); };
  write_bytes(part(1), small_llama().whole("split.count", 2).bytes());
  EXPECT_THAT(TensorStore::open(part(1)).error().message, HasSubstr("m-00002-of-00002.gguf: must be next to"));
  write_bytes(part(2), GgufWriter().floats("output_norm.weight", {8}, std::vector<float>(8, 1)).bytes());
  for (const auto& path : {part(1), part(2), folder.path()}) {
    const auto store = TensorStore::open(path);
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_NE(store->find("model.embed_tokens.weight"), nullptr);
    EXPECT_NE(store->find("model.norm.weight"), nullptr);
    EXPECT_TRUE(load_model_config(path).ok());
  }
  write_bytes(folder.path() / "other.gguf", small_llama().bytes());
  EXPECT_THAT(load_model_config(folder.path()).error().message,
              HasSubstr("must have the GGUF files of one model (got 3 files of several)"));
  EXPECT_THAT(load_model_config(folder.path() / "x.bin").error().message, HasSubstr("no such model"));
  write_bytes(folder.path() / "x.bin", "text");
  EXPECT_THAT(load_model_config(folder.path() / "x.bin").error().message, HasSubstr("must be a file whose name"));
}

// Given unsupported features; expects an error with the file, the field, the rule and the value.
TEST(GgufModel, RefusesUnsupportedFeatures) {
  const auto error = [](const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
    EXPECT_TRUE(gguf.ok());
    const auto config = model_config_of(*gguf);
    return config.ok() ? std::string() : config.error().message;
  };
  EXPECT_EQ(error(small_llama()), "");
  EXPECT_THAT(error(GgufWriter().text("general.architecture", "mamba")),
              Says("m.gguf: field 'general.architecture': must be 'llama', 'qwen2', 'qwen3', 'qwen3moe'*(got 'mamba')"));
  EXPECT_THAT(error(small_llama().text("llama.rope.scaling.type", "yarn")),
              Says("field 'llama.rope.scaling.type': must be 'none' or 'linear'*(got 'yarn')"));
  EXPECT_THAT(error(small_llama().whole("llama.rope.dimension_count", 2)), HasSubstr("must be 4 (got 2)"));
  EXPECT_THAT(error(small_llama().whole("llama.attention.sliding_window", 8)), HasSubstr("must be absent (got 8)"));
  EXPECT_THAT(error(small_llama().floats("rope_freqs.weight", {3}, {1, 1, 1})),
              HasSubstr("must have shape [2] in F32 (got shape [3])"));
  EXPECT_THAT(error(small_llama().floats("rope_freqs.weight", {2}, {1, 0})), HasSubstr("must have only numbers above 0"));
}

// Given a GGUF file and a folder; expects the text of a config.json equivalent to the file's metadata, and the folder's own.
TEST(GgufModel, HasTheTextOfAConfig) {
  const auto text = config_text_of(golden("tiny.gguf"));
  ASSERT_TRUE(text.ok()) << text.error().message;
  json told = json::parse(*text);
  EXPECT_EQ(told["quantization_config"]["quant_method"], "gguf");
  told.erase("quantization_config");  // for the planner: the worker reads the matrices' own types
  const auto config = parse_model_config(told.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers, GgufModel::open({golden("tiny.gguf")}).value().gguf.whole("llama.block_count", 1, 1000).value());
  const auto nothing = config_text_of(golden("nothing"));
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message, HasSubstr("nothing/config.json"));
}

// Given Llama 3's frequency factors; expects them in the config. Given experts in one tensor; expects each by its name.
TEST(GgufModel, FactorsAndExperts) {
  const std::string bytes = small_llama()
                                .whole("llama.expert_count", 3)
                                .whole("llama.expert_used_count", 2)
                                .floats("rope_freqs.weight", {2}, {1, 8})
                                .floats("blk.0.ffn_gate_inp.weight", {3, 8}, std::vector<float>(24, 1))
                                .floats("blk.0.ffn_down_exps.weight", {3, 8, 16},
                                        [] {
                                          std::vector<float> values(384);
                                          std::iota(values.begin(), values.end(), 0.0F);
                                          return values;
                                        }())
                                .bytes();
  const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const auto config = model_config_of(*gguf);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, Architecture::kMixtral);
  EXPECT_EQ(config->experts, 3);
  EXPECT_THAT(config->rope_scaling.factors, ElementsAre(1, 8));
  const auto tensors = tensors_of(*gguf);
  ASSERT_TRUE(tensors.ok());
  bool found = false;
  for (const TensorView& tensor : *tensors) {
    if (tensor.name != "model.layers.0.block_sparse_moe.experts.2.w2.weight") continue;
    found = true;
    EXPECT_THAT(tensor.shape, ElementsAre(8, 16));
    std::vector<float> first(2);
    copy_as_float(tensor, first);
    EXPECT_THAT(first, ElementsAre(256, 257));
  }
  EXPECT_TRUE(found);
}

// The same tokenizer as GGUF metadata: tokens by id, and merges or, for SentencePiece, scores.
GgufWriter as_metadata(const json& tokenizer, const char* kind, const char* pre) {
  const json& model = tokenizer["model"];
  std::map<std::int64_t, std::pair<std::string, int>> by_id;
  for (const auto& [text, id] : model["vocab"].items()) {
    by_id[id.get<std::int64_t>()] = {text, text.starts_with("<0x") && text.size() == 6 ? 6 : 1};
  }
  for (const json& added : tokenizer["added_tokens"])
    by_id[added["id"].get<std::int64_t>()] = {added["content"], added["special"] ? 3 : 4};
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  std::map<std::string, float> scores;
  for (const json& merge : model["merges"]) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    const std::size_t space = merges.back().find(' ');
    scores.emplace(merges.back().substr(0, space) + merges.back().substr(space + 1), -static_cast<float>(scores.size()));
  }
  std::vector<float> by_token;
  for (const auto& [id, token] : by_id) {
    tokens.push_back(token.first);
    types.push_back(token.second);
    by_token.push_back(scores.contains(token.first) ? scores[token.first] : -1e6F);
  }
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", kind).texts("tokenizer.ggml.tokens", tokens).wholes("tokenizer.ggml.token_type", types);
  if (pre != nullptr) return writer.text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.merges", merges);
  return writer.numbers("tokenizer.ggml.scores", by_token);
}

// Given tokenizers in both formats; expects the same ids.
TEST(GgufTokenizer, IsTheSameAsTokenizerJson) {
  struct Case {
    const char* golden;
    const char* kind;
    const char* pre;
  };
  for (const Case& each : {Case{"gpt2", "gpt2", "gpt-2"}, Case{"qwen2", "gpt2", "qwen2"}, Case{"llama2", "llama", nullptr}}) {
    SCOPED_TRACE(each.golden);
    const std::string file = source_path(fmt::format("/tests/golden/tokenizers/{}/tokenizer.json", each.golden));
    const std::string text = read_bytes(file);
    const auto expected = Tokenizer::parse(text, file);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const TemporaryFolder folder;
    write_bytes(folder.path() / "t.gguf", as_metadata(json::parse(text), each.kind, each.pre).bytes());
    const auto found = Tokenizer::load(folder.path() / "t.gguf");
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->size(), expected->size());
    for (const char* words : {"", "Hello world", " the anchor chain's 12345 links\n\n  hold",
                              "h\xC3\xA9llo \xF0\x9F\x99\x82 \xE4\xBD\xA0\xE5\xA5\xBD", "a<|end|>b <s> </s>",
                              "\t\tif (x) { return 3.14; }", "we've DON'T I'll"}) {
      EXPECT_EQ(found->encode(words, SpecialText::kParse), expected->encode(words, SpecialText::kParse)) << words;
    }
  }
}

// Given SmolLM2's kind of tokenizer, whose vocabulary lacks some bytes and which splits off digits; expects the ids of its
// tokenizer.json.
TEST(GgufTokenizer, SmollmLacksBytesAndCutsOutDigits) {
  json root = json::parse(read_bytes(source_path("/tests/golden/tokenizers/gpt2/tokenizer.json")));
  json& vocab = root["model"]["vocab"];
  const std::string byte = byte_alphabet()[4];
  vocab[byte + byte] = vocab[byte];
  vocab.erase(byte);
  const TemporaryFolder folder;
  write_bytes(folder.path() / "t.gguf", as_metadata(root, "gpt2", "smollm").bytes());
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Digits"}, {"individual_digits", true}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  const auto expected = Tokenizer::parse(root.dump(), "tokenizer.json");
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const auto found = Tokenizer::load(folder.path() / "t.gguf");
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (const char* words : {"the anchor 12345 x7",
                            "a\x04"
                            "b",
                            "\x04", " 1 22\n\n333"}) {
    EXPECT_EQ(found->encode(words, SpecialText::kParse), expected->encode(words, SpecialText::kParse)) << words;
  }
  EXPECT_THAT(found->encode("\x04", SpecialText::kParse), ElementsAre());
}

// Given an unsupported vocabulary; expects an error with the field, the rule and the value.
TEST(GgufTokenizer, NamesWhatIsWrong) {
  const auto error = [](const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const auto gguf = Gguf::parse(as_span(bytes), "m.gguf");
    EXPECT_TRUE(gguf.ok());
    const auto made = tokenizer_json_of(*gguf);
    return made.ok() ? std::string() : made.error().message;
  };
  const auto tokens = [](std::vector<std::string> texts) { return GgufWriter().texts("tokenizer.ggml.tokens", texts); };
  EXPECT_THAT(error(tokens({"a"}).text("tokenizer.ggml.model", "bert")), Says("must be 'gpt2' or 'llama'*(got 'bert')"));
  EXPECT_THAT(error(tokens({"a"}).text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "dbrx")),
              Says("field 'tokenizer.ggml.pre': must be 'gpt-2', 'smollm'*(got 'dbrx')"));
  EXPECT_THAT(error(tokens({"a"}).text("tokenizer.ggml.model", "llama").numbers("tokenizer.ggml.scores", {})),
              Says("field 'tokenizer.ggml.scores': must be as many as tokens (1)*(got 0 of them)"));
  EXPECT_THAT(error(tokens({"\xFF"}).text("tokenizer.ggml.model", "gpt2")),
              Says("tokenizer.ggml.tokens[0]': must be UTF-8*(got '?')"));
}

// Given a template in the file; expects it to be used, with the tokens named by the fields.
TEST(GgufTokenizer, HasTheChatTemplate) {
  const std::string text = read_bytes(source_path("/tests/golden/tokenizers/gpt2/tokenizer.json"));
  const TemporaryFolder folder;
  write_bytes(folder.path() / "t.gguf", as_metadata(json::parse(text), "gpt2", "gpt-2")
                                            .whole("tokenizer.ggml.eos_token_id", 0)
                                            .text("tokenizer.chat_template", "{{ messages[0]['content'] }}!{{ eos_token }}")
                                            .bytes());
  const auto tokenizer = Tokenizer::load(folder.path() / "t.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto chat = ChatTemplate::load(*tokenizer, folder.path() / "t.gguf", "");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_THAT(chat->name(), HasSubstr("t.gguf: 'chat_template'"));
  const auto ids = chat->render({{"user", "hello"}}, nlohmann::ordered_json::object(), 0);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_THAT(tokenizer->decode(*ids, true), HasSubstr("hello!"));
}

}  // namespace
}  // namespace windlass::worker
