// main() of windlass, the command-line tool: connects run_cli() to the process's arguments and streams. The build also links
// the program as kubectl-windlass, so kubectl runs it as a plugin: `kubectl windlass explain ms/NAME`.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "controller/cli/console/commands.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // when the reader closes the pipe (`windlass top | head`), the write fails instead
  const char* kind = std::getenv("TERM");
  const bool draws = kind != nullptr && std::string_view(kind) != "dumb";  // the terminal can move its cursor
  windlass::cli::Console console{std::cout, std::cerr, draws && isatty(STDOUT_FILENO) == 1,
                                 draws && isatty(STDERR_FILENO) == 1};
  const std::string path = argc > 0 ? argv[0] : "";
  const std::string name = path.substr(path.rfind('/') + 1);
  return windlass::cli::run_cli(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), console,
                                name == "kubectl-windlass" ? "kubectl windlass" : "windlass");
}
