// Parses a ModelService's name on the command line; see service_name.h.
#include "controller/cli/console/service_name.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace windlass::cli {

Result<std::string> service_name_from(const std::string& argument) {
  const auto slash = argument.find('/');
  const std::string kind = slash == std::string::npos ? "ms" : argument.substr(0, slash);
  const std::string name = slash == std::string::npos ? argument : argument.substr(slash + 1);
  const bool kind_is_ours = kind == "ms" || kind == "modelservice" || kind == "modelservices";
  if (!kind_is_ours || name.empty() || name.find('/') != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("must be NAME, ms/NAME or modelservice/NAME (got '{}')", argument)};
  }
  return name;
}

void ServiceName::add_to(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "SERVICE",
          [this](const std::string& argument) {
            auto parsed = service_name_from(argument);
            if (!parsed.ok()) throw CLI::ValidationError("SERVICE", parsed.error().message);
            name = *parsed;
          },
          "The ModelService: NAME or ms/NAME")
      ->required();
  command.add_option("-n,--namespace", name_space, "Namespace of the ModelService")
      ->capture_default_str()
      ->each([this](const std::string&) { name_space_given = true; });
}

}  // namespace windlass::cli
