// `windlass explain ms/NAME`: the controller's last decision about one service, in words.
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/commands.h"
#include "controller/cli/endpoints.h"
#include "controller/cli/observer.h"
#include "controller/cli/plan_text.h"
#include "controller/cli/service_name.h"

namespace windlass::cli {
namespace {

Result<std::string> explain(const EndpointOptions& endpoint_options, const ServiceName& name) {
  WINDLASS_ASSIGN_OR_RETURN(const Endpoints endpoints, endpoint_options.resolve());
  Observer observer(endpoints);
  WINDLASS_ASSIGN_OR_RETURN(const auto decision, observer.decision());
  std::string known;
  for (const auto& service : decision.snapshot.services) {
    known += (known.empty() ? "" : ", ") + service.id.name_space + "/" + service.id.name;
    if (!name.is(service.id)) continue;
    for (const auto& planned : decision.plan.services) {
      if (planned.id == service.id) return explanation(decision.snapshot, service, decision.plan, planned);
    }
  }
  return Error{ErrorCode::kNotFound, fmt::format("found no plan for ModelService {}; the controller knows: {}", name.text(),
                                                 known.empty() ? "none" : known)};
}

}  // namespace

void add_explain(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("explain", "Say in words what was decided about a service, and why");
  auto endpoints = std::make_shared<EndpointOptions>();
  auto name = std::make_shared<ServiceName>();
  name->add_to(*command);
  endpoints->add_to(*command);
  command->callback([&context, endpoints, name] {
    const auto text = explain(*endpoints, *name);
    if (!text.ok()) {
      context.console.err << "windlass explain: " << text.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << *text;
  });
}

}  // namespace windlass::cli
