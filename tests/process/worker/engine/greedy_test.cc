// The worker's greedy tokens on a real model in FP32 compared with those of llama.cpp and vLLM on the same weights. Skips by
// name if `scripts/engines` or `windlass model fetch smollm2-135m` has not run.
#include <array>

#include <fmt/format.h>

#include "controller/cli/model/model_fetch.h"
#include "controller/runtime/local_engine.h"
#include "tests/process/worker/serve/worker_process.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using testing::Answer;
using testing::ask;
using testing::eventually;
using testing::free_port;
using testing::kProgram;
using testing::Process;
using testing::Worker;

constexpr int kTokens = 64;

// Prose, code, lists, digits, other alphabets and an emoji.
constexpr std::array<const char*, 20> kPrompts = {
    "The capital of France is",
    "Once upon a time, in a small harbour town,",
    "A windlass is a machine that",
    "def fibonacci(n):\n    ",
    "#include <vector>\n\nint main() {",
    "SELECT name, price FROM products WHERE",
    "The first ten prime numbers are 2, 3, 5,",
    "1 + 1 = 2\n2 + 2 = 4\n3 + 3 =",
    "Water boils at a temperature of",
    "Dear Sir or Madam,\n\nI am writing to",
    "Ingredients:\n- 200 g of flour\n- 3 eggs\n-",
    "In 1969, Neil Armstrong",
    "The three laws of thermodynamics state that",
    "Il était une fois",
    "Die Hauptstadt von Deutschland ist",
    "El perro corre por",
    "こんにちは、私は",
    "Всё счастливые семьи",
    "I ❤️ ships because 🚢",
    "<|im_start|>user\nWhat is the tallest mountain on Earth?<|im_end|>\n<|im_start|>assistant\n",
};

class Greedy : public Worker {
 protected:
  void SetUp() override {
    Worker::SetUp();
    const auto folder = cli::models_folder();
    gguf_ = folder.ok() ? *folder / "smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf" : "";
    if (!std::filesystem::exists(gguf_)) GTEST_SKIP() << "no model; `windlass model fetch smollm2-135m` gets it";
  }

  // The path of an engine's program, or the reason why there is none.
  static Result<std::string> program_of(const char* engine) {
    controller::Launch spec;
    spec.engine = engine;
    return controller::engine_program(spec);
  }

  // A server's answers to all prompts. The model is served under the name "tiny".
  std::vector<std::string> answers(std::vector<std::string> arguments) {
    const int port = free_port();
    arguments.insert(arguments.end(), {"--port", std::to_string(port)});
    Process server(arguments, folder_ / "server.log");
    const auto complete = [&](const char* prompt, int tokens) {
      return ask(
          port, "POST", "/v1/completions",
          json{{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}}.dump(),
          "Content-Type: application/json\r\n");
    };
    std::vector<std::string> texts;
    EXPECT_TRUE(eventually([&] { return complete("Hello", 1).status == 200 || server.ended(); }, std::chrono::seconds(600)));
    for (const char* prompt : kPrompts) {
      const Answer answer = complete(prompt, kTokens);
      EXPECT_EQ(answer.status, 200) << arguments.front() << ": " << answer.body << server.log();
      if (answer.status != 200) break;
      const json body = json::parse(answer.body);
      EXPECT_EQ(body["usage"]["completion_tokens"], kTokens) << prompt;
      texts.push_back(body["choices"][0]["text"]);
    }
    server.signal(SIGTERM);  // SIGKILL would leave its child processes running
    (void)server.wait();
    return texts;
  }

  std::vector<std::string> own_answers() {
    return answers({kProgram, "--model", gguf_.string(), "--name", "tiny", "--weights", "fp32"});
  }

  // The text without a character that the last token leaves incomplete: vLLM holds it back, the others write U+FFFD.
  static std::string_view whole(std::string_view text) {
    constexpr std::string_view kUnfinished = "\uFFFD";
    if (text.ends_with(kUnfinished)) text.remove_suffix(kUnfinished.size());
    return text;
  }

  static void expect_same(const std::vector<std::string>& found, const std::vector<std::string>& theirs) {
    ASSERT_EQ(found.size(), kPrompts.size());
    ASSERT_EQ(theirs.size(), kPrompts.size());
    for (std::size_t i = 0; i < kPrompts.size(); ++i) EXPECT_EQ(whole(found[i]), whole(theirs[i])) << kPrompts[i];
  }

  std::filesystem::path gguf_;
};

// Given 20 prompts and the GGUF file unpacked to FP32 by llama.cpp's own tool; expects llama.cpp's 64 tokens.
TEST_F(Greedy, TokensAreLlamaCpps) {
  const auto program = program_of("LlamaCpp");
  if (!program.ok()) GTEST_SKIP() << program.error().message;
  const std::filesystem::path tool = std::filesystem::path(*program).parent_path() / "llama-quantize";
  if (!std::filesystem::exists(tool)) GTEST_SKIP() << tool.string() << ": not found; `scripts/engines llama.cpp` builds it";
  const std::string unpacked = (folder_ / "fp32.gguf").string();
  Process unpack({tool.string(), "--allow-requantize", gguf_.string(), unpacked, "F32"}, folder_ / "unpack.log");
  ASSERT_EQ(unpack.wait(), 0) << unpack.log();
  expect_same(own_answers(),
              answers({*program, "--model", unpacked, "--alias", "tiny", "--parallel", "1", "--ctx-size", "512",
                       "--no-cache-prompt", "--threads", "1", "--cache-type-k", "f32", "--cache-type-v", "f32"}));
}

// Given 20 prompts and the GGUF file unpacked to FP32 by Hugging Face's library; expects vLLM's 64 tokens.
TEST_F(Greedy, TokensAreVllms) {
  const auto program = program_of("VLLM");
  if (!program.ok()) GTEST_SKIP() << program.error().message;
  const std::string python = (std::filesystem::path(*program).parent_path() / "python").string();
  const std::string unpacked = (folder_ / "hf").string();
  Process unpack({python, source_path() + "/tests/process/worker/engine/unpack_gguf.py", gguf_.string(), unpacked},
                 folder_ / "unpack.log");
  ASSERT_EQ(unpack.wait(std::chrono::seconds(600)), 0) << unpack.log();
  ::setenv("VLLM_CPU_KVCACHE_SPACE", "1", 1);
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  expect_same(own_answers(), answers({*program, "serve", unpacked, "--served-model-name", "tiny", "--dtype", "float32",
                                      "--max-model-len", "512", "--enforce-eager"}));
}

}  // namespace
}  // namespace windlass::worker
