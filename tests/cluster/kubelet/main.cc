// windlass-test-kubelet: the tests' node agent as a program (see kubelet.h). It ends on SIGTERM and stops its pods' processes.
// If it is killed, the kernel stops them (PR_SET_PDEATHSIG).
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "tests/cluster/kubelet/kubelet.h"

namespace {

// "NAME=VALUE" flags as a map.
std::map<std::string, std::string> as_map(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> result;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw CLI::ValidationError("'" + pair + "': must be NAME=VALUE");
    }
    result[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  windlass::testing::KubeletOptions options;
  std::vector<std::string> allocatable;
  std::vector<std::string> labels;
  std::vector<std::string> images;
  CLI::App app{"A Kubernetes node for tests: runs the containers of its pods as local processes"};
  app.add_option("--kubeconfig", options.kubeconfig, "kubeconfig with the API server and the credentials")->required();
  app.add_option("--node", options.node, "the node's name");
  app.add_option("--folder", options.folder, "folder for the pods' logs and volumes")->required();
  app.add_option("--allocatable", allocatable, "an extended resource of the node, RESOURCE=COUNT");
  app.add_option("--label", labels, "a label of the node, KEY=VALUE");
  app.add_option("--image", images, "the program that stands for an image, IMAGE=PATH");
  app.add_option("--network", options.network, "pods get 127.NETWORK.x.y")->check(CLI::Range(1, 254));
  app.add_flag("--cordoned", options.cordoned, "register the node as unschedulable");
  app.add_option("--crash-backoff", options.crash_backoff_s, "seconds before the first restart of a crashed container");
  try {
    app.parse(argc, argv);
    options.allocatable = as_map(allocatable);
    options.labels = as_map(labels);
    options.program_by_image = as_map(images);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  windlass::testing::Kubelet kubelet(std::move(options));
  std::thread waiter([&] {
    int number = 0;
    sigwait(&signals, &number);
    kubelet.stop();
  });
  const auto result = kubelet.run();
  if (!result.ok()) {
    fmt::print(stderr, "windlass-test-kubelet: {}\n", result.error().message);
    ::kill(::getpid(), SIGTERM);
  }
  waiter.join();
  return result.ok() ? 0 : 1;
}
