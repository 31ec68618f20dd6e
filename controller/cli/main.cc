// windlass: the tool for people. All of it is run_cli(); this file ties it to the process. Under the name kubectl-windlass,
// which the build links to it, kubectl finds it on PATH as its plugin: `kubectl windlass explain ms/NAME`.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "controller/cli/console/commands.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left (`windlass top | head`) is an error of one write, not our end
  const char* kind = std::getenv("TERM");
  const bool draws = kind != nullptr && std::string_view(kind) != "dumb";  // it knows how to move a cursor
  windlass::cli::Console console{std::cout, std::cerr, draws && isatty(STDOUT_FILENO) == 1,
                                 draws && isatty(STDERR_FILENO) == 1};
  const std::string path = argc > 0 ? argv[0] : "";
  const std::string name = path.substr(path.rfind('/') + 1);
  return windlass::cli::run_cli(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), console,
                                name == "kubectl-windlass" ? "kubectl windlass" : "windlass");
}
