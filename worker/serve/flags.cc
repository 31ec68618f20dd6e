// CLI11 reads; we check what it cannot.
#include "worker/serve/flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "metrics/net/host_port.h"
#include "planner/base/duration.h"
#include "worker/collective/rank_group.h"
#include "worker/model/gguf_model.h"
#include "worker/parallel/chain_wire.h"

namespace windlass::worker {
namespace {

Error bad(std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; }

Result<void> in_range(const char* flag, std::int64_t found, std::int64_t low, std::int64_t high) {
  if (found >= low && found <= high) return {};
  return bad(fmt::format("{}: found {}, allowed is {} to {}", flag, found, low, high));
}

std::string last_component(const std::string& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// What the user wrote for serving, before it is checked.
struct RawServe {
  std::string listen;
  int port = -1;
  std::string drain_timeout = "30m";
  std::string request_timeout = "0";
  std::string measure_time = "2s";
  std::string role = to_string(Role::kUnified);
  std::string blocks;
  std::string next;
  std::string weights;
  std::string precision;
  std::string activations = "bf16";
};

// What is said of the worker's part of the model.
Result<void> read_chain(ServeFlags& flags, const RawServe& raw) {
  if (!raw.blocks.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(flags.blocks, parse_blocks(raw.blocks));
    if (flags.role != Role::kUnified) {
      return bad(fmt::format("--role: found {}, allowed together with --blocks is unified", to_string(flags.role)));
    }
  }
  if (raw.next.empty()) return {};
  auto hops = hops_from(raw.next);
  if (!hops.ok()) return hops.error().within("--next");
  if (!flags.blocks || flags.blocks->first > 0) {
    return bad(
        fmt::format("--next: found {}, allowed together with --blocks 0:B alone: the first worker knows its chain", raw.next));
  }
  flags.next_hops = std::move(hops).value();
  return {};
}

// What is said of a GPU.
Result<void> read_device(ServeFlags& flags, const RawServe& raw) {
  if (!raw.precision.empty()) {
    const bool cuda = flags.backend == "cuda";
    if (raw.precision != "fp32" && !(cuda && raw.precision == "bf16")) {
      return bad(fmt::format("--precision: found '{}', allowed with --backend {} is {}", raw.precision, flags.backend,
                             cuda ? "bf16 or fp32" : "fp32"));
    }
    flags.precision = raw.precision == "fp32" ? cuda::Precision::kFp32 : cuda::Precision::kBf16;
  }
  if (!(flags.gpu_memory_share > 0 && flags.gpu_memory_share <= 1)) {
    return bad(fmt::format("--gpu-memory-share: found {}, allowed is above 0 and at most 1", flags.gpu_memory_share));
  }
  return {};
}

// What is said of a GPU's products with weights of eight bits.
Result<void> read_activations(ServeFlags& flags, const RawServe& raw) {
  if (raw.activations == "bf16") return {};
  if (raw.activations != "fp8") return bad(fmt::format("--activations: found '{}', allowed is bf16 or fp8", raw.activations));
  if (flags.backend != "cuda" || flags.weights != WeightFormat::kFp8 || flags.precision != cuda::Precision::kBf16)
    return bad("--activations: found fp8, allowed together with --backend cuda --weights fp8 and --precision bf16 alone");
  flags.fp8_activations = true;
  return {};
}

Result<void> read_weights(ServeFlags& flags, const RawServe& raw) {
  const bool cuda = flags.backend == "cuda";
  if (raw.weights.empty()) {
    const auto gguf = gguf_files_of(flags.model_folder);
    if (!cuda && gguf.ok() && !gguf->empty()) flags.weights = WeightFormat::kBlocks;
    return {};
  }
  const auto weights = weight_format_from_string(raw.weights);
  if (!weights.ok()) return weights.error().within("--weights");
  if (cuda && (*weights == WeightFormat::kBf16 || *weights == WeightFormat::kBlocks)) {
    return bad(fmt::format(
        "--weights: found {}, allowed together with --backend cuda are fp8 and int8: else --precision says what it has there",
        to_string(*weights)));
  }
  flags.weights = *weights;
  return {};
}

Result<ServeFlags> checked(ServeFlags flags, const RawServe& raw) {
  if (flags.model_folder.empty()) return bad("--model: found nothing, allowed is a model folder or a GGUF file (see --help)");
  if (raw.listen.empty() && raw.port < 0) return bad("--port: found nothing, allowed is --port N or --listen HOST:PORT");
  if (raw.port >= 0 || raw.listen.empty()) {
    WINDLASS_RETURN_IF_ERROR(in_range("--port", raw.port, 1, 65535));
    flags.port = raw.port;
  }
  if (!raw.listen.empty()) {
    const auto address = net::parse_host_port(raw.listen);
    if (!address.ok()) return address.error().within("--listen");
    const int port = std::stoi(address->port);
    if (port == 0) return bad(fmt::format("--listen: found '{}', allowed is a port from 1 to 65535", raw.listen));
    if (raw.port >= 0 && raw.port != port) {
      return bad(fmt::format("--port: found {}, but --listen says {}; allowed is one of the two", raw.port, port));
    }
    flags.host = address->host;
    flags.port = port;
  }
  if (flags.served_name.empty()) flags.served_name = last_component(flags.model_folder);
  if (flags.backend != "cpu" && flags.backend != "cuda") {
    return bad(fmt::format("--backend: found '{}', allowed is cpu or cuda", flags.backend));
  }
  WINDLASS_RETURN_IF_ERROR(read_device(flags, raw));
  WINDLASS_RETURN_IF_ERROR(in_range("--tensor-parallel", flags.tensor_parallel, 1, RankGroup::kMaxRanks));
  WINDLASS_RETURN_IF_ERROR(in_range("--tensor-rank", flags.tensor_rank, 0, flags.tensor_parallel - 1));
  if ((flags.tensor_rank > 0) != (flags.tensor_memory >= 0)) {
    return bad(fmt::format("--tensor-rank: found {}, allowed is nothing: rank 0 starts the others itself", flags.tensor_rank));
  }
  WINDLASS_RETURN_IF_ERROR(read_weights(flags, raw));
  WINDLASS_RETURN_IF_ERROR(read_activations(flags, raw));
  const auto role = role_from(raw.role);
  if (!role) return bad(fmt::format("--role: found '{}', allowed is unified, prefill or decode", raw.role));
  flags.role = *role;
  WINDLASS_RETURN_IF_ERROR(read_chain(flags, raw));
  WINDLASS_RETURN_IF_ERROR(in_range("--max-concurrent", flags.max_concurrent, 1, 1024));
  WINDLASS_RETURN_IF_ERROR(in_range("--threads", flags.threads, 1, 1024));
  if (flags.pin_threads && flags.backend != "cpu") {
    return bad(fmt::format("--pin-threads: found with --backend {}, allowed with cpu alone", flags.backend));
  }
  if (flags.kv_cache_tokens != 0) WINDLASS_RETURN_IF_ERROR(in_range("--kv-cache-tokens", flags.kv_cache_tokens, 1, 1LL << 32U));
  if (flags.max_context_tokens != 0)
    WINDLASS_RETURN_IF_ERROR(in_range("--max-context-tokens", flags.max_context_tokens, 2, 1LL << 28U));
  const auto drain = parse_duration_s(raw.drain_timeout);
  if (!drain.ok()) return drain.error().within("--drain-timeout");
  flags.drain_timeout_s = *drain;
  const auto timeout = parse_duration_s(raw.request_timeout);
  if (!timeout.ok()) return timeout.error().within("--request-timeout");
  flags.request_timeout_s = *timeout;
  const auto measure = parse_duration_s(raw.measure_time);
  if (!measure.ok()) return measure.error().within("--measure-time");
  flags.measure_time_s = *measure;
  return flags;
}

void add_model(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option("--model", serve.model_folder, "GGUF file, or a model folder: config.json, model.safetensors, tokenizer.json");
  app.add_option("--port", raw.port, "listen on 127.0.0.1:PORT");
  app.add_option("--listen", raw.listen, "listen on HOST:PORT");
  app.add_option("--name", serve.served_name, "the model's name in the API (default: the folder's last component)");
  app.add_option("--backend", serve.backend, "cpu or cuda (default cpu)");
  app.add_option("--precision", raw.precision,
                 "of weights, activations and KV cache with --backend cuda: bf16 or fp32 (default bf16)");
  app.add_option("--gpu-memory-share", serve.gpu_memory_share,
                 "with --backend cuda: how much of each GPU's memory this worker may take, from 0 to 1 (default 0.9)");
  app.add_option("--chat-template", serve.chat_template,
                 "file of a Jinja template for chats (default: the model's own, else one by its special tokens)");
}

void add_limits(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option("--max-concurrent", serve.max_concurrent, "requests that run at once; twice as many may wait (default 8)");
  app.add_option("--kv-cache-tokens", serve.kv_cache_tokens,
                 "size of the KV cache (default: max-concurrent whole contexts, within 2 GiB or what the GPUs have left)");
  app.add_option("--max-context-tokens", serve.max_context_tokens,
                 "prompt and answer together (default: the model's own limit)");
  app.add_flag("--prefix-caching,!--no-prefix-caching", serve.prefix_caching,
               "prompts that begin alike share their keys and values (default)");
  app.add_option("--drain-timeout", raw.drain_timeout, "after SIGTERM, how long requests in flight may take (default 30m)");
  app.add_option("--request-timeout", raw.request_timeout,
                 "how long a request may take, waiting included; then it ends with an error (default 0: no limit)");
  app.add_option("--measure-time", raw.measure_time,
                 "about how long to measure prefill and decode before the worker is ready; 0: not at all (default 2s)");
}

// The worker's part in a chain or in a split of prefill and decode.
void add_part(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option(
      "--role", raw.role,
      "unified, prefill (prompts for other workers alone) or decode (answers to prompts of others) (default unified)");
  app.add_option("--blocks", raw.blocks,
                 "A:B: load the model's blocks A to B - 1 alone, counted from 0; workers that have all blocks together make a "
                 "chain (default: all blocks)");
  app.add_option("--next", raw.next,
                 "with --blocks 0:B: HOST:PORT[,HOST:PORT...] of the workers with the later blocks, in their order (default: "
                 "as each request's X-Windlass-Chain says)");
  app.add_option("--token-file", serve.token_file,
                 "file of the token that may change role and blocks while the worker runs (default: nobody may)");
}

void add_compute(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option("--threads", serve.threads,
                 "threads that compute, divided among the ranks of --tensor-parallel, each of which has one at least "
                 "(default 1)");
  app.add_flag(
      "--pin-threads", serve.pin_threads,
      "each of them stays on a processor of its own, on different cores as far as there are (OpenBLAS's, which compute "
      "long prompts, do not): for containers that have processors for themselves; workers that share theirs would be "
      "pinned onto each other (default: the system moves them)");
  app.add_option(
      "--weights", raw.weights,
      "how the layers' matrices are held: fp32 (on a GPU as --precision says); bf16 (not on a GPU), half of that "
      "and the same numbers "
      "where the files have BF16; int8 or fp8, eight bits a number and a scale for each output channel, and answers "
      "somewhat different; blocks (not on a GPU), as a GGUF file has them: products of its codes with activations of "
      "eight bits, and fp32 for matrices that it has not quantised (default blocks for a GGUF file, without a GPU; "
      "else fp32)");
  app.add_option(
      "--activations", raw.activations,
      "with --backend cuda --weights fp8: fp8 rounds what goes into products of more than 64 tokens, too, and multiplies "
      "FP8 numbers on the tensor cores (compute capability 8.9 and later); answers differ somewhat more (default bf16)");
  app.add_option(
      "--tensor-parallel", serve.tensor_parallel,
      "cut every layer among so many processes on this machine, which compute it together; with --backend cuda the first has "
      "the first visible GPU, the second the second, and so on (default 1)");
  // How rank 0 tells the others who they are.
  app.add_option("--tensor-rank", serve.tensor_rank)->group("");
  app.add_option("--tensor-memory", serve.tensor_memory)->group("");
}

// windlass-worker model init.
class ModelInitCommand {
 public:
  explicit ModelInitCommand(CLI::App& model)
      : command_(model.add_subcommand("init", "make a seeded random model in Hugging Face's format")) {
    command_->add_option("--architecture", architecture_, "llama, mistral, qwen2, qwen3, mixtral, qwen3_moe or opt")
        ->capture_default_str();
    command_->add_option("--layers", flags_.shape.layers, "transformer layers")->capture_default_str();
    command_->add_option("--hidden", flags_.shape.hidden, "hidden size")->capture_default_str();
    command_->add_option("--heads", flags_.shape.heads, "query heads")->capture_default_str();
    command_->add_option("--kv-heads", flags_.shape.kv_heads, "key and value heads; for opt as many as heads")
        ->capture_default_str();
    command_->add_option("--intermediate", flags_.shape.intermediate, "width of the MLP, or of each expert")
        ->capture_default_str();
    command_->add_option("--experts", flags_.shape.experts, "experts of each layer, for mixtral and qwen3_moe")
        ->capture_default_str();
    command_->add_option("--experts-per-token", flags_.shape.experts_per_token, "experts that a token goes to")
        ->capture_default_str();
    command_->add_option("--vocab", flags_.shape.vocab, "vocabulary, the 256 bytes and special tokens included")
        ->capture_default_str();
    command_->add_option("--max-context", flags_.shape.max_context, "context in tokens")->capture_default_str();
    command_->add_option("--seed", flags_.shape.seed, "the same seed makes the same bytes")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command_->add_flag("--overwrite", flags_.overwrite, "in place of a model that is there already");
    command_->add_option("folder", flags_.folder, "where to write")->required();
  }

  [[nodiscard]] bool parsed() const { return command_->parsed(); }

  // REQUIRES: parsed().
  [[nodiscard]] Result<ModelInitFlags> checked() const {
    ModelInitFlags init = flags_;
    const auto known = architecture_from_string(architecture_);
    if (!known.ok()) return known.error().within("--architecture");
    init.shape.architecture = *known;
    for (const char* flag : {"--experts", "--experts-per-token"}) {
      if (command_->count(flag) > 0 && !has_experts(*known)) {
        return bad(
            fmt::format("{}: found {}, allowed for mixtral and qwen3_moe alone", flag, command_->get_option(flag)->as<int>()));
      }
    }
    if (*known == Architecture::kOpt && command_->count("--kv-heads") == 0) init.shape.kv_heads = init.shape.heads;
    if (const auto fit = check_model_shape(init.shape); !fit.ok()) return bad("--" + fit.error().message);
    return init;
  }

 private:
  ModelInitFlags flags_;
  std::string architecture_ = to_string(flags_.shape.architecture);
  CLI::App* command_;
};

}  // namespace

Result<BlockRange> parse_blocks(std::string_view text) {
  const Error error = bad(fmt::format("--blocks: found '{}', allowed is A:B with whole numbers 0 <= A < B", text));
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return error;
  const auto number = [](std::string_view digits, std::int64_t& to) {
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return failure == std::errc{} && end == digits.data() + digits.size() && digits.front() != '-';
  };
  BlockRange blocks;
  if (!number(text.substr(0, colon), blocks.first) || !number(text.substr(colon + 1), blocks.end)) return error;
  if (blocks.first >= blocks.end) return error;
  return blocks;
}

Result<Command> parse_flags(const std::vector<std::string>& arguments, const std::string& version_text) {
  CLI::App app("windlass-worker: serves one model (Llama, Mistral, Qwen2, Qwen3, Mixtral, Qwen3-MoE, OPT) over the OpenAI API");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(0, 1);
  ServeFlags serve;
  RawServe raw;
  for (const auto add : {add_model, add_limits, add_part, add_compute}) add(app, serve, raw);

  CLI::App* model = app.add_subcommand("model", "work on models");
  model->require_subcommand(1);
  ModelInitCommand make(*model);
  ModelConfigFlags config;
  CLI::App* print_config =
      model->add_subcommand("config", "print the model's config.json, or what a GGUF file says in its words");
  print_config->add_option("model", config.model, "model folder or GGUF file")->required();

  MeasureFlags measure;
  CLI::App* measure_machine =
      app.add_subcommand("measure", "print what this machine's memory and processors can do, as JSON; takes a second or two");
  measure_machine->add_option("--threads", measure.threads, "that are busy meanwhile (default: one for each processor)")
      ->check(CLI::Range(1, 1024));

  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants a vector
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return Command(PrintAndExit{app.help()});
  } catch (const CLI::CallForAllHelp&) {
    return Command(PrintAndExit{app.help("", CLI::AppFormatMode::All)});
  } catch (const CLI::CallForVersion& version) {
    return Command(PrintAndExit{std::string(version.what()) + "\n"});
  } catch (const CLI::Error& e) {
    return bad(one_line(e.what()));
  }
  if (make.parsed()) {
    WINDLASS_ASSIGN_OR_RETURN(ModelInitFlags init, make.checked());
    return Command(std::move(init));
  }
  if (print_config->parsed()) return Command(config);
  if (measure_machine->parsed()) return Command(measure);
  WINDLASS_ASSIGN_OR_RETURN(ServeFlags flags, checked(std::move(serve), raw));
  return Command(std::move(flags));
}

}  // namespace windlass::worker
