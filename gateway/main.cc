// windlass-gateway: parses the flags, then runs the app.
#include <cstdio>

#include "gateway/app.h"
#include "gateway/options.h"

int main(int argc, char** argv) {
  const auto command_line = windlass::gateway::parse_command_line(argc, argv);
  if (!command_line.options.has_value()) {
    std::fputs(command_line.text.c_str(), command_line.exit_code == 0 ? stdout : stderr);
    return command_line.exit_code;
  }
  return windlass::gateway::run_gateway(*command_line.options);
}
