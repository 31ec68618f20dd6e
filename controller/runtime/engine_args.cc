// See engine_args.h. Sources of the names:
//   vLLM         docs.vllm.ai "vllm serve" (engine and server arguments; the model is positional, --model is deprecated)
//   SGLang       docs.sglang.io "Server Arguments"; metrics only with --enable-metrics
//   TensorRT-LLM nvidia.github.io/TensorRT-LLM "trtllm-serve" (the model is positional; --tp_size, --max_batch_size,
//                --max_seq_len); its metrics need return_perf_metrics and enable_iter_perf_stats, which only a file can set
//   llama.cpp    tools/server/README.md: --ctx-size is the total over all --parallel slots (ggml-org/llama.cpp issue 11681);
//                a GPU is used only for the --n-gpu-layers given; --split-mode row cuts every layer among the GPUs, while the
//                default, "layer", puts whole layers on each GPU, so that a token visits one after another; metrics only
//                with --metrics
// The options for chosen settings were compared with
//   vLLM         0.32.0: `vllm serve --help=all`, and vllm/config/scheduler.py: the budget must be at least --max-num-seqs, and
//                without chunked prefill at least a whole prompt
//   SGLang       0.5.23: srt/arg_groups/fields/schedule.py and srt/managers/schedule_policy.py: --chunked-prefill-size bounds a
//                batch of prompts, less its decodes with --enable-mixed-chunk, and --max-prefill-tokens must not be lower
//   TensorRT-LLM commit 00209af1 of its repository: tensorrt_llm/commands/serve.py; --tp_size is also --tensor_parallel_size
//   llama.cpp    the commit that llama-cpp-python 0.3.36 has: common/arg.cpp, tools/server/server-context.cpp: an iteration has
//                a token of each slot that answers, then pieces of prompts up to --batch-size
#include "controller/runtime/engine_args.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/runtime/pod.h"
#include "planner/base/duration.h"
#include "planner/catalog/dtype.h"
#include "planner/deployment/deployment.h"
#include "planner/deployment/engine_settings.h"

namespace windlass::controller {
namespace {

struct Option {
  std::vector<std::string> names;    // all names that the engine accepts; we use the first
  std::optional<std::string> value;  // nullopt: a switch
  bool ours_alone = false;           // the gateway, the probes or the plan rely on it, so users cannot set it
};

struct Grammar {
  std::vector<std::string> program;
  std::vector<std::string> positional;
  std::vector<Option> options;
  bool joined = false;  // --name=value as one argument
};

// Engines accept _ for - in long names, or soon will.
std::string plain(std::string name) {
  if (name.rfind("--", 0) == 0) std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string name_of(const std::string& word) { return plain(word.substr(0, word.find('='))); }

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.';
}

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& one) { return plain(one) == name; });
}

constexpr const char* kWholeGpus = "nvidia.com/gpu";

// The NVIDIA device plugin names its GPUs and slices of GPUs this way.
bool runs_cuda(const std::string& resource_name) { return resource_name.rfind("nvidia.com/", 0) == 0; }

// The settings of a worker, in terms that the engines share.
struct Asked {
  const Launch& spec;
  const EngineModel& model;
  const EngineAddress& address;
  EngineVersion version;

  [[nodiscard]] const std::string& host() const { return address.host; }
  [[nodiscard]] std::string port() const { return std::to_string(address.port); }
  [[nodiscard]] std::string gpus() const { return std::to_string(spec.gpus_of_server()); }
  // The kubelet fills in a pod's role, which may change between two starts of a container.
  [[nodiscard]] std::string role() const { return in_pod() ? fmt::format("$({})", kRoleVariable) : spec.role; }
  [[nodiscard]] bool in_pod() const { return address.host == pod_address().host; }
  [[nodiscard]] std::string batch() const { return std::to_string(spec.max_concurrency); }
  [[nodiscard]] planner::ToldSettings told() const { return planner::told(spec.settings); }
  // The user's value of an option with these names; "" if there is none.
  [[nodiscard]] std::string users(const std::vector<std::string>& names) const {
    const std::vector<std::string>& words = spec.extra_args;
    const auto word = std::find_if(words.begin(), words.end(), [&](const auto& one) { return among(names, name_of(one)); });
    if (word == words.end()) return {};
    if (const auto joined = word->find('='); joined != std::string::npos) return word->substr(joined + 1);
    return std::next(word) == words.end() ? "" : *std::next(word);
  }
  // The chosen tokens per iteration: at least one for each request, whose number the user may have set.
  [[nodiscard]] std::optional<std::string> tokens(const std::vector<std::string>& batch_names) const {
    const auto chosen = told().max_batch_tokens;
    if (!chosen) return std::nullopt;
    const int sequences = std::max(spec.max_concurrency, std::atoi(users(batch_names).c_str()));
    return std::to_string(std::max(*chosen, sequences));
  }
  [[nodiscard]] bool bounded() const { return spec.max_context_tokens > 0; }
  [[nodiscard]] std::string context() const { return std::to_string(spec.max_context_tokens); }
};

const char* windlass_format(planner::DType precision) {
  switch (precision) {
    case planner::DType::kFloat32: return "fp32";
    case planner::DType::kFloat8: return "fp8";
    case planner::DType::kInt8: return "int8";
    default: return "bf16";
  }
}

Grammar windlass_grammar(const Asked& asked) {
  Grammar out;
  out.joined = true;
  out.options = {{{"--model"}, asked.model.path, true},
                 // The kubelet expands $(POD_IP) without brackets. IPv6 needs them; the worker accepts them around IPv4 too.
                 {{"--listen", "--port"}, fmt::format("[{}]:{}", asked.host(), asked.port()), true},
                 {{"--name"}, asked.spec.served_name, true},
                 {{"--max-concurrent"}, asked.batch()},
                 {{"--drain-timeout"}, print_duration(asked.spec.drain_timeout_s)}};
  if (asked.spec.has_phase()) out.options.push_back({{"--role"}, asked.role(), true});
  if (asked.spec.stages > 1) {
    const auto blocks = planner::blocks_of_stage(asked.spec.layers, asked.spec.stage, asked.spec.stages);
    out.options.push_back({{"--blocks"}, fmt::format("{}:{}", blocks.first, blocks.end), true});
  }
  const std::string backend = asked.users({"--backend"});
  const bool cuda = backend.empty() ? runs_cuda(asked.spec.resource_name) : backend == "cuda";
  if (cuda && backend.empty()) {
    out.options.push_back({{"--backend"}, "cuda"});
    // GPU slices have no collectives between them.
    if (asked.spec.gpus_of_server() > 1 && asked.spec.resource_name == kWholeGpus)
      out.options.push_back({{"--tensor-parallel"}, asked.gpus()});
  }
  if (asked.bounded()) out.options.push_back({{"--max-context-tokens"}, asked.context()});
  if (const auto tokens = asked.tokens({"--max-concurrent"})) out.options.push_back({{"--max-batch-tokens"}, *tokens});
  if (const auto precision = asked.told().precision) {
    // A GPU computes in the format of --precision, unless its weights have 8 bits.
    const bool whole = planner::bytes_of(*precision) > 1;
    out.options.push_back({{cuda && whole ? "--precision" : "--weights"}, windlass_format(*precision)});
  }
  return out;
}

// Precisions have the same options in vLLM and SGLang.
void add_precision(Grammar& grammar, const Asked& asked) {
  const auto precision = asked.told().precision;
  if (!precision) return;
  if (*precision == planner::DType::kFloat8) {
    grammar.options.push_back({{"--quantization", "-q"}, "fp8"});
  } else {
    grammar.options.push_back({{"--dtype"}, planner::to_string(*precision)});
  }
}

Grammar vllm_grammar(const Asked& asked) {
  Grammar out;
  out.program = {"vllm", "serve"};
  out.positional = {asked.model.path};
  out.options = {{{"--served-model-name"}, asked.spec.served_name, true},
                 {{"--host"}, asked.host(), true},
                 {{"--port"}, asked.port(), true},
                 {{"--tensor-parallel-size", "-tp"}, asked.gpus()},
                 {{"--max-num-seqs"}, asked.batch()}};
  if (asked.bounded()) out.options.push_back({{"--max-model-len"}, asked.context()});
  if (!asked.model.revision.empty()) out.options.push_back({{"--revision"}, asked.model.revision});
  if (const auto tokens = asked.tokens({"--max-num-seqs"})) {
    // Without chunks a budget must have room for a whole prompt, so it is the user's, too.
    out.options.push_back({{"--max-num-batched-tokens", "--no-enable-chunked-prefill"}, *tokens});
    out.options.push_back({{"--enable-chunked-prefill", "--no-enable-chunked-prefill"}, std::nullopt});
  }
  add_precision(out, asked);
  if (waits_by_itself(asked.spec.engine, asked.version)) {
    out.options.push_back({{"--shutdown-timeout"}, fmt::format("{:.0f}", std::ceil(asked.spec.drain_timeout_s))});
  }
  return out;
}

Grammar sglang_grammar(const Asked& asked) {
  Grammar out;
  out.program = {"python3", "-m", "sglang.launch_server"};
  out.options = {{{"--model-path", "--model"}, asked.model.path, true},
                 {{"--served-model-name"}, asked.spec.served_name, true},
                 {{"--host"}, asked.host(), true},
                 {{"--port"}, asked.port(), true},
                 {{"--tp-size", "--tensor-parallel-size", "--tp"}, asked.gpus()},
                 {{"--max-running-requests"}, asked.batch()},
                 {{"--enable-metrics"}, std::nullopt}};
  if (asked.bounded()) out.options.push_back({{"--context-length"}, asked.context()});
  if (!asked.model.revision.empty()) out.options.push_back({{"--revision"}, asked.model.revision});
  if (const auto tokens = asked.tokens({"--max-running-requests"})) {
    out.options.push_back({{"--chunked-prefill-size"}, *tokens});
    out.options.push_back({{"--max-prefill-tokens"}, *tokens});
    if (asked.told().batching == planner::Batching::kSarathi) out.options.push_back({{"--enable-mixed-chunk"}, std::nullopt});
  }
  add_precision(out, asked);
  return out;
}

Grammar tensorrt_grammar(const Asked& asked) {
  Grammar out;
  out.program = {"trtllm-serve"};
  out.positional = {asked.model.path};
  out.options = {{{"--host"}, asked.host(), true},
                 {{"--port"}, asked.port(), true},
                 {{"--tp_size", "--tensor_parallel_size"}, asked.gpus()},
                 {{"--max_batch_size"}, asked.batch()}};
  if (const auto tokens = asked.tokens({"--max_batch_size"})) {
    out.options.push_back({{"--max_num_tokens"}, *tokens});
    out.options.push_back({{"--enable_chunked_prefill"}, std::nullopt});
  }
  if (asked.bounded()) out.options.push_back({{"--max_seq_len"}, asked.context()});
  if (!asked.model.revision.empty()) out.options.push_back({{"--revision"}, asked.model.revision});
  if (asked.in_pod()) out.options.push_back({{"--extra_llm_api_options", "--config"}, kTensorRtOptionsFile});
  return out;
}

Result<Grammar> llama_cpp_grammar(const Asked& asked) {
  Grammar out;
  if (!asked.model.revision.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("spec.model.uri: must not have a revision, because llama-server has no option for it (got '{}'); use "
                    "hf://OWNER/NAME[:QUANTISATION] or pvc://",
                    asked.model.revision)};
  }
  if (asked.model.on_the_hub) {
    out.options.push_back({{"--hf-repo", "-hf", "-hfr"}, asked.model.path, true});
  } else {
    out.options.push_back({{"--model", "-m"}, asked.model.path, true});
  }
  out.options.insert(out.options.end(), {{{"--alias", "-a"}, asked.spec.served_name, true},
                                         {{"--host"}, asked.host(), true},
                                         {{"--port"}, asked.port(), true},
                                         {{"--parallel", "-np"}, asked.batch()},
                                         {{"--n-gpu-layers", "--gpu-layers", "-ngl"}, "999"},
                                         {{"--metrics"}, std::nullopt}});
  if (asked.spec.gpus > 1) out.options.push_back({{"--split-mode", "-sm"}, "row"});
  if (const auto tokens = asked.tokens({"--parallel", "-np"})) out.options.push_back({{"--batch-size", "-b"}, *tokens});
  if (asked.bounded()) {
    out.options.push_back({{"--ctx-size", "-c"},
                           std::to_string(static_cast<long long>(asked.spec.max_context_tokens) * asked.spec.max_concurrency)});
  }
  return out;
}

Result<Grammar> grammar_of(const Launch& spec, const EngineModel& model, const EngineAddress& address,
                           EngineVersion version = {}) {
  const Asked asked{spec, model, address, version};
  if (spec.engine == "Windlass") return windlass_grammar(asked);
  if (spec.engine == "VLLM") return vllm_grammar(asked);
  if (spec.engine == "SGLang") return sglang_grammar(asked);
  if (spec.engine == "TensorRTLLM") return tensorrt_grammar(asked);
  if (spec.engine == "LlamaCpp") return llama_cpp_grammar(asked);
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("spec.engine.type: must be Windlass, VLLM, SGLang, TensorRTLLM or LlamaCpp (got '{}')", spec.engine)};
}

}  // namespace

EngineAddress pod_address() { return {"$(POD_IP)", kWorkerPort}; }

Result<EngineCommand> engine_command(const Launch& spec, const EngineModel& model, const EngineAddress& address,
                                     EngineVersion version) {
  WINDLASS_ASSIGN_OR_RETURN(Grammar grammar, grammar_of(spec, model, address, version));
  bool says_context = spec.max_context_tokens > 0;
  for (const std::string& word : spec.extra_args) {
    if (!is_option(word)) continue;
    const std::string name = name_of(word);
    says_context = says_context || name == "--ctx-size" || name == "-c";
    const auto ours = std::find_if(grammar.options.begin(), grammar.options.end(),
                                   [&](const Option& option) { return among(option.names, name); });
    const bool of_model = !grammar.positional.empty() && name == "--model";
    if (of_model || (ours != grammar.options.end() && ours->ours_alone)) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("spec.engine.args: must not set what the gateway and the probes rely on (got '{}'); Windlass sets it",
                      word)};
    }
    std::erase_if(grammar.options, [&](const Option& option) { return among(option.names, name); });
  }
  if (spec.engine == "LlamaCpp" && !says_context) {
    return Error{
        ErrorCode::kInvalidArgument,
        "spec.model.maxContextTokens: must be set if the model's shape is unknown (got nothing); llama-server divides its "
        "context among its slots, so it needs the share of one request"};
  }
  EngineCommand out;
  out.program = std::move(grammar.program);
  out.args = std::move(grammar.positional);
  for (const Option& option : grammar.options) {
    if (!option.value) {
      out.args.push_back(option.names.front());
    } else if (grammar.joined) {
      out.args.push_back(option.names.front() + "=" + *option.value);
    } else {
      out.args.insert(out.args.end(), {option.names.front(), *option.value});
    }
  }
  out.args.insert(out.args.end(), spec.extra_args.begin(), spec.extra_args.end());
  return out;
}

std::vector<std::string> other_args(const Launch& spec, const std::vector<std::string>& ours,
                                    const std::vector<std::string>& theirs) {
  Launch bare = spec;
  bare.extra_args.clear();
  const auto grammar = grammar_of(bare, {}, pod_address());
  // Whether our arguments have this option, under any of its names.
  const auto said = [&](const std::string& name) {
    return std::any_of(ours.begin(), ours.end(), [&](const std::string& word) {
      if (!is_option(word)) return false;
      if (name_of(word) == name) return true;
      return grammar.ok() && std::any_of(grammar->options.begin(), grammar->options.end(), [&](const Option& option) {
               return among(option.names, name_of(word)) && among(option.names, name);
             });
    });
  };
  std::vector<std::string> out;
  bool skipping = false;  // inside the values of a dropped option
  for (const std::string& word : theirs) {
    if (is_option(word)) skipping = said(name_of(word));
    if (!skipping) out.push_back(word);
  }
  return out;
}

}  // namespace windlass::controller
