// windlass: the tool for people. All of it is run_cli(); this file ties it to the process.
#include <csignal>
#include <iostream>

#include <unistd.h>

#include "controller/cli/commands.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left (`windlass top | head`) is an error of one write, not our end
  windlass::cli::Console console{std::cout, std::cerr, isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1};
  return windlass::cli::run_cli(std::vector<std::string>(argv + 1, argv + argc), console);
}
