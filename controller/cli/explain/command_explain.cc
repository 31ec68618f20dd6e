// `windlass explain ms/NAME`: explains the controller's last decision about one service. Reads it from a controller or a
// recorded snapshot; if there is neither, explains what the object's status in the cluster says.
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/api/json.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/service_name.h"
#include "controller/cli/console/text_file.h"
#include "controller/cli/explain/explain_text.h"
#include "controller/cli/live/endpoints.h"
#include "controller/cli/live/observer.h"
#include "controller/kube/cluster.h"
#include "controller/kube/resource.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"

namespace windlass::cli {
namespace {

constexpr double kApiTimeoutS = 10;

struct ExplainOptions {
  EndpointOptions endpoints;
  ServiceName name;
  std::string snapshot;
  std::string kubeconfig;
  std::string context;
};

Result<std::string> explain(const planner::Snapshot& snapshot, const planner::Plan& plan, const ServiceName& name) {
  std::string known;
  for (std::size_t i = 0; i < snapshot.services.size(); ++i) {
    const planner::ServiceId& id = snapshot.services[i].id;
    known += (known.empty() ? "" : ", ") + id.name_space + "/" + id.name;
    if (name.is(id) && i < plan.services.size() && plan.services[i].id == id) return explanation(snapshot, plan, i);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("ModelService {}: must have a plan (got none); the controller has plans for: {}", name.text(),
                           known.empty() ? "none" : known)};
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The kubeconfig files that exist. None: there is no cluster to ask.
std::vector<std::filesystem::path> kubeconfig_files(const ExplainOptions& options) {
  if (!options.kubeconfig.empty()) return {options.kubeconfig};
  auto files = kube::kubeconfig_paths(environment("KUBECONFIG"), environment("HOME"));
  std::erase_if(files, [](const auto& file) {
    std::error_code unreadable;
    return !std::filesystem::exists(file, unreadable);
  });
  return files;
}

Result<std::string> explain_status(const ExplainOptions& options, const std::vector<std::filesystem::path>& files) {
  WINDLASS_ASSIGN_OR_RETURN(kube::ClusterConfig config, kube::load_kubeconfig({files, options.context}));
  ServiceName name = options.name;
  if (!name.name_space_given) name.name_space = config.name_space;
  kube::ClusterOptions cluster_options;
  cluster_options.client.timeout_s = kApiTimeoutS;
  WINDLASS_ASSIGN_OR_RETURN(const auto cluster, kube::Cluster::connect(std::move(config), std::move(cluster_options)));
  const auto object = cluster->client().get(kube::resources::kModelServices, name.name_space, name.name);
  if (!object.ok()) return Error{object.error().code, fmt::format("ModelService {}: {}", name.text(), object.error().message)};
  WINDLASS_ASSIGN_OR_RETURN(const api::ModelService service, api::model_service_from_json(*object));
  return explanation(service) +
         "\nThis comes from the object's status. The leading controller also has the alternatives and what would change the "
         "decision:\n"
         "forward a port to it and use --url (docs/operations.md).\n";
}

Result<std::string> explain(const ExplainOptions& options) {
  if (!options.snapshot.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text_file(options.snapshot, "a file with a controller's /v1/snapshot"));
    const auto snapshot = planner::snapshot_from_json(text);
    if (!snapshot.ok()) return snapshot.error().within(options.snapshot);
    return explain(*snapshot, planner::make_plan(*snapshot), options.name);
  }
  const auto endpoints = options.endpoints.resolve();
  if (!endpoints.ok()) {
    const auto files = kubeconfig_files(options);
    if (endpoints.error().code != ErrorCode::kNotFound || files.empty()) return endpoints.error();
    return explain_status(options, files);
  }
  Observer observer(*endpoints);
  WINDLASS_ASSIGN_OR_RETURN(const auto decision, observer.decision());
  return explain(decision.snapshot, decision.plan, options.name);
}

}  // namespace

void add_explain(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("explain", "Explain what was decided about a service, and why");
  auto options = std::make_shared<ExplainOptions>();
  options->name.add_to(*command);
  options->endpoints.add_to(*command);
  command
      ->add_option("--snapshot", options->snapshot,
                   "File with a recorded GET /v1/snapshot: explain what would be decided from it")
      ->excludes("--url")
      ->excludes("--dir");
  command
      ->add_option("--kubeconfig", options->kubeconfig,
                   "Read the object's status from this cluster, if there is no --url and nothing runs in --dir")
      ->excludes("--snapshot");
  command->add_option("--context", options->context, "Context in the kubeconfig")->excludes("--snapshot");
  command->callback([&context, options] {
    const auto text = explain(*options);
    if (!text.ok()) {
      context.console.err << "windlass explain: " << text.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << *text;
  });
}

}  // namespace windlass::cli
