// Flags: defaults, and one line for every mistake that names flag, found and allowed.
#include "worker/serve/flags.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/serve/served_model.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;

std::string flags_error(const std::vector<std::string>& arguments) {
  const auto command = parse_flags(arguments, "v");
  EXPECT_FALSE(command.ok());
  if (command.ok()) return "";
  EXPECT_EQ(command.error().message.find('\n'), std::string::npos);
  return command.error().message;
}

// Given --model and --port alone, the rest has the documented defaults.
TEST(Flags, Defaults) {
  const auto command = parse_flags({"--model", "/models/tiny/", "--port", "9001"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& flags = std::get<ServeFlags>(*command);
  EXPECT_EQ(flags.host, "127.0.0.1");
  EXPECT_EQ(flags.port, 9001);
  EXPECT_EQ(flags.served_name, "tiny");
  EXPECT_EQ(flags.backend, "cpu");
  EXPECT_EQ(flags.max_concurrent, 8);
  EXPECT_EQ(flags.threads, 1);
  EXPECT_FALSE(flags.pin_threads);
  EXPECT_EQ(flags.drain_timeout_s, 1800);
  EXPECT_EQ(flags.role, Role::kUnified);
  EXPECT_EQ(flags.request_timeout_s, 0);
  EXPECT_EQ(flags.measure_time_s, 2);
}

// Threads are pinned where that is asked for, and on CPUs alone.
TEST(Flags, PinnedThreads) {
  const auto command = parse_flags({"--model=/m", "--port=1", "--threads=4", "--pin-threads"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_TRUE(std::get<ServeFlags>(*command).pin_threads);
  EXPECT_THAT(flags_error({"--model=/m", "--port=1", "--backend=cuda", "--pin-threads"}),
              HasSubstr("--pin-threads: found with --backend cuda, allowed with cpu alone"));
}

// Given a degree of tensor parallelism, it arrives; what the ranks pass to each other is no user's flag.
TEST(Flags, TensorParallel) {
  const auto command = parse_flags({"--model=/m", "--port=1", "--tensor-parallel=4"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<ServeFlags>(*command).tensor_parallel, 4);
  const auto rank = parse_flags({"--model=/m", "--port=1", "--tensor-parallel=4", "--tensor-rank=3", "--tensor-memory=5"}, "v");
  ASSERT_TRUE(rank.ok()) << rank.error().message;
  EXPECT_EQ(std::get<ServeFlags>(*rank).tensor_rank, 3);
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model=/m", "--port=1"});
    return flags_error(more);
  };
  EXPECT_THAT(with({"--tensor-parallel=0"}), HasSubstr("--tensor-parallel: found 0, allowed is 1 to 64"));
  EXPECT_THAT(with({"--tensor-parallel=65"}), HasSubstr("--tensor-parallel: found 65, allowed is 1 to 64"));
  EXPECT_TRUE(parse_flags({"--model=/m", "--port=1", "--tensor-parallel=2", "--backend=cuda", "--blocks=0:2"}, "v").ok());
  EXPECT_THAT(with({"--backend=cuda", "--weights=blocks"}),
              HasSubstr("--weights: found blocks, allowed together with --backend"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--backend=cuda", "--weights=bf16"}),
              HasSubstr("--weights: found bf16, allowed together with --backend cuda are fp8 and int8"));
  EXPECT_THAT(with({"--tensor-rank=1"}), HasSubstr("--tensor-rank: found 1, allowed is 0 to 0"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--tensor-rank=1"}), HasSubstr("rank 0 starts the others itself"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--tensor-memory=5"}), HasSubstr("rank 0 starts the others itself"));
}

// Given what a pod passes, everything arrives.
TEST(Flags, PodArguments) {
  const auto command =
      parse_flags({"--model=/m", "--listen=10.1.2.3:8000", "--name=ns/x", "--max-concurrent=3", "--max-context-tokens=100",
                   "--drain-timeout=1m30s", "--kv-cache-tokens=400", "--measure-time=500ms"},
                  "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& flags = std::get<ServeFlags>(*command);
  EXPECT_EQ(flags.host, "10.1.2.3");
  EXPECT_EQ(flags.port, 8000);
  EXPECT_EQ(flags.served_name, "ns/x");
  EXPECT_EQ(flags.max_concurrent, 3);
  EXPECT_EQ(flags.max_context_tokens, 100);
  EXPECT_EQ(flags.kv_cache_tokens, 400);
  EXPECT_EQ(flags.drain_timeout_s, 90);
  EXPECT_EQ(flags.measure_time_s, 0.5);
}

// Given --listen with an IPv6 address, host and port arrive without the brackets; without brackets, or with port 0, it is
// refused.
TEST(Flags, ListensOnIpv6) {
  const auto command = parse_flags({"--model=/m", "--listen=[::1]:8000"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<ServeFlags>(*command).host, "::1");
  EXPECT_EQ(std::get<ServeFlags>(*command).port, 8000);
  EXPECT_THAT(flags_error({"--model=/m", "--listen=::1:8000"}), HasSubstr("--listen: found '::1:8000', allowed is HOST:PORT"));
  EXPECT_THAT(flags_error({"--model=/m", "--listen=h:0"}), HasSubstr("--listen: found 'h:0', allowed is a port from 1 to"));
}

// Given a part of the model, its blocks and the workers after it arrive; what contradicts itself is refused by flag.
TEST(Flags, Blocks) {
  const std::vector<std::string> base = {"--model=/m", "--port=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const auto command = parse_flags(with({"--blocks", "0:5", "--next", "10.0.0.2:8000,[::1]:9000"}), "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& flags = std::get<ServeFlags>(*command);
  EXPECT_EQ(flags.blocks, (BlockRange{0, 5}));
  EXPECT_THAT(flags.next_hops, ::testing::ElementsAre("10.0.0.2:8000", "[::1]:9000"));
  for (const char* wrong : {"5", "5:", ":5", "5:5", "6:5", "-1:5", "0:5x", "0:5:6", "99999999999999999999:1"}) {
    EXPECT_THAT(flags_error(with({"--blocks", wrong})), HasSubstr(std::string("--blocks: found '") + wrong)) << wrong;
  }
  EXPECT_THAT(flags_error(with({"--blocks", "2:5", "--next", "a:1"})), HasSubstr("--next: found a:1, allowed together with"));
  EXPECT_THAT(flags_error(with({"--next", "a:1"})), HasSubstr("--next: found a:1"));
  EXPECT_THAT(flags_error(with({"--blocks", "0:5", "--next", "a"})), HasSubstr("--next: found \"a\""));
  EXPECT_THAT(flags_error(with({"--blocks", "0:5", "--role", "decode"})), HasSubstr("--role: found decode"));

  ModelConfig config;
  config.layers = 8;
  EXPECT_EQ(*blocks_of(flags, config), (BlockRange{0, 5}));
  config.layers = 4;
  EXPECT_THAT(blocks_of(flags, config).error().message, HasSubstr("--blocks: found 0:5, allowed is up to 4"));
  config.layers = 5;
  EXPECT_THAT(blocks_of(flags, config).error().message, HasSubstr("--next: found 10.0.0.2:8000"));
}

// Given model init with some flags, the rest has its defaults; a bad shape is a bad flag.
TEST(Flags, ModelInit) {
  EXPECT_THAT(flags_error({"model", "init", "--seed", "-1", "/tmp/x"}), HasSubstr("--seed"));
  const auto command = parse_flags({"model", "init", "--layers", "2", "--seed", "9", "/tmp/x"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& init = std::get<ModelInitFlags>(*command);
  EXPECT_EQ(init.shape.layers, 2);
  EXPECT_EQ(init.shape.hidden, 256);
  EXPECT_EQ(init.shape.vocab, 512);
  EXPECT_EQ(init.shape.seed, 9U);
  EXPECT_EQ(init.folder, "/tmp/x");
  const auto qwen = parse_flags({"model", "init", "--architecture", "qwen3", "/tmp/x"}, "v");
  ASSERT_TRUE(qwen.ok());
  EXPECT_EQ(std::get<ModelInitFlags>(*qwen).shape.architecture, Architecture::kQwen3);
  EXPECT_EQ(flags_error({"model", "init", "--architecture", "gpt2", "/tmp/x"}),
            "--architecture: found 'gpt2', allowed are llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, opt");
  const auto opt = parse_flags({"model", "init", "--architecture", "opt", "/tmp/x"}, "v");
  ASSERT_TRUE(opt.ok()) << opt.error().message;
  EXPECT_EQ(std::get<ModelInitFlags>(*opt).shape.kv_heads, 8) << "as many as heads";
  EXPECT_EQ(flags_error({"model", "init", "--architecture", "opt", "--kv-heads", "4", "/tmp/x"}),
            "--kv-heads: found 4, allowed for opt is heads (8)");
  const auto mixtral = parse_flags({"model", "init", "--architecture", "mixtral", "--experts", "4", "/tmp/x"}, "v");
  ASSERT_TRUE(mixtral.ok()) << mixtral.error().message;
  EXPECT_EQ(std::get<ModelInitFlags>(*mixtral).shape.experts, 4);
  EXPECT_EQ(std::get<ModelInitFlags>(*mixtral).shape.experts_per_token, 2);
  EXPECT_EQ(flags_error({"model", "init", "--experts", "4", "/tmp/x"}),
            "--experts: found 4, allowed for mixtral and qwen3_moe alone");
  EXPECT_THAT(flags_error({"model", "init", "--architecture", "qwen3_moe", "--experts-per-token", "9", "/tmp/x"}),
              HasSubstr("--experts-per-token: found 9, allowed is at most experts (8)"));
  EXPECT_THAT(flags_error({"model", "init", "--layers", "0", "/tmp/x"}), HasSubstr("--layers: found 0"));
  EXPECT_THAT(flags_error({"model", "init"}), HasSubstr("folder"));
}

// Given a format of weights, it is taken; another is named with what is allowed. Given none, a GGUF file stays in its blocks.
TEST(Flags, Weights) {
  const auto weights_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--port", "1"};
    if (std::find(more.begin(), more.end(), "--model") == more.end()) words.insert(words.end(), {"--model", "/no/such/model"});
    words.insert(words.end(), more.begin(), more.end());
    return std::get<ServeFlags>(*parse_flags(words, "v")).weights;
  };
  EXPECT_EQ(weights_of({}), WeightFormat::kFp32);
  EXPECT_EQ(weights_of({"--weights", "bf16"}), WeightFormat::kBf16);
  EXPECT_EQ(weights_of({"--weights", "int8"}), WeightFormat::kInt8);
  EXPECT_EQ(weights_of({"--weights", "fp8"}), WeightFormat::kFp8);
  EXPECT_EQ(weights_of({"--weights", "blocks"}), WeightFormat::kBlocks);
  const std::string gguf = source_path("/tests/golden/gguf/tiny.gguf");
  EXPECT_EQ(weights_of({"--model", gguf}), WeightFormat::kBlocks);
  EXPECT_EQ(weights_of({"--model", gguf, "--weights", "fp32"}), WeightFormat::kFp32);
  EXPECT_EQ(flags_error({"--model", "/no/such/model", "--port", "1", "--weights", "int4"}),
            "--weights: found 'int4', allowed are fp32, bf16, int8, fp8, blocks");
}

// Given --help and --version, there is text to print.
TEST(Flags, HelpAndVersion) {
  EXPECT_THAT(std::get<PrintAndExit>(*parse_flags({"--help"}, "v")).text, HasSubstr("--drain-timeout"));
  EXPECT_THAT(std::get<PrintAndExit>(*parse_flags({"--version"}, "windlass-worker 9")).text, HasSubstr("windlass-worker 9"));
}

// Given mistakes, the message names the flag, what was found and what is allowed.
TEST(Flags, NamesMistakes) {
  EXPECT_THAT(flags_error({"--port", "1"}), HasSubstr("--model: found nothing"));
  EXPECT_THAT(flags_error({"--model", "m"}), HasSubstr("--port: found nothing"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "0"}), HasSubstr("--port: found 0, allowed is 1 to 65535"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--role", "both"}),
              HasSubstr("--role: found 'both', allowed is unified, prefill or decode"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "many"}), HasSubstr("--port"));
  EXPECT_THAT(flags_error({"--model", "m", "--listen", "nowhere"}), HasSubstr("--listen: found 'nowhere'"));
  EXPECT_THAT(flags_error({"--model", "m", "--listen", "h:1", "--port", "2"}),
              HasSubstr("--port: found 2, but --listen says 1"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "tpu"}),
              HasSubstr("--backend: found 'tpu', allowed is cpu or cuda"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--precision", "bf16"}),
              HasSubstr("--precision: found 'bf16', allowed with --backend cpu is fp32"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "cuda", "--precision", "fp8"}),
              HasSubstr("--precision: found 'fp8', allowed with --backend cuda is bf16 or fp32"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "cuda", "--activations", "int8"}),
              HasSubstr("--activations: found 'int8', allowed is bf16 or fp8"));
  const std::vector<std::string> fp8 = {"--model", "m", "--port", "1", "--backend", "cuda", "--activations", "fp8"};
  EXPECT_THAT(flags_error(fp8), HasSubstr("--activations: found fp8, allowed together with --backend cuda --weights fp8"));
  auto allowed = fp8;
  allowed.insert(allowed.end(), {"--weights", "fp8"});
  const auto parsed = parse_flags(allowed, "v");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(std::get<ServeFlags>(*parsed).fp8_activations);
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--gpu-memory-share", "1.5"}),
              HasSubstr("--gpu-memory-share: found 1.5, allowed is above 0 and at most 1"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--max-concurrent", "0"}), HasSubstr("--max-concurrent: found 0"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--drain-timeout", "soon"}),
              HasSubstr("--drain-timeout: found 'soon'"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--measure-time", "2"}),
              HasSubstr("--measure-time: found '2', allowed is a duration"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--speed", "9"}), HasSubstr("--speed"));
}

// Given a model of 2,048 tokens, sizes that do not fit it or each other are refused by flag; the default cache holds all that
// may run at once.
TEST(Flags, EngineSizes) {
  ModelConfig config;
  config.layers = 4;
  config.kv_heads = 4;
  config.head_dim = 32;
  config.max_context_tokens = 2048;
  ServeFlags flags;
  auto sizes = engine_sizes(flags, config, config.all_blocks());
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes->max_context_tokens, 2048);
  EXPECT_EQ(sizes->kv_blocks * kKvBlockTokens, 8 * 2048);
  // Within 2 GiB there is room for more positions where there are fewer layers.
  flags.max_concurrent = 1024;
  EXPECT_EQ(engine_sizes(flags, config, config.all_blocks())->kv_blocks * kKvBlockTokens, 524288);
  EXPECT_EQ(engine_sizes(flags, config, {1, 3})->kv_blocks * kKvBlockTokens, 1048576);
  flags.max_context_tokens = 4096;
  EXPECT_THAT(engine_sizes(flags, config, config.all_blocks()).error().message,
              HasSubstr("--max-context-tokens: found 4096, allowed is at most"));
  flags.max_context_tokens = 512;
  flags.kv_cache_tokens = 256;
  EXPECT_THAT(engine_sizes(flags, config, config.all_blocks()).error().message,
              HasSubstr("--kv-cache-tokens: found 256, allowed is at least one whole context (512)"));
}

// Given --backend cuda where no GPU is, loading says so and why.
TEST(Flags, CudaBackendIsAnsweredHonestly) {
  if (cuda::usable_devices().ok()) GTEST_SKIP() << "this machine has a GPU: " << cuda::describe();
  SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, "m");
  ServeFlags flags;
  flags.backend = "cuda";
  const auto model = ModelHost(flags, clock, metrics, {}).load();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message,
              HasSubstr("--backend: found cuda, allowed is cpu here: " + cuda::usable_devices().error().message));
}

}  // namespace
}  // namespace windlass::worker
