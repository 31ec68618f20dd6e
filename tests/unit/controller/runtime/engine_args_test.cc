// Each engine's whole command line, and how a user's arguments change it.
#include "controller/runtime/engine_args.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Launch spec(const char* engine, int gpus = 4) {
  Launch s;
  s.engine = engine;
  s.gpus = gpus;
  s.max_concurrency = 32;
  s.max_context_tokens = 8192;
  s.served_name = "chat";
  s.drain_timeout_s = 600;
  return s;
}

std::string command(const Launch& s, const EngineModel& model = {"meta-llama/Llama-3", "", true}) {
  const auto made = engine_command(s, model, pod_address());
  if (!made.ok()) return "refused: " + made.error().message;
  return fmt::format("{} | {}", fmt::join(made->program, " "), fmt::join(made->args, " "));
}

// Given: four GPUs, 32 concurrent requests, a context of 8192. Expected: the matching arguments of each engine.
TEST(EngineArgs, EachEngineGetsItsOwnOptions) {
  EXPECT_EQ(command(spec("VLLM"), {"meta-llama/Llama-3", "abc123", true}),
            "vllm serve | meta-llama/Llama-3 --served-model-name chat --host $(POD_IP) --port 8000 --tensor-parallel-size 4 "
            "--max-num-seqs 32 --max-model-len 8192 --revision abc123");
  EXPECT_EQ(
      command(spec("SGLang")),
      "python3 -m sglang.launch_server | --model-path meta-llama/Llama-3 --served-model-name chat --host $(POD_IP) --port "
      "8000 --tp-size 4 --max-running-requests 32 --enable-metrics --context-length 8192");
  EXPECT_EQ(command(spec("TensorRTLLM")),
            "trtllm-serve | meta-llama/Llama-3 --host $(POD_IP) --port 8000 --tp_size 4 --max_batch_size 32 --max_seq_len 8192 "
            "--extra_llm_api_options /etc/windlass/engine/options.yaml");
  EXPECT_THAT(command(spec("TensorRTLLM"), {"meta-llama/Llama-3", "abc123", true}), HasSubstr(" --revision abc123 "));
  EXPECT_EQ(command(spec("Windlass"), {"/models/llama", "", false}),
            " | --model=/models/llama --listen=[$(POD_IP)]:8000 --name=chat --max-concurrent=32 --drain-timeout=10m "
            "--max-context-tokens=8192");
}

// Given: windlass-worker on NVIDIA GPUs, and on a class that counts something else. Expected: on GPUs it computes there, on all
// of them unless they are slices; a user's argument wins.
TEST(EngineArgs, WindlassWorkerUsesItsGpus) {
  Launch s = spec("Windlass");
  EXPECT_THAT(command(s), Not(HasSubstr("--backend")));
  s.resource_name = "nvidia.com/gpu";
  EXPECT_THAT(command(s), HasSubstr(" --backend=cuda --tensor-parallel=4 "));
  s.extra_args = {"--tensor-parallel=2"};
  EXPECT_THAT(command(s), AllOf(HasSubstr(" --backend=cuda "), HasSubstr("--tensor-parallel=2"), Not(HasSubstr("=4"))));
  s.extra_args = {"--backend", "cpu"};
  EXPECT_THAT(command(s), AllOf(Not(HasSubstr("cuda")), Not(HasSubstr("--tensor-parallel"))));
  s = spec("Windlass", 2);
  s.resource_name = "nvidia.com/mig-3g.40gb";
  EXPECT_THAT(command(s), AllOf(HasSubstr(" --backend=cuda"), Not(HasSubstr("--tensor-parallel"))));
}

// Given: llama.cpp, whose --ctx-size is shared by all slots. Expected: 32 slots of 8192 tokens each; all layers on the GPUs,
// split among several; a Hub model by repository, a volume's model by file.
TEST(EngineArgs, LlamaCppsContextIsTheTotalOverItsSlots) {
  EXPECT_EQ(
      command(spec("LlamaCpp")),
      " | --hf-repo meta-llama/Llama-3 --alias chat --host $(POD_IP) --port 8000 --parallel 32 --n-gpu-layers 999 --metrics "
      "--split-mode row --ctx-size 262144");
  EXPECT_EQ(command(spec("LlamaCpp", 1), {"/models/a.gguf", "", false}),
            " | --model /models/a.gguf --alias chat --host $(POD_IP) --port 8000 --parallel 32 --n-gpu-layers 999 --metrics "
            "--ctx-size 262144");
  Launch unknown = spec("LlamaCpp");
  unknown.max_context_tokens = 0;
  EXPECT_THAT(command(unknown), HasSubstr("spec.model.maxContextTokens"));
  unknown.extra_args = {"-c", "65536"};
  EXPECT_THAT(command(unknown), HasSubstr("-c 65536"));
}

// Given: one of our options under other names, joined and separate, with _ for -. Expected: the user's value appears, once.
TEST(EngineArgs, TheUsersValueWinsAndAppearsOnce) {
  Launch s = spec("VLLM");
  s.extra_args = {"-tp", "2", "--pipeline-parallel-size", "2", "--max_model_len=4096", "--enforce-eager"};
  EXPECT_EQ(command(s),
            "vllm serve | meta-llama/Llama-3 --served-model-name chat --host $(POD_IP) --port 8000 --max-num-seqs 32 -tp 2 "
            "--pipeline-parallel-size 2 --max_model_len=4096 --enforce-eager");
  s = spec("LlamaCpp");
  s.extra_args = {"-np", "4", "-ngl", "20", "-sm", "layer", "--seed", "-1"};
  EXPECT_EQ(
      command(s),
      " | --hf-repo meta-llama/Llama-3 --alias chat --host $(POD_IP) --port 8000 --metrics --ctx-size 262144 -np 4 -ngl 20 "
      "-sm layer --seed -1");
}

planner::EngineSettings chosen(planner::Batching batching, int tokens, int sequences = 64) {
  planner::EngineSettings settings;
  settings.batching = batching;
  settings.max_batch_tokens = tokens;
  settings.max_sequences = sequences;
  return settings;
}

// What a launch's settings add to its command line, or lose from it.
std::vector<std::string> words_of(const Launch& launch) {
  const auto made = engine_command(launch, {"m", "", true}, pod_address());
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? made->args : std::vector<std::string>();
}
std::string added(const Launch& launch) {
  Launch without = launch;
  without.settings = {};
  without.extra_args.clear();
  std::vector<std::string> words = words_of(launch);
  for (const std::string& word : words_of(without)) {
    const auto found = std::find(words.begin(), words.end(), word);
    if (found != words.end()) words.erase(found);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

// Given: each engine with settings that a strategy chose, and with a user's arguments under every name and both forms.
// Expected: the engine's own arguments; the user's value instead, once; at least one token for each request; nothing for
// default settings.
TEST(EngineArgs, ChosenSettingsBecomeArguments) {
  using enum planner::Batching;
  struct Case {
    const char* engine;
    planner::EngineSettings settings;
    std::vector<std::string> user;
    const char* expected;
  };
  const planner::EngineSettings none, sarathi = chosen(kSarathi, 512), vllm = chosen(kVllmV1, 512);
  planner::EngineSettings tokens_alone, precise;
  tokens_alone.max_batch_tokens = 777;
  precise.precision = planner::DType::kFloat8;
  planner::EngineSettings halves = precise;
  halves.precision = planner::DType::kBFloat16;
  const std::vector<Case> cases = {
      {"Windlass", none, {}, ""},
      {"Windlass", sarathi, {}, "--max-batch-tokens=512"},
      {"Windlass", tokens_alone, {}, "--max-batch-tokens=777"},
      {"Windlass", chosen(kSarathi, 2048), {}, "--max-batch-tokens=2048"},
      {"Windlass", chosen(kSarathi, 8), {}, "--max-batch-tokens=32"},
      {"Windlass", chosen(kSarathi, 512), {"--max-concurrent", "600"}, "--max-batch-tokens=600 --max-concurrent 600"},
      {"Windlass", sarathi, {"--max-batch-tokens", "99"}, "--max-batch-tokens 99"},
      {"Windlass", sarathi, {"--max-batch-tokens=99"}, "--max-batch-tokens=99"},
      {"Windlass", precise, {}, "--weights=fp8"},
      {"Windlass", halves, {}, "--weights=bf16"},
      {"Windlass", halves, {"--backend=cuda"}, "--precision=bf16 --backend=cuda"},
      {"Windlass", precise, {"--weights", "int8"}, "--weights int8"},
      {"VLLM", none, {}, ""},
      {"VLLM", vllm, {}, "--max-num-batched-tokens 512 --enable-chunked-prefill"},
      {"VLLM", chosen(kVllmV1, 8), {}, "--max-num-batched-tokens 32 --enable-chunked-prefill"},
      {"VLLM", vllm, {"--max-num-seqs=1024"}, "--max-num-batched-tokens 1024 --enable-chunked-prefill --max-num-seqs=1024"},
      {"VLLM", vllm, {"--max_num_batched_tokens=99"}, "--enable-chunked-prefill --max_num_batched_tokens=99"},
      {"VLLM", vllm, {"--max-num-batched-tokens", "8k"}, "--enable-chunked-prefill --max-num-batched-tokens 8k"},
      {"VLLM", vllm, {"--no-enable-chunked-prefill"}, "--no-enable-chunked-prefill"},
      {"VLLM", precise, {}, "--quantization fp8"},
      {"VLLM", precise, {"-q", "awq"}, "-q awq"},
      {"VLLM", halves, {}, "--dtype bfloat16"},
      {"VLLM", halves, {"--dtype=half"}, "--dtype=half"},
      {"SGLang", none, {}, ""},
      {"SGLang", sarathi, {}, "--chunked-prefill-size 512 --max-prefill-tokens 512 --enable-mixed-chunk"},
      {"SGLang", chosen(kVllm, 4096), {}, "--chunked-prefill-size 4096 --max-prefill-tokens 4096"},
      {"SGLang",
       sarathi,
       {"--chunked-prefill-size", "-1"},
       "--max-prefill-tokens 512 --enable-mixed-chunk --chunked-prefill-size -1"},
      {"SGLang",
       sarathi,
       {"--max-prefill-tokens=99"},
       "--chunked-prefill-size 512 --enable-mixed-chunk --max-prefill-tokens=99"},
      {"SGLang", precise, {}, "--quantization fp8"},
      {"TensorRTLLM", none, {}, ""},
      {"TensorRTLLM", sarathi, {}, "--max_num_tokens 512 --enable_chunked_prefill"},
      {"TensorRTLLM", sarathi, {"--max_num_tokens", "99"}, "--enable_chunked_prefill --max_num_tokens 99"},
      {"TensorRTLLM", precise, {}, ""},
      {"LlamaCpp", none, {}, ""},
      {"LlamaCpp", sarathi, {}, "--batch-size 512"},
      {"LlamaCpp", sarathi, {"-np", "600"}, "--batch-size 600 -np 600"},
      {"LlamaCpp", sarathi, {"-b", "99"}, "-b 99"},
      {"LlamaCpp", sarathi, {"--batch-size=99"}, "--batch-size=99"},
      {"LlamaCpp", precise, {}, ""},
  };
  for (const Case& each : cases) {
    Launch launch = spec(each.engine);
    launch.settings = each.settings;
    launch.extra_args = each.user;
    EXPECT_EQ(added(launch), each.expected) << each.engine << " " << fmt::format("{}", fmt::join(each.user, " "));
  }
}

// Given: arguments that would move the worker away from where the gateway and the probes look, and revisions that an engine has
// no option for. Expected: an error with the argument.
TEST(EngineArgs, RefusesArgumentsThatOthersRelyOn) {
  for (const auto& [engine, arg] : std::vector<std::pair<const char*, const char*>>{{"VLLM", "--port=9000"},
                                                                                    {"VLLM", "--served_model_name"},
                                                                                    {"VLLM", "--model=x"},
                                                                                    {"SGLang", "--host"},
                                                                                    {"TensorRTLLM", "--port"},
                                                                                    {"LlamaCpp", "-a"},
                                                                                    {"Windlass", "--listen=:1"}}) {
    Launch s = spec(engine);
    s.extra_args = {arg};
    EXPECT_THAT(command(s), testing::AllOf(HasSubstr("spec.engine.args"), HasSubstr(arg))) << engine;
  }
  EXPECT_THAT(command(spec("LlamaCpp"), {"a/b", "rev", true}),
              AllOf(HasSubstr("spec.model.uri: must not have a revision"), HasSubstr("(got 'rev')")));
  EXPECT_THAT(command(spec("Ollama")),
              HasSubstr("spec.engine.type: must be Windlass, VLLM, SGLang, TensorRTLLM or LlamaCpp (got 'Ollama')"));
}

// Given: images and their tags. Expected: vLLM 0.18 and later gets an option to finish its requests within drainTimeout; older
// and unknown versions, which may not know the flag, are not.
TEST(EngineArgs, LetVllmWaitForItsRequests) {
  const Launch s = spec("VLLM");
  const auto waits = [&](const std::string& image) {
    const auto made = engine_command(s, {"m", "", true}, pod_address(), engine_version_of_image(image));
    const auto flag = std::find(made->args.begin(), made->args.end(), "--shutdown-timeout");
    return flag == made->args.end() ? "" : *(flag + 1);
  };
  for (const char* image : {"vllm/vllm-openai:v0.18.0", "vllm:0.32", "host:5000/vllm:v1.0.1-cu13@sha256:00"})
    EXPECT_EQ(waits(image), "600") << image;
  for (const char* image : {"vllm/vllm-openai:v0.17.9", "vllm", "vllm:latest", "host:5000/vllm", "vllm@sha256:00"})
    EXPECT_EQ(waits(image), "") << image;
}

// Given: pages of llama.cpp with and without requests, and other text. Expected: busy while a request runs or waits.
TEST(EngineDrain, ReadsTheLoad) {
  const auto page = [](int running, int waiting) {
    return "llamacpp:requests_processing " + std::to_string(running) + "\nllamacpp:requests_deferred " +
           std::to_string(waiting) + "\n";
  };
  EXPECT_TRUE(is_busy(page(1, 0)));
  EXPECT_TRUE(is_busy(page(0, 2)));
  EXPECT_FALSE(is_busy(page(0, 0)));
  EXPECT_FALSE(is_busy("{}"));
}

// Given: a template's arguments next to ours. Expected: options that ours already set are dropped with their values; the rest
// stays.
TEST(EngineArgs, OtherArgsDropRepeatedOptions) {
  const Launch s = spec("VLLM");
  const std::vector<std::string> ours = engine_command(s, {"m", "", true}, pod_address())->args;
  EXPECT_THAT(other_args(s, ours, {"-tp", "8", "--seed", "3", "--port=1", "--dtype", "half"}),
              testing::ElementsAre("--seed", "3", "--dtype", "half"));
}

}  // namespace
}  // namespace windlass::controller
