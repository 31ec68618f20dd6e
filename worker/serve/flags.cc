// Parses with CLI11 and checks what CLI11 cannot.
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
  return bad(fmt::format("{}: must be {} to {} (got {})", flag, low, high, found));
}

std::string last_component(const std::string& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Raw flags for serving, before validation.
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

// Flags about this worker's part of the model.
Result<void> read_chain(ServeFlags& flags, const RawServe& raw) {
  if (!raw.blocks.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(flags.blocks, parse_blocks(raw.blocks));
    if (flags.role != Role::kUnified) {
      return bad(fmt::format("--role: must be unified with --blocks (got {})", to_string(flags.role)));
    }
  }
  if (raw.next.empty()) return {};
  auto hops = hops_from(raw.next);
  if (!hops.ok()) return hops.error().within("--next");
  if (!flags.blocks || flags.blocks->first > 0) {
    return bad(
        fmt::format("--next: must be given only with --blocks 0:B (got {}); the first worker knows its chain", raw.next));
  }
  flags.next_hops = std::move(hops).value();
  return {};
}

// Flags about the GPU.
Result<void> read_device(ServeFlags& flags, const RawServe& raw) {
  if (!raw.precision.empty()) {
    const bool cuda = flags.backend == "cuda";
    if (raw.precision != "fp32" && !(cuda && raw.precision == "bf16")) {
      return bad(fmt::format("--precision: must be {} with --backend {} (got '{}')", cuda ? "bf16 or fp32" : "fp32",
                             flags.backend, raw.precision));
    }
    flags.precision = raw.precision == "fp32" ? cuda::Precision::kFp32 : cuda::Precision::kBf16;
  }
  if (!(flags.gpu_memory_share > 0 && flags.gpu_memory_share <= 1)) {
    return bad(fmt::format("--gpu-memory-share: must be above 0 and at most 1 (got {})", flags.gpu_memory_share));
  }
  return {};
}

// Flags about GPU products with 8-bit weights.
Result<void> read_activations(ServeFlags& flags, const RawServe& raw) {
  if (raw.activations == "bf16") return {};
  if (raw.activations != "fp8") return bad(fmt::format("--activations: must be bf16 or fp8 (got '{}')", raw.activations));
  if (flags.backend != "cuda" || flags.weights != WeightFormat::kFp8 || flags.precision != cuda::Precision::kBf16)
    return bad("--activations: must be bf16 without --backend cuda, --weights fp8 and --precision bf16 (got fp8)");
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
    return bad(fmt::format("--weights: must be fp8 or int8 with --backend cuda (got {}); for other formats use --precision",
                           to_string(*weights)));
  }
  flags.weights = *weights;
  return {};
}

Result<void> check_batch_tokens(const ServeFlags& flags) {
  if (flags.max_batch_tokens == 0) return {};
  // The workers of a chain send each other iterations of limited size.
  const std::int64_t most = flags.blocks ? kChainMaxTokens : kMaxBatchTokens;
  WINDLASS_RETURN_IF_ERROR(in_range("--max-batch-tokens", flags.max_batch_tokens, 1, most));
  if (flags.max_batch_tokens >= flags.max_concurrent) return {};
  return bad(fmt::format("--max-batch-tokens: must be at least --max-concurrent, which is {} (got {})", flags.max_concurrent,
                         flags.max_batch_tokens));
}

Result<ServeFlags> checked(ServeFlags flags, const RawServe& raw) {
  if (flags.model_folder.empty()) return bad("--model: must be a model folder or a GGUF file (got nothing); see --help");
  if (raw.listen.empty() && raw.port < 0) return bad("--port: must be given, or --listen HOST:PORT (got neither)");
  if (raw.port >= 0 || raw.listen.empty()) {
    WINDLASS_RETURN_IF_ERROR(in_range("--port", raw.port, 1, 65535));
    flags.port = raw.port;
  }
  if (!raw.listen.empty()) {
    const auto address = net::parse_host_port(raw.listen);
    if (!address.ok()) return address.error().within("--listen");
    const int port = std::stoi(address->port);
    if (port == 0) return bad(fmt::format("--listen: must have a port from 1 to 65535 (got '{}')", raw.listen));
    if (raw.port >= 0 && raw.port != port) {
      return bad(
          fmt::format("--port: must equal the port of --listen, which is {} (got {}); give only one of them", port, raw.port));
    }
    flags.host = address->host;
    flags.port = port;
  }
  if (flags.served_name.empty()) flags.served_name = last_component(flags.model_folder);
  if (flags.backend != "cpu" && flags.backend != "cuda") {
    return bad(fmt::format("--backend: must be cpu or cuda (got '{}')", flags.backend));
  }
  WINDLASS_RETURN_IF_ERROR(read_device(flags, raw));
  WINDLASS_RETURN_IF_ERROR(in_range("--tensor-parallel", flags.tensor_parallel, 1, RankGroup::kMaxRanks));
  WINDLASS_RETURN_IF_ERROR(in_range("--tensor-rank", flags.tensor_rank, 0, flags.tensor_parallel - 1));
  if ((flags.tensor_rank > 0) != (flags.tensor_memory >= 0)) {
    return bad(fmt::format("--tensor-rank: must not be given (got {}): rank 0 starts the others itself", flags.tensor_rank));
  }
  WINDLASS_RETURN_IF_ERROR(read_weights(flags, raw));
  WINDLASS_RETURN_IF_ERROR(read_activations(flags, raw));
  const auto role = role_from(raw.role);
  if (!role) return bad(fmt::format("--role: must be unified, prefill or decode (got '{}')", raw.role));
  flags.role = *role;
  WINDLASS_RETURN_IF_ERROR(read_chain(flags, raw));
  WINDLASS_RETURN_IF_ERROR(in_range("--max-concurrent", flags.max_concurrent, 1, 1024));
  WINDLASS_RETURN_IF_ERROR(check_batch_tokens(flags));
  WINDLASS_RETURN_IF_ERROR(in_range("--threads", flags.threads, 1, 1024));
  if (flags.pin_threads && flags.backend != "cpu") {
    return bad(fmt::format("--pin-threads: must be given only with --backend cpu (got {})", flags.backend));
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
                 "type of weights, activations and KV cache with --backend cuda: bf16 or fp32 (default bf16)");
  app.add_option("--gpu-memory-share", serve.gpu_memory_share,
                 "with --backend cuda: fraction of each GPU's memory that this worker may use, from 0 to 1 (default 0.9)");
  app.add_option("--chat-template", serve.chat_template,
                 "file with a Jinja template for chats (default: the model's own, else one chosen by its special tokens)");
}

void add_limits(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option("--max-concurrent", serve.max_concurrent, "concurrent requests; twice as many more may wait (default 8)");
  app.add_option(
      "--max-batch-tokens", serve.max_batch_tokens,
      "tokens that an iteration computes at most, decodes and pieces of prompts together; fewer delay running answers "
      "less, more compute prompts faster (default 256, on GPUs 1024, and at least max-concurrent)");
  app.add_option(
      "--kv-cache-tokens", serve.kv_cache_tokens,
      "size of the KV cache in tokens (default: max-concurrent full contexts, within 2 GiB or the GPUs' free memory)");
  app.add_option("--max-context-tokens", serve.max_context_tokens,
                 "limit of prompt plus answer, in tokens (default: the model's own limit)");
  app.add_flag("--prefix-caching,!--no-prefix-caching", serve.prefix_caching,
               "share keys and values between prompts with the same beginning (default)");
  app.add_option("--drain-timeout", raw.drain_timeout, "after SIGTERM, time for requests in flight to finish (default 30m)");
  app.add_option("--request-timeout", raw.request_timeout,
                 "limit of a request's time, including waiting, after which it fails (default 0: no limit)");
  app.add_option("--measure-time", raw.measure_time,
                 "approximate time to measure prefill and decode before the worker is ready; 0: do not measure (default 2s)");
}

// Adds flags for chains and for split prefill and decode.
void add_part(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option(
      "--role", raw.role,
      "unified, prefill (only prompts for other workers) or decode (answers to prompts of other workers) (default unified)");
  app.add_option("--blocks", raw.blocks,
                 "A:B: load only the model's blocks A to B - 1, counted from 0; workers that together have all blocks form a "
                 "chain (default: all blocks)");
  app.add_option(
      "--next", raw.next,
      "with --blocks 0:B: HOST:PORT[,HOST:PORT...] of the workers with the later blocks, in order (default: from each "
      "request's X-Windlass-Chain header)");
  app.add_option("--token-file", serve.token_file,
                 "file with the token that allows changing role and blocks while the worker runs (default: only the token in "
                 "WINDLASS_DUTY_TOKEN does)");
}

void add_compute(CLI::App& app, ServeFlags& serve, RawServe& raw) {
  app.add_option("--threads", serve.threads,
                 "compute threads, divided among the ranks of --tensor-parallel, at least one each (default 1)");
  app.add_flag(
      "--pin-threads", serve.pin_threads,
      "pin each compute thread to a processor of its own, on different cores if there are enough (except OpenBLAS's "
      "threads, which compute long prompts); use it only in containers with exclusive processors, because workers that "
      "share processors would be pinned to the same ones (default: not pinned)");
  app.add_option(
      "--weights", raw.weights,
      "format of the layers' matrices: fp32 (on a GPU: that of --precision); bf16 (not on a GPU), half the size and the "
      "same numbers if the files have BF16; int8 or fp8, 8 bits per number and a scale per output channel, with slightly "
      "different answers; blocks (not on a GPU), a GGUF file's own codes, multiplied with 8-bit activations, and fp32 for "
      "matrices that the file does not quantise (default: blocks for a GGUF file without a GPU, otherwise fp32)");
  app.add_option(
      "--activations", raw.activations,
      "with --backend cuda --weights fp8: fp8 also rounds the inputs of products of more than 64 tokens and multiplies FP8 "
      "numbers on the tensor cores (compute capability 8.9 or later); answers differ slightly more (default bf16)");
  app.add_option("--tensor-parallel", serve.tensor_parallel,
                 "split every layer among this many processes on this machine, which compute it together; with --backend cuda "
                 "the first uses the first visible GPU, the second the second, and so on (default 1)");
  // Internal flags, by which rank 0 starts the others.
  app.add_option("--tensor-rank", serve.tensor_rank)->group("");
  app.add_option("--tensor-memory", serve.tensor_memory)->group("");
}

// windlass-worker model init.
class ModelInitCommand {
 public:
  explicit ModelInitCommand(CLI::App& model)
      : command_(model.add_subcommand("init", "generate a seeded random model in Hugging Face's format")) {
    command_->add_option("--architecture", architecture_, "llama, mistral, qwen2, qwen3, mixtral, qwen3_moe or opt")
        ->capture_default_str();
    command_->add_option("--layers", flags_.shape.layers, "transformer layers")->capture_default_str();
    command_->add_option("--hidden", flags_.shape.hidden, "hidden size")->capture_default_str();
    command_->add_option("--heads", flags_.shape.heads, "query heads")->capture_default_str();
    command_->add_option("--kv-heads", flags_.shape.kv_heads, "key and value heads; for opt, equal to heads")
        ->capture_default_str();
    command_->add_option("--intermediate", flags_.shape.intermediate, "width of the MLP, or of each expert")
        ->capture_default_str();
    command_->add_option("--experts", flags_.shape.experts, "experts of each layer, for mixtral and qwen3_moe")
        ->capture_default_str();
    command_->add_option("--experts-per-token", flags_.shape.experts_per_token, "experts used by each token")
        ->capture_default_str();
    command_->add_option("--vocab", flags_.shape.vocab, "vocabulary size, including the 256 bytes and special tokens")
        ->capture_default_str();
    command_->add_option("--max-context", flags_.shape.max_context, "context in tokens")->capture_default_str();
    command_->add_option("--seed", flags_.shape.seed, "the same seed makes the same bytes")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command_->add_flag("--overwrite", flags_.overwrite, "replace an existing model");
    command_->add_option("folder", flags_.folder, "folder to write to")->required();
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
        return bad(fmt::format("{}: must be given only for mixtral and qwen3_moe (got {})", flag,
                               command_->get_option(flag)->as<int>()));
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
  const Error error = bad(fmt::format("--blocks: must be A:B with whole numbers 0 <= A < B (got '{}')", text));
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

  CLI::App* model = app.add_subcommand("model", "generate or inspect models");
  model->require_subcommand(1);
  ModelInitCommand make(*model);
  ModelConfigFlags config;
  CLI::App* print_config = model->add_subcommand("config", "print the model's config.json, or the equivalent for a GGUF file");
  print_config->add_option("model", config.model, "model folder or GGUF file")->required();

  MeasureFlags measure;
  CLI::App* measure_machine = app.add_subcommand(
      "measure", "measure memory bandwidth and FP32 speed of this machine and print them as JSON; takes a second or two");
  measure_machine->add_option("--threads", measure.threads, "threads to measure with (default: one per processor)")
      ->check(CLI::Range(1, 1024));

  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 wants the arguments reversed
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
