// `windlass attach URL...`: runs Windlass in front of inference servers that already run. It adds a gateway, objectives and
// scaling recommendations; it does not start or stop the servers.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <ostream>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/api/yaml.h"
#include "controller/cli/attach/attach_probe.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/duration_check.h"
#include "controller/cli/console/model_description.h"
#include "controller/cli/console/object_files.h"
#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/local/stack_run.h"
#include "controller/cli/local/this_machine.h"
#include "controller/kube/curl_transport.h"
#include "metrics/net/host_port.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/capacity.h"
#include "planner/policy/make_plan.h"
#include "planner/sizing/worker_config.h"

namespace windlass::cli {
namespace {

constexpr int kAssumedSlots = 16;  // if the engine does not say
constexpr int kAssumedContextTokens = 4096;
constexpr std::size_t kMaxServiceName = 40;

struct AttachOptions {
  std::vector<std::string> urls;
  std::string model;        // the model's files; empty: the path that the server reports, if it exists here
  std::string accelerator;  // AcceleratorClass
  int per_server = 1;
  int slots = 0;  // 0: the server's own limit
  std::string ttft = "2s";
  std::string tpot = "200ms";
  LocalStackOptions stack;
};

// The servers of one model, as one ModelService.
struct Group {
  std::string service;
  std::vector<ProbedServer> servers;
};

const char* engine_type(const std::optional<metrics::EngineKind>& engine) {
  if (!engine) return nullptr;
  switch (*engine) {
    case metrics::EngineKind::kWindlass: return "Windlass";
    case metrics::EngineKind::kVllm: return "VLLM";
    case metrics::EngineKind::kSglang: return "SGLang";
    case metrics::EngineKind::kTensorRtLlm: return "TensorRTLLM";
    case metrics::EngineKind::kLlamaCpp: return "LlamaCpp";
    default: return nullptr;
  }
}

// The last part of a model's name, turned into a valid object name: "org/SmolLM2-135M" gives smollm2-135m.
std::string service_name(const std::string& model) {
  std::string name;
  for (const char c : model.substr(model.find_last_of('/') + 1)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (plain || (!name.empty() && name.back() != '-')) name += plain ? lower : '-';
  }
  name = name.substr(0, kMaxServiceName);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "model" : name;
}

std::vector<Group> grouped(std::vector<ProbedServer> servers) {
  std::vector<Group> groups;
  std::set<std::string> names;
  for (ProbedServer& server : servers) {
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& group) { return group.servers.front().model == server.model; });
    if (found == groups.end()) {
      std::string name = service_name(server.model);
      for (int i = 2; !names.insert(name).second; ++i) name = fmt::format("{}-{}", service_name(server.model), i);
      found = groups.insert(groups.end(), {name, {}});
    }
    found->servers.push_back(std::move(server));
  }
  return groups;
}

int slots_of(const ProbedServer& server, const AttachOptions& options) {
  return options.slots > 0 ? options.slots : server.slots.value_or(kAssumedSlots);
}

bool is_loopback(const std::string& address) {
  const auto parsed = net::parse_host_port(address);
  return parsed.ok() && (parsed->host == "localhost" || parsed->host == "::1" || parsed->host.starts_with("127."));
}

// The ModelService of a group. Missing information is reported to `notes`.
Result<nlohmann::json> service_of(const Group& group, const AttachOptions& options, std::ostream& notes) {
  const ProbedServer& first = group.servers.front();
  const std::string files = options.model.empty() ? first.model_path : options.model;
  nlohmann::json model = {{"servedName", first.model},
                          {"uri", "file://" + (files.empty() ? first.model : files)},  // required, but nothing loads it
                          {"maxContextTokens", first.context_tokens.value_or(kAssumedContextTokens)}};
  std::error_code failure;
  const bool here = !files.empty() && is_loopback(first.address) && std::filesystem::exists(files, failure);
  if (!options.model.empty() || here) {
    const auto description = describe_model(files);
    if (!description.ok() && !options.model.empty()) return description.error();
    if (description.ok()) model["config"] = {{"inline", description->config}};
    if (!description.ok()) notes << fmt::format("{}: {}\n", group.service, description.error().message);
  }
  if (!model.contains("config")) {
    notes << fmt::format(
        "{}: the model's shape is not known, so nothing is predicted or recommended; name its files with "
        "--model\n",
        group.service);
  }
  nlohmann::json spec = {{"model", std::move(model)},
                         {"slo", {{"timeToFirstToken", options.ttft}, {"timePerOutputToken", options.tpot}}},
                         {"accelerators", {{{"class", options.accelerator}}}},
                         {"scaling", {{"mode", "Recommend"}, {"minWorkers", 1}}}};
  // The owner of the servers has not asked us to send probes.
  if (const char* type = engine_type(first.engine)) spec["engine"] = {{"type", type}, {"probe", "Off"}};
  return nlohmann::json{{"apiVersion", "windlass.dev/v1alpha1"},
                        {"kind", "ModelService"},
                        {"metadata", {{"name", group.service}}},
                        {"spec", std::move(spec)}};
}

// Requests per second of one server with `per_server` accelerators, from the class's figures: with `slots` in use, or with as
// many as the objectives allow this pool's workers.
double rate_of(const planner::Snapshot& snapshot, const planner::Service& service, const planner::Pool& pool, int per_server,
               int slots) {
  const planner::AcceleratorState* state = planner::find_accelerator(snapshot, pool.spec.accelerator);
  const int batch = std::min(pool.each.slots, slots);
  const planner::LinearModel model(planner::linear_coefficients(*service.shape, state->spec, per_server, service.engine));
  const planner::Lengths lengths{service.workload.input_tokens, service.workload.output_tokens};
  return batch / planner::worker_times(model, batch, lengths).service_s;
}

// Prints how much load the servers of each model can take.
std::string abilities(const std::vector<api::Object>& objects, const std::vector<Group>& groups, const AttachOptions& options) {
  const planner::Snapshot snapshot = quiet_snapshot(objects);
  const planner::Plan plan = planner::make_plan(snapshot);
  std::string text;
  for (std::size_t i = 0; i < plan.services.size(); ++i) {
    const planner::ServicePlan& planned = plan.services[i];
    const planner::Service& service = snapshot.services[i];
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.service == planned.id.name; });
    if (group == groups.end()) continue;
    if (planned.recommended_pools.empty()) {
      text += wrapped(fmt::format("{}: {}", group->service, hint_text("Feasible", planned.feasible)), 0);
      continue;
    }
    const planner::Pool& pool = planned.recommended_pools.front();
    double all = 0;
    for (const ProbedServer& server : group->servers)
      all += rate_of(snapshot, service, pool, options.per_server, slots_of(server, options));
    text += wrapped(
        fmt::format("{}: {} can serve about {} requests/s of {:g} + {:g} tokens within the objectives, by the figures of {}; "
                    "measurements of live requests will correct this",
                    group->service, count_text(static_cast<int>(group->servers.size()), "server"), number_text(all),
                    service.workload.input_tokens, service.workload.output_tokens, pool.spec.accelerator),
        0);
  }
  return text;
}

Result<int> attach(AttachOptions options, Console& console) {
  kube::CurlTransport transport{kube::CurlOptions{}};
  std::vector<ProbedServer> servers;
  std::set<std::string> addresses;
  for (const std::string& url : options.urls) {
    WINDLASS_ASSIGN_OR_RETURN(ProbedServer server, probe_server(transport, url));
    std::string place = server.address;  // localhost and 127.0.0.1 are the same server
    if (place.starts_with("localhost:")) place.replace(0, place.find(':'), "127.0.0.1");
    if (!addresses.insert(place).second)
      return Error{ErrorCode::kInvalidArgument, fmt::format("URL: must be given once (got {} twice)", url)};
    console.out << to_text(server) << "\n" << std::flush;
    servers.push_back(std::move(server));
  }
  if (options.accelerator.empty()) {
    for (const ProbedServer& server : servers) {
      if (is_loopback(server.address)) continue;
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("--class: must be given, since {} is on another machine; -f names a file with the AcceleratorClass",
                      server.url)};
    }
    options.accelerator = kThisMachine;
  }
  std::vector<api::Object> objects;
  if (!options.stack.files.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(objects, read_object_files(options.stack.files));
    for (const api::Object& object : objects) {
      if (std::holds_alternative<api::ModelService>(object.value))
        return Error{ErrorCode::kInvalidArgument,
                     "--file: must hold AcceleratorClasses and PerformanceProfiles only (got a ModelService); attach creates "
                     "those itself"};
    }
  }
  const std::vector<Group> groups = grouped(std::move(servers));
  if (!options.model.empty() && groups.size() > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--model: must not be given for servers of {} models; attach each model with its own --dir",
                             groups.size())};
  }
  for (const Group& group : groups) {
    WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json service, service_of(group, options, console.err));
    const std::string yaml = api::to_yaml(service);
    WINDLASS_ASSIGN_OR_RETURN(std::vector<api::Object> made, api::load_objects(yaml, group.servers.front().url));
    objects.insert(objects.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    options.stack.made[group.service + ".yaml"] = yaml;
    for (const ProbedServer& server : group.servers) {
      options.stack.servers.push_back(
          {group.service, server.address, options.accelerator, options.per_server, slots_of(server, options)});
    }
  }
  WINDLASS_ASSIGN_OR_RETURN(const std::string machine, add_this_machine(objects, console.err));
  if (!machine.empty())
    options.stack.made[fmt::format("{}.class.yaml", kThisMachine)] = machine;  // no service's name has a dot
  WINDLASS_RETURN_IF_ERROR(check_references(objects, Classes::kOfFiles));
  console.out << abilities(objects, groups, options) << "\n" << std::flush;
  return run_stack(options.stack, objects, console);
}

}  // namespace

void add_attach(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "attach", "Put a gateway, objectives, metrics and recommendations in front of running servers, until Ctrl-C");
  auto options = std::make_shared<AttachOptions>();
  LocalStackOptions& stack = options->stack;
  command
      ->add_option("URL", options->urls,
                   "http://HOST:PORT of an OpenAI-compatible server; servers of the same model share its load")
      ->required();
  command->add_option("--ttft", options->ttft, "Objective for the time to first token")
      ->check(duration_check())
      ->capture_default_str();
  command->add_option("--tpot", options->tpot, "Objective for the time per output token")
      ->check(duration_check())
      ->capture_default_str();
  command->add_option("--model", options->model,
                      "Model files, for predictions: a folder with a config.json, or a GGUF file [the server's own path]");
  command->add_option(
      "--class", options->accelerator,
      "AcceleratorClass of the servers [this-machine, one core of this machine, measured now, if they run here]");
  command->add_option("-f,--file", stack.files, "YAML file with that AcceleratorClass; repeatable");
  command->add_option("--gpus", options->per_server, "Accelerators of that class per server")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--slots", options->slots, "Concurrent requests per server [the server's own limit, or 16]")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--dir", stack.directory, "Folder for objects, status and logs")->capture_default_str();
  command->add_option("--listen", stack.listen, "Where the gateway takes requests")->capture_default_str();
  command->footer("Attach never starts or stops the servers themselves.");
  command->callback([&context, options] {
    const auto code = attach(*options, context.console);
    if (code.ok()) {
      context.exit_code = *code;
      return;
    }
    context.console.err << "windlass attach: " << code.error().message << "\n";
    context.exit_code = kFailed;
  });
}

}  // namespace windlass::cli
