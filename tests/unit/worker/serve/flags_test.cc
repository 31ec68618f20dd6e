// Flags: defaults, and a one-line error for every mistake that names the flag, the rule and the value.
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

// Given only --model and --port; expects the documented defaults for the rest.
TEST(Flags, Defaults) {
  const auto command = parse_flags({"--model", "/models/tiny/", "--port", "9001"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& flags = std::get<ServeFlags>(*command);
  EXPECT_EQ(flags.host, "127.0.0.1");
  EXPECT_EQ(flags.port, 9001);
  EXPECT_EQ(flags.served_name, "tiny");
  EXPECT_EQ(flags.backend, "cpu");
  EXPECT_EQ(flags.max_concurrent, 8);
  EXPECT_EQ(flags.max_batch_tokens, 0);
  EXPECT_EQ(flags.threads, 1);
  EXPECT_FALSE(flags.pin_threads);
  EXPECT_EQ(flags.drain_timeout_s, 1800);
  EXPECT_EQ(flags.role, Role::kUnified);
  EXPECT_EQ(flags.request_timeout_s, 0);
  EXPECT_EQ(flags.measure_time_s, 2);
}

// Given budgets of tokens per iteration; expects those in range that have a token for each request, up to the size of a chain's
// messages where the worker has a part of the model.
TEST(Flags, MaxBatchTokens) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model=/m", "--port=1", "--max-concurrent=64"});
    return more;
  };
  const auto command = parse_flags(with({"--max-batch-tokens=64"}), "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<ServeFlags>(*command).max_batch_tokens, 64);
  EXPECT_TRUE(parse_flags(with({"--max-batch-tokens=65536"}), "v").ok());
  EXPECT_TRUE(parse_flags(with({"--max-batch-tokens=1024", "--blocks=0:2"}), "v").ok());
  for (const auto& [wrong, because] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--max-batch-tokens=63"}, "--max-batch-tokens: must be at least --max-concurrent, which is 64 (got 63)"},
           {{"--max-batch-tokens=-1"}, "--max-batch-tokens: must be 1 to 65536 (got -1)"},
           {{"--max-batch-tokens=65537"}, "--max-batch-tokens: must be 1 to 65536 (got 65537)"},
           {{"--max-batch-tokens=1025", "--blocks=0:2"}, "--max-batch-tokens: must be 1 to 1024 (got 1025)"}}) {
    EXPECT_EQ(flags_error(with(wrong)), because);
  }
}

// Given --pin-threads; expects pinned threads on CPUs, and an error with other backends.
TEST(Flags, PinnedThreads) {
  const auto command = parse_flags({"--model=/m", "--port=1", "--threads=4", "--pin-threads"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_TRUE(std::get<ServeFlags>(*command).pin_threads);
  EXPECT_THAT(flags_error({"--model=/m", "--port=1", "--backend=cuda", "--pin-threads"}),
              HasSubstr("--pin-threads: must be given only with --backend cpu (got cuda)"));
}

// Given a degree of tensor parallelism; expects it in the flags. Flags between ranks are not for users.
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
  EXPECT_THAT(with({"--tensor-parallel=0"}), HasSubstr("--tensor-parallel: must be 1 to 64 (got 0)"));
  EXPECT_THAT(with({"--tensor-parallel=65"}), HasSubstr("--tensor-parallel: must be 1 to 64 (got 65)"));
  EXPECT_TRUE(parse_flags({"--model=/m", "--port=1", "--tensor-parallel=2", "--backend=cuda", "--blocks=0:2"}, "v").ok());
  EXPECT_THAT(with({"--backend=cuda", "--weights=blocks"}),
              HasSubstr("--weights: must be fp8 or int8 with --backend cuda (got blocks)"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--backend=cuda", "--weights=bf16"}),
              HasSubstr("--weights: must be fp8 or int8 with --backend cuda (got bf16)"));
  EXPECT_THAT(with({"--tensor-rank=1"}), HasSubstr("--tensor-rank: must be 0 to 0 (got 1)"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--tensor-rank=1"}), HasSubstr("rank 0 starts the others itself"));
  EXPECT_THAT(with({"--tensor-parallel=2", "--tensor-memory=5"}), HasSubstr("rank 0 starts the others itself"));
}

// Given the arguments of a pod; expects all of them in the flags.
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

// Given --listen with an IPv6 address; expects host and port without brackets, and an error without brackets or with port 0.
TEST(Flags, ListensOnIpv6) {
  const auto command = parse_flags({"--model=/m", "--listen=[::1]:8000"}, "v");
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<ServeFlags>(*command).host, "::1");
  EXPECT_EQ(std::get<ServeFlags>(*command).port, 8000);
  EXPECT_THAT(flags_error({"--model=/m", "--listen=::1:8000"}),
              ::testing::AllOf(HasSubstr("--listen: "), HasSubstr("HOST:PORT")));
  EXPECT_THAT(flags_error({"--model=/m", "--listen=h:0"}), HasSubstr("--listen: must have a port from 1 to 65535 (got 'h:0')"));
}

// Given a part of the model; expects its blocks and the next workers, and contradictions to be refused by flag.
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
    EXPECT_THAT(flags_error(with({"--blocks", wrong})),
                HasSubstr(std::string("--blocks: must be A:B with whole numbers 0 <= A < B (got '") + wrong))
        << wrong;
  }
  EXPECT_THAT(flags_error(with({"--blocks", "2:5", "--next", "a:1"})),
              HasSubstr("--next: must be given only with --blocks 0:B (got a:1)"));
  EXPECT_THAT(flags_error(with({"--next", "a:1"})), HasSubstr("--next: must be given only with --blocks 0:B (got a:1)"));
  EXPECT_THAT(flags_error(with({"--blocks", "0:5", "--next", "a"})), HasSubstr("--next: must be up to "));
  EXPECT_THAT(flags_error(with({"--blocks", "0:5", "--role", "decode"})),
              HasSubstr("--role: must be unified with --blocks (got decode)"));

  ModelConfig config;
  config.layers = 8;
  EXPECT_EQ(*blocks_of(flags, config), (BlockRange{0, 5}));
  config.layers = 4;
  EXPECT_THAT(blocks_of(flags, config).error().message,
              HasSubstr("--blocks: must end at 4 or before, the model's number of blocks (got 0:5)"));
  config.layers = 5;
  EXPECT_THAT(blocks_of(flags, config).error().message, HasSubstr("--next: must not be given (got 10.0.0.2:8000)"));
}

// Given model init with some flags; expects defaults for the rest, and an error by flag for a bad shape.
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
            "--architecture: must be one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, opt (got 'gpt2')");
  const auto opt = parse_flags({"model", "init", "--architecture", "opt", "/tmp/x"}, "v");
  ASSERT_TRUE(opt.ok()) << opt.error().message;
  EXPECT_EQ(std::get<ModelInitFlags>(*opt).shape.kv_heads, 8) << "as many as heads";
  EXPECT_EQ(flags_error({"model", "init", "--architecture", "opt", "--kv-heads", "4", "/tmp/x"}),
            "--kv-heads: must equal heads for opt, which is 8 (got 4)");
  const auto mixtral = parse_flags({"model", "init", "--architecture", "mixtral", "--experts", "4", "/tmp/x"}, "v");
  ASSERT_TRUE(mixtral.ok()) << mixtral.error().message;
  EXPECT_EQ(std::get<ModelInitFlags>(*mixtral).shape.experts, 4);
  EXPECT_EQ(std::get<ModelInitFlags>(*mixtral).shape.experts_per_token, 2);
  EXPECT_EQ(flags_error({"model", "init", "--experts", "4", "/tmp/x"}),
            "--experts: must be given only for mixtral and qwen3_moe (got 4)");
  EXPECT_THAT(flags_error({"model", "init", "--architecture", "qwen3_moe", "--experts-per-token", "9", "/tmp/x"}),
              HasSubstr("--experts-per-token: must be at most experts, which is 8 (got 9)"));
  EXPECT_THAT(flags_error({"model", "init", "--layers", "0", "/tmp/x"}), HasSubstr("--layers: must be 1 to 1024 (got 0)"));
  EXPECT_THAT(flags_error({"model", "init"}), HasSubstr("folder"));
}

// Given a weight format; expects it, or an error that lists the allowed ones. Given none; expects a GGUF file to stay in its
// blocks.
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
            "--weights: must be one of fp32, bf16, int8, fp8, blocks (got 'int4')");
}

// Given --help and --version; expects text to print.
TEST(Flags, HelpAndVersion) {
  EXPECT_THAT(std::get<PrintAndExit>(*parse_flags({"--help"}, "v")).text, HasSubstr("--drain-timeout"));
  EXPECT_THAT(std::get<PrintAndExit>(*parse_flags({"--version"}, "windlass-worker 9")).text, HasSubstr("windlass-worker 9"));
}

// Given mistakes; expects messages that name the flag, the rule and the value.
TEST(Flags, NamesMistakes) {
  EXPECT_THAT(flags_error({"--port", "1"}), HasSubstr("--model: must be a model folder or a GGUF file (got nothing)"));
  EXPECT_THAT(flags_error({"--model", "m"}), HasSubstr("--port: must be given, or --listen HOST:PORT (got neither)"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "0"}), HasSubstr("--port: must be 1 to 65535 (got 0)"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--role", "both"}),
              HasSubstr("--role: must be unified, prefill or decode (got 'both')"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "many"}), HasSubstr("--port"));
  EXPECT_THAT(flags_error({"--model", "m", "--listen", "nowhere"}), HasSubstr("--listen: "));
  EXPECT_THAT(flags_error({"--model", "m", "--listen", "h:1", "--port", "2"}),
              HasSubstr("--port: must equal the port of --listen, which is 1 (got 2)"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "tpu"}),
              HasSubstr("--backend: must be cpu or cuda (got 'tpu')"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--precision", "bf16"}),
              HasSubstr("--precision: must be fp32 with --backend cpu (got 'bf16')"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "cuda", "--precision", "fp8"}),
              HasSubstr("--precision: must be bf16 or fp32 with --backend cuda (got 'fp8')"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--backend", "cuda", "--activations", "int8"}),
              HasSubstr("--activations: must be bf16 or fp8 (got 'int8')"));
  const std::vector<std::string> fp8 = {"--model", "m", "--port", "1", "--backend", "cuda", "--activations", "fp8"};
  EXPECT_THAT(flags_error(fp8),
              HasSubstr("--activations: must be bf16 without --backend cuda, --weights fp8 and --precision bf16 (got fp8)"));
  auto allowed = fp8;
  allowed.insert(allowed.end(), {"--weights", "fp8"});
  const auto parsed = parse_flags(allowed, "v");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(std::get<ServeFlags>(*parsed).fp8_activations);
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--gpu-memory-share", "1.5"}),
              HasSubstr("--gpu-memory-share: must be above 0 and at most 1 (got 1.5)"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--max-concurrent", "0"}),
              HasSubstr("--max-concurrent: must be 1 to 1024 (got 0)"));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--drain-timeout", "soon"}), HasSubstr("--drain-timeout: "));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--measure-time", "2"}),
              ::testing::AllOf(HasSubstr("--measure-time: "), HasSubstr("a duration")));
  EXPECT_THAT(flags_error({"--model", "m", "--port", "1", "--speed", "9"}), HasSubstr("--speed"));
}

// Given a model of 2,048 tokens; expects sizes that do not fit it or each other to be refused by flag, and the default cache to
// hold all concurrent requests.
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
  // With fewer layers, 2 GiB hold more positions.
  flags.max_concurrent = 1024;
  EXPECT_EQ(engine_sizes(flags, config, config.all_blocks())->kv_blocks * kKvBlockTokens, 524288);
  EXPECT_EQ(engine_sizes(flags, config, {1, 3})->kv_blocks * kKvBlockTokens, 1048576);
  flags.max_context_tokens = 4096;
  EXPECT_THAT(engine_sizes(flags, config, config.all_blocks()).error().message,
              HasSubstr("--max-context-tokens: must be at most the model's max_position_embeddings"));
  flags.max_context_tokens = 512;
  flags.kv_cache_tokens = 256;
  EXPECT_THAT(engine_sizes(flags, config, config.all_blocks()).error().message,
              HasSubstr("--kv-cache-tokens: must be at least one whole context, which is 512 (got 256)"));
}

// Given --backend cuda without a GPU; expects loading to fail with the reason.
TEST(Flags, CudaBackendWithoutAGpuIsAnError) {
  if (cuda::usable_devices().ok()) GTEST_SKIP() << "this machine has a GPU: " << cuda::describe();
  SteadyClock clock;
  metrics::Registry registry;
  const metrics::WorkerMetrics metrics(registry, "m");
  ServeFlags flags;
  flags.backend = "cuda";
  const auto model = ModelHost(flags, clock, metrics, {}).load();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message,
              HasSubstr("--backend: must be cpu here (got cuda): " + cuda::usable_devices().error().message));
}

}  // namespace
}  // namespace windlass::worker
