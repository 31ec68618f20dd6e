// What each engine is told: the whole command line, and what a user's arguments change of it.
#include "controller/runtime/engine_args.h"

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

// Given: four GPUs, 32 requests at once, a context of 8192. Expected: each engine's own words for it.
TEST(EngineArgs, EachEngineInItsOwnWords) {
  EXPECT_EQ(command(spec("VLLM"), {"meta-llama/Llama-3", "abc123", true}),
            "vllm serve | meta-llama/Llama-3 --served-model-name chat --host $(POD_IP) --port 8000 --tensor-parallel-size 4 "
            "--max-num-seqs 32 --max-model-len 8192 --revision abc123");
  EXPECT_EQ(
      command(spec("SGLang")),
      "python3 -m sglang.launch_server | --model-path meta-llama/Llama-3 --served-model-name chat --host $(POD_IP) --port "
      "8000 --tp-size 4 --max-running-requests 32 --enable-metrics --context-length 8192");
  EXPECT_EQ(
      command(spec("TensorRTLLM")),
      "trtllm-serve | meta-llama/Llama-3 --host $(POD_IP) --port 8000 --tp_size 4 --max_batch_size 32 --max_seq_len 8192");
  EXPECT_EQ(command(spec("Windlass"), {"/models/llama", "", false}),
            " | --model=/models/llama --listen=[$(POD_IP)]:8000 --name=chat --max-concurrent=32 --drain-timeout=10m "
            "--max-context-tokens=8192");
}

// Given: our own engine on GPUs of NVIDIA's, and on a class that counts something else. Expected: on GPUs it is told to compute
// there, on all of them unless they are slices; the user's word stands.
TEST(EngineArgs, OwnEngineUsesTheGpusItHolds) {
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

// Given: llama.cpp, whose --ctx-size is shared by all slots. Expected: 32 slots of 8192 tokens each; every layer on the GPUs,
// cut among them where there are several; from the Hub by repository, from a volume by file.
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

// Given: options of ours under another of their names, joined and apart, with _ for -. Expected: the user's word stands, once.
TEST(EngineArgs, TheUsersWordWinsAndStandsOnce) {
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

// Given: arguments that would move the worker away from where the gateway and the probes look, and revisions that an engine
// cannot be told. Expected: refused by name.
TEST(EngineArgs, RefusesWhatOthersRelyOn) {
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
  EXPECT_THAT(command(spec("TensorRTLLM"), {"a/b", "rev", true}), HasSubstr("spec.model.uri: found revision 'rev'"));
  EXPECT_THAT(command(spec("LlamaCpp"), {"a/b", "rev", true}), HasSubstr("spec.model.uri: found revision 'rev'"));
  EXPECT_THAT(command(spec("Ollama")), HasSubstr("spec.engine.type: found 'Ollama'"));
}

// Given: images and their tags. Expected: vLLM of 0.18 and later is told to finish its requests within drainTimeout; an older
// one and one of an unknown version, which may not know the flag, are not.
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

// Given: pages of llama.cpp with and without requests, and one that is no page. Expected: busy while one runs or waits.
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

// Given: a template's arguments beside ours. Expected: what ours already say is left out with its values, the rest stays.
TEST(EngineArgs, OtherArgsLeaveOursAlone) {
  const Launch s = spec("VLLM");
  const std::vector<std::string> ours = engine_command(s, {"m", "", true}, pod_address())->args;
  EXPECT_THAT(other_args(s, ours, {"-tp", "8", "--seed", "3", "--port=1", "--dtype", "half"}),
              testing::ElementsAre("--seed", "3", "--dtype", "half"));
}

}  // namespace
}  // namespace windlass::controller
