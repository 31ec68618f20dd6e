// windlass-worker: serves a model, creates one (`windlass-worker model init DIR`), or measures this machine.
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "worker/backend/cpu/machine.h"
#include "worker/backend/cpu/processors.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/model/gguf_model.h"
#include "worker/model/model_init.h"
#include "worker/serve/app.h"
#include "worker/serve/flags.h"
#include "worker/serve/host_memory.h"

namespace windlass::worker {
namespace {

std::string figures_text(const MeasureFlags& flags) {
  const auto processors = cpu::allowed_processors();
  const int all = processors.ok() ? static_cast<int>(processors->size()) : 1;
  const auto figures = cpu::measure_machine(flags.threads > 0 ? flags.threads : all, 5);
  nlohmann::json text = {{"threads", figures.threads},
                         {"read_bytes_per_s", figures.read_bytes_per_s},
                         {"fp32_flops_per_s", figures.fp32_flops_per_s}};
  if (const auto room = host_memory().shared) text["free_memory_bytes"] = room->bytes;
  return text.dump();
}

}  // namespace
}  // namespace windlass::worker

int main(int argc, char** argv) {
  using namespace windlass;
  using namespace windlass::worker;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto command =
      parse_flags(arguments, fmt::format("windlass-worker {} (backends: cpu, cuda; {})", WINDLASS_VERSION, cuda::describe()));
  if (!command.ok()) {
    fmt::print(stderr, "windlass-worker: {}\n", command.error().message);
    return 2;
  }
  if (const auto* print = std::get_if<PrintAndExit>(&*command)) {
    fmt::print("{}", print->text);
    return 0;
  }
  if (const auto* init = std::get_if<ModelInitFlags>(&*command)) {
    const std::filesystem::path there = std::filesystem::path(init->folder) / "config.json";
    std::error_code ignored;  // init_model() reports the error
    const auto made = !init->overwrite && std::filesystem::exists(there, ignored)
                          ? Error{ErrorCode::kFailedPrecondition,
                                  fmt::format("{}: must be a folder without a model (got one with a model); or use --overwrite",
                                              there.string())}
                          : init_model(init->shape, init->folder);
    if (!made.ok()) {
      fmt::print(stderr, "windlass-worker: {}\n", made.error().message);
      return 1;
    }
    fmt::print("{}\n", init->folder);
    return 0;
  }
  if (const auto* wanted = std::get_if<ModelConfigFlags>(&*command)) {
    const auto config = config_text_of(wanted->model);
    if (!config.ok()) {
      fmt::print(stderr, "windlass-worker: {}\n", config.error().message);
      return 1;
    }
    fmt::print("{}\n", *config);
    return 0;
  }
  if (const auto* measure = std::get_if<MeasureFlags>(&*command)) {
    fmt::print("{}\n", figures_text(*measure));
    return 0;
  }
  const auto& flags = std::get<ServeFlags>(*command);
  if (flags.tensor_rank > 0) {
    spdlog::set_default_logger(spdlog::stderr_color_mt(fmt::format("windlass-worker rank {}", flags.tensor_rank)));
    return serve_rank(flags);
  }
  catch_stop_signals();
  spdlog::set_default_logger(spdlog::stderr_color_mt("windlass-worker"));
  return serve_model(flags, arguments);
}
