// `windlass validate -f FILE...`: checks files as the API server would, without one.
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/commands.h"
#include "controller/cli/console/object_files.h"

namespace windlass::cli {

void add_validate(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("validate", "Check YAML files against the custom resources' schemas and rules");
  auto files = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("-f,--file,FILE", *files, "File with ModelServices, AcceleratorClasses and PerformanceProfiles; repeatable")
      ->required();
  command->callback([&context, files] {
    const auto objects = read_object_files(*files);
    if (!objects.ok()) {
      context.console.err << objects.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    for (const auto& object : *objects)
      context.console.out << fmt::format("{}:{}: {}: valid\n", object.source, object.line, object.title());
    if (objects->empty()) context.console.out << "the files hold no objects\n";
  });
}

}  // namespace windlass::cli
