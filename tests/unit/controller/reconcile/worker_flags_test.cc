// The command line that the controller gives to windlass-worker, parsed by that program: every kind of worker that a plan can
// have, and what a user may add.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/reconcile/spec.h"
#include "controller/runtime/engine_args.h"
#include "controller/runtime/pod.h"
#include "planner/deployment/engine_space.h"
#include "planner/sizing/worker_config.h"
#include "worker/collective/rank_group.h"
#include "worker/model/tensor_slice.h"
#include "worker/serve/flags.h"

namespace windlass::controller {
namespace {

using worker::ServeFlags;

// A worker as a ModelService and its plan define it.
struct Asked {
  dispatch::Role role = dispatch::Role::kUnified;
  std::string resource = "nvidia.com/gpu";
  int gpus = 1;
  std::int64_t context_tokens = 0;
  std::vector<std::string> args = {};
  std::string pod_template = "";
  double drain_timeout_s = 5400;
  std::string pod_ip = "10.1.2.3";
  planner::EngineSettings settings = {};
  int stages = 1;
  int stage = 0;
};

constexpr int kBatch = 37;
constexpr int kLayers = 80;

// The arguments with which the kubelet starts the pod's container; the pod has its address by then.
std::vector<std::string> arguments_of(const Asked& asked) {
  api::ModelService service;
  service.metadata.name = "chat";
  service.metadata.name_space = "team";
  service.spec.model.served_name = "team/chat:8b";
  service.spec.model.uri = "pvc://models/llama/8b";
  if (asked.context_tokens > 0) service.spec.model.max_context_tokens = asked.context_tokens;
  service.spec.engine.args = asked.args;
  service.spec.engine.pod_template_json = asked.pod_template;
  service.spec.scaling.drain_timeout_s = asked.drain_timeout_s;
  api::AcceleratorClass accelerator;
  accelerator.spec.resource_name = asked.resource;
  planner::Pool pool;
  pool.name = "pool";
  pool.role = asked.role;
  pool.spec.tensor_parallel = asked.gpus;
  pool.spec.pipeline_stages = asked.stages;
  pool.spec.engine = asked.settings;
  pool.each.max_concurrency = kBatch;
  Launch launch = worker_spec(service, pool, 0, accelerator, kLayers);
  launch.stage = asked.stage;
  const auto pod = pod_of(launch, {"registry.example/worker:1", ""});
  EXPECT_TRUE(pod.ok()) << pod.error().message;
  if (!pod.ok()) return {};
  const auto& container = (*pod)["spec"]["containers"][0];
  EXPECT_FALSE(container.contains("command")) << "the image's own program is the worker";
  auto words = container["args"].get<std::vector<std::string>>();
  for (std::string& word : words) {
    const std::string role = (*pod)["metadata"]["labels"]["windlass.dev/role"];
    for (const auto& [variable, value] :
         {std::pair<std::string, std::string>("$(POD_IP)", asked.pod_ip), {"$(WINDLASS_ROLE)", role}}) {
      if (const auto at = word.find(variable); at != std::string::npos) word.replace(at, variable.size(), value);
    }
  }
  return words;
}

ServeFlags flags_of(const Asked& asked) {
  const std::vector<std::string> words = arguments_of(asked);
  const auto command = worker::parse_flags(words, "v");
  EXPECT_TRUE(command.ok()) << command.error().message << " in " << ::testing::PrintToString(words);
  const auto* flags = command.ok() ? std::get_if<ServeFlags>(&*command) : nullptr;
  EXPECT_NE(flags, nullptr) << "a worker that serves";
  return flags == nullptr ? ServeFlags() : *flags;
}

// Given a chain of three servers with two GPUs each; expects each server's part of the layers, and its two GPUs.
TEST(WorkerFlags, OfAChain) {
  const std::vector<worker::BlockRange> parts = {{0, 26}, {26, 53}, {53, 80}};
  for (int stage = 0; stage < 3; ++stage) {
    const ServeFlags flags = flags_of({.gpus = 2, .stages = 3, .stage = stage});
    EXPECT_EQ(flags.blocks, parts[static_cast<std::size_t>(stage)]);
    EXPECT_EQ(flags.tensor_parallel, 2);
  }
  EXPECT_FALSE(flags_of({}).blocks);
}

// Given every role, kind of device, number of devices and context; expects a worker that listens on the pod's port and has the
// intended model, name, batch, drain, role, context and devices; everything else is the worker's default.
TEST(WorkerFlags, EveryWorkerOfAPlanUnderstandsItsPod) {
  const ServeFlags defaults;
  for (const auto& [role, expected_role] : {std::pair{dispatch::Role::kUnified, worker::Role::kUnified},
                                            std::pair{dispatch::Role::kPrefill, worker::Role::kPrefill},
                                            std::pair{dispatch::Role::kDecode, worker::Role::kDecode}}) {
    for (const std::string resource : {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "example.com/cpu-slice"}) {
      for (const int gpus : {1, 2, 4, 8}) {
        for (const std::int64_t context : {0, 8192, 131072}) {
          SCOPED_TRACE(::testing::Message()
                       << dispatch::to_string(role) << " of " << gpus << " " << resource << ", " << context);
          const ServeFlags flags = flags_of({role, resource, gpus, context});
          EXPECT_EQ(flags.model_folder, "/models/llama/8b");
          EXPECT_EQ(flags.served_name, "team/chat:8b");
          EXPECT_EQ(flags.host, "10.1.2.3");
          EXPECT_EQ(flags.port, kWorkerPort);
          EXPECT_EQ(flags.max_concurrent, kBatch);
          EXPECT_EQ(flags.drain_timeout_s, 5400);
          EXPECT_EQ(flags.role, expected_role);
          EXPECT_EQ(flags.max_context_tokens, context);
          EXPECT_EQ(flags.backend, resource.rfind("nvidia.com/", 0) == 0 ? "cuda" : "cpu");
          EXPECT_EQ(flags.tensor_parallel, resource == "nvidia.com/gpu" ? gpus : 1);
          EXPECT_EQ(flags.tensor_rank, 0);
          EXPECT_EQ(flags.precision, defaults.precision);
          EXPECT_EQ(flags.weights, defaults.weights);
          EXPECT_EQ(flags.kv_cache_tokens, defaults.kv_cache_tokens);
          EXPECT_EQ(flags.prefix_caching, defaults.prefix_caching);
          EXPECT_EQ(flags.gpu_memory_share, defaults.gpu_memory_share);
          EXPECT_EQ(flags.request_timeout_s, defaults.request_timeout_s);
          EXPECT_FALSE(flags.blocks.has_value());
          EXPECT_TRUE(flags.next_hops.empty());
        }
      }
    }
  }
}

// Given a user's arguments, as one word or two, for options that we set and ones that we do not; expects the user's values and
// the rest of ours.
TEST(WorkerFlags, AUsersArgumentsJoinOurs) {
  using worker::WeightFormat;
  const auto with = [](std::vector<std::string> args, int gpus = 4) {
    Asked asked;
    asked.gpus = gpus;
    asked.context_tokens = 8192;
    asked.args = std::move(args);
    const ServeFlags flags = flags_of(asked);
    EXPECT_EQ(flags.port, kWorkerPort);
    EXPECT_EQ(flags.served_name, "team/chat:8b");
    return flags;
  };
  EXPECT_EQ(with({"--weights=int8"}).weights, WeightFormat::kInt8);
  EXPECT_EQ(with({"--weights", "fp8"}).weights, WeightFormat::kFp8);
  EXPECT_EQ(with({"--weights", "fp8"}).tensor_parallel, 4);
  EXPECT_EQ(with({"--precision=fp32"}).precision, worker::cuda::Precision::kFp32);
  EXPECT_EQ(with({"--gpu-memory-share=0.5", "--no-prefix-caching"}).gpu_memory_share, 0.5);
  EXPECT_FALSE(with({"--gpu-memory-share=0.5", "--no-prefix-caching"}).prefix_caching);
  EXPECT_EQ(with({"--kv-cache-tokens=100000"}).kv_cache_tokens, 100000);
  EXPECT_EQ(with({"--request-timeout", "5m", "--token-file=/tokens/token"}).request_timeout_s, 300);
  EXPECT_EQ(with({"--max-concurrent", "5"}).max_concurrent, 5);
  EXPECT_EQ(with({"--max-context-tokens=4096"}).max_context_tokens, 4096);
  EXPECT_EQ(with({"--drain-timeout=90s"}).drain_timeout_s, 90);
  EXPECT_EQ(with({"--tensor-parallel", "2"}).tensor_parallel, 2);
  EXPECT_EQ(with({"--tensor-parallel", "2"}).backend, "cuda");
  const ServeFlags on_cpu = with({"--backend=cpu", "--weights=bf16", "--tensor-parallel=2", "--threads=16"});
  EXPECT_EQ(on_cpu.backend, "cpu");
  EXPECT_EQ(on_cpu.weights, WeightFormat::kBf16);
  EXPECT_EQ(on_cpu.tensor_parallel, 2);
  EXPECT_EQ(on_cpu.threads, 16);
  EXPECT_EQ(with({"--backend", "cpu"}).tensor_parallel, 1) << "several GPUs that are not used";
}

// Given drain timeouts from zero to days, below a second and with a fraction; expects the worker to have them exact to the
// microsecond.
TEST(WorkerFlags, DrainTimeoutsArriveExactly) {
  for (const double timeout_s : {0.0, 0.000'001, 0.000'5, 0.25, 0.499, 1.5, 59.999, 5400.001, 86'400.0, 3e9}) {
    Asked asked;
    asked.drain_timeout_s = timeout_s;
    EXPECT_NEAR(flags_of(asked).drain_timeout_s, timeout_s, 1e-6 + timeout_s * 1e-15);
  }
}

// Given models with 1 to 128 KV heads; expects the worker to accept every degree that may be planned for it: those that divide
// heads and widths evenly and are within the limit that the controller gives the planner. Without that limit the worker would
// refuse some.
TEST(WorkerFlags, EveryPlannedDegreeIsAccepted) {
  EXPECT_EQ(kMaxWindlassRanks, worker::RankGroup::kMaxRanks);
  constexpr int kGpusOfANode = 1024;
  constexpr int kNarrow = 4;  // also stands for an embedding narrower than the layers
  int taken = 0, refused_beyond = 0;
  for (int kv_heads = 1; kv_heads <= 128; kv_heads *= 2) {
    for (const int group : {1, 2, 5, 7, 8, kNarrow}) {
      planner::ModelShape shape;
      worker::ModelConfig config;
      config.hidden_size = shape.hidden = 64 * kv_heads;
      if (group == kNarrow) config.embedding_size = shape.embedding_dim = shape.hidden / 2;
      config.kv_heads = shape.kv_heads = kv_heads;
      config.heads = shape.heads = kv_heads * group;
      config.intermediate_size = shape.intermediate = group == 5 ? 13824 : config.heads * 64;
      api::ModelService service;
      const auto most = to_planner(service, shape).max_gpus_per_worker;
      ASSERT_TRUE(most.has_value());
      for (const int degree : planner::tensor_parallel_degrees(shape, kGpusOfANode)) {
        const auto checked = worker::check_tensor_parallel(config, degree);
        if (degree <= *most) {
          EXPECT_TRUE(checked.ok()) << kv_heads << " x " << group << ": " << checked.error().message;
          ++taken;
        } else {
          refused_beyond += checked.ok() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused_beyond, 20);
  api::ModelService other;
  other.spec.engine.type = api::EngineType::kVLLM;
  EXPECT_FALSE(to_planner(other, planner::ModelShape()).max_gpus_per_worker.has_value());
  EXPECT_EQ(to_planner(api::ModelService(), Error{ErrorCode::kFailedPrecondition, "no shape"}).max_gpus_per_worker,
            kMaxWindlassRanks);
}

// Given every setting in the worker's space that a strategy may choose; expects flags that it accepts, with at most the
// sequences that its memory holds, and a token for each.
TEST(WorkerFlags, UnderstandsChosenSettings) {
  const planner::EngineSpace space = planner::space_of(planner::EngineType::kWindlass);
  for (const char* resource : {"nvidia.com/gpu", "example.com/cpu-slice"}) {
    for (const int sequences : {space.max_sequences.least, 32, space.max_sequences.most}) {
      for (const int tokens : {space.max_batch_tokens.least, 512, space.max_batch_tokens.most}) {
        for (const planner::DType precision : space.precisions) {
          Asked asked;
          asked.resource = resource;
          asked.settings.batching = planner::Batching::kSarathi;
          asked.settings.max_sequences = sequences;
          asked.settings.max_batch_tokens = tokens;
          asked.settings.precision = precision;
          ASSERT_TRUE(space.holds(asked.settings));
          const ServeFlags flags = flags_of(asked);
          EXPECT_EQ(flags.max_concurrent, std::min(sequences, kBatch));
          EXPECT_EQ(flags.max_batch_tokens, std::max<std::int64_t>(tokens, flags.max_concurrent));
        }
      }
    }
  }
  Asked asked;
  asked.settings.precision = planner::DType::kFloat32;
  EXPECT_EQ(flags_of(asked).precision, worker::cuda::Precision::kFp32);
  asked.settings.precision = planner::DType::kInt8;
  EXPECT_EQ(flags_of(asked).weights, worker::WeightFormat::kInt8);
  EXPECT_EQ(space.max_batch_tokens.most, worker::kMaxBatchTokens);
}

// Given a pod with an IPv6 address, which the kubelet writes without brackets; expects a worker that listens there.
TEST(WorkerFlags, APodsIpMayBeIpv6) {
  Asked asked;
  asked.pod_ip = "fd00::5";
  EXPECT_EQ(flags_of(asked).host, "fd00::5");
  EXPECT_EQ(flags_of(asked).port, kWorkerPort);
}

// Given a pod template with arguments for the container; expects those that we do not set next to ours, and ours where both are
// set.
TEST(WorkerFlags, APodTemplatesArgumentsJoinOurs) {
  Asked asked;
  asked.gpus = 2;
  asked.pod_template = R"({"spec": {"containers": [{"name": "worker",
      "args": ["--weights=int8", "--kv-cache-tokens", "4096", "--max-concurrent", "5", "--port=1", "--no-prefix-caching"]}]}})";
  const ServeFlags flags = flags_of(asked);
  EXPECT_EQ(flags.weights, worker::WeightFormat::kInt8);
  EXPECT_EQ(flags.kv_cache_tokens, 4096);
  EXPECT_FALSE(flags.prefix_caching);
  EXPECT_EQ(flags.max_concurrent, kBatch);
  EXPECT_EQ(flags.host, "10.1.2.3");
  EXPECT_EQ(flags.port, kWorkerPort);
  EXPECT_EQ(flags.tensor_parallel, 2);
}

}  // namespace
}  // namespace windlass::controller
