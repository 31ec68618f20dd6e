// See options.h.
#include "controller/app/options.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "planner/base/duration.h"

#ifndef WINDLASS_VERSION
#error "WINDLASS_VERSION is set by controller/app/CMakeLists.txt"
#endif

namespace windlass::controller {
namespace {

// Reads a duration such as 500ms or 1s into seconds.
CLI::Option* add_duration(CLI::App& app, const std::string& name, double& seconds, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&seconds, name](const std::string& text) {
            const auto parsed = parse_duration_s(text);
            if (!parsed.ok() || *parsed <= 0) {
              throw CLI::ValidationError(name,
                                         parsed.ok() ? "found '" + text + "', allowed is more than 0" : parsed.error().message);
            }
            seconds = *parsed;
          },
          help)
      ->type_name("DURATION");
}

// A DNS label of at most `most` characters.
auto dns_label(std::size_t most) {
  return [most](const std::string& text) -> std::string {
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    const bool ok = !text.empty() && text.size() <= most && text.front() != '-' && text.back() != '-' &&
                    std::all_of(text.begin(), text.end(), fits);
    return ok ? "" : fmt::format("found '{}', allowed are at most {} lower-case letters, digits and - in between", text, most);
  };
}

// Where objects are and workers run.
void add_world(CLI::App& app, AppOptions& o) {
  const CLI::Validator store_kind(
      [](std::string& text) {
        if (text == "kubernetes" || (text.rfind("dir:", 0) == 0 && text.size() > 4)) return std::string();
        return "found '" + text + "', allowed are 'kubernetes' and 'dir:PATH'";
      },
      "kubernetes|dir:PATH");
  app.add_option("--store", o.store, "where the objects are")->check(store_kind)->capture_default_str();
  app.add_option("--runtime", o.runtime, "where the workers run; attached: somebody else runs them, and --servers says where")
      ->check(CLI::IsMember({"kubernetes", "local", "attached"}))
      ->capture_default_str();
  app.add_option("--listen", o.listen, "HOST:PORT of health, metrics and the routing table")->capture_default_str();
}

void add_loop(CLI::App& app, AppOptions& o) {
  add_duration(app, "--tick", o.tick_s, "time between two decisions when nothing happens [1s]");
  add_duration(app, "--load-status-period", o.load_status_period_s,
               "figures of load are written to status at most this often [30s]");
  app.add_option("--max-queued", o.max_queued, "requests that may wait at one gateway for one model")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

void add_security(CLI::App& app, AppOptions& o) {
  app.add_option("--tls-cert", o.tls_cert, "PEM certificate of --listen, followed by its chain; read again when it changes");
  app.add_option("--tls-key", o.tls_key, "PEM key of --tls-cert");
  app.add_option("--token-file", o.token_file,
                 "the installation's token: /v1/* and /metrics ask for it as a bearer token, gateways are scraped with it");
  app.add_flag("--open-metrics", o.open_metrics, "/metrics needs no token");
  app.add_option("--gateway-ca", o.gateway_ca,
                 "PEM authorities of the gateways' admin certificates, where they speak TLS [the system's store]");
  app.add_option("--gateway-server-name", o.gateway_server_name, "name in the gateways' admin certificates")
      ->capture_default_str();
}

void add_prometheus(CLI::App& app, AppOptions& o) {
  const CLI::Validator http_url(
      [](std::string& text) {
        const bool http = text.rfind("http://", 0) == 0 || text.rfind("https://", 0) == 0;
        if (http && text.find('@') == std::string::npos && text.find_first_of("?# ") == std::string::npos) return std::string();
        return std::string("allowed is http://HOST:PORT or https://HOST:PORT with an optional path, without user or query");
      },
      "URL");
  CLI::Option* prometheus =
      app.add_option("--prometheus-url", o.prometheus_url,
                     "Prometheus server that scrapes the gateways: demand is read there [the gateways' own /metrics]")
          ->check(http_url);
  app.add_option("--prometheus-selector", o.prometheus_selector,
                 "label matchers that pick this installation's gateways there, such as namespace=\"llm\"")
      ->needs(prometheus);
  app.add_option("--prometheus-token-file", o.prometheus_token_file,
                 "file with the bearer token for it; read again as it changes")
      ->needs(prometheus);
  add_duration(app, "--prometheus-period", o.prometheus_period_s, "time between two rounds of queries to it [5s]")
      ->needs(prometheus);
}

void add_log(CLI::App& app, AppOptions& o) {
  app.add_option("--log-level", o.log_level, "what is logged to stderr")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

void add_cluster(CLI::App& app, AppOptions& o) {
  app.add_option("--kubeconfig", o.kubeconfig, "kubeconfig file [KUBECONFIG; in a pod, its service account; ~/.kube/config]");
  app.add_option("--context", o.context, "context of the kubeconfig [its current-context]");
  app.add_option("--namespace", o.name_space, "namespace of the leader-election Lease [the kubeconfig's or the pod's]");
  app.add_option("--instance", o.instance,
                 "this installation's name where a cluster has several; it serves ModelServices with the label "
                 "windlass.dev/instance of that value, the one called windlass also those without the label")
      ->check(dns_label(40))
      ->capture_default_str();
  app.add_option("--watch-namespaces", o.watch_namespaces,
                 "namespaces whose ModelServices are served, separated by commas; rights to write are needed there alone [all]")
      ->delimiter(',')
      ->check(dns_label(63));
  app.add_option("--plain-names", o.plain_names,
                 "namespaces whose models are called by their names alone, separated by commas; those of others are called "
                 "NAMESPACE/NAME; * for all, - for none")
      ->delimiter(',')
      ->check([label = dns_label(63)](const std::string& text) { return text == "-" || text == "*" ? "" : label(text); })
      ->capture_default_str();
  app.add_option("--identity", o.identity, "who we are in the Lease; a random part is added [the host's name]");
  app.add_flag("--leader-elect,!--no-leader-elect", o.leader_elect, "share the work with standbys through a Lease [on]");
}

void add_workers(CLI::App& app, AppOptions& o) {
  app.add_option("--worker-image", o.worker_image, "image of workers whose ModelService names none");
  app.add_flag("--any-pod-template", o.any_pod_template,
               "podTemplates may say anything, also what gives its author the node (docs/security.md)");
  app.add_option("--fetch-image", o.fetch_image, "image with the `hf` tool, which fetches hf:// models into worker pods");
  app.add_option("--worker-binary", o.worker_binary, "windlass-worker for --runtime local [the one beside this program]");
  app.add_option("--local-gpus", o.local_gpus,
                 "accelerators that this machine offers, for --runtime local and attached [its cores]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--servers", o.servers, "JSON list of {service, address, accelerator, gpus, slots}, for --runtime attached");
  app.add_flag("--keep-workers", o.keep_workers,
               "for --runtime local: workers outlive a crash of this program, and the next one on the same folder adopts them");
  app.add_option("--model-root", o.model_root, "folder at which relative file:// models begin [the working directory]");
}

// What is wrong with flags that are right by themselves, a line each.
std::vector<std::string> contradictions(const AppOptions& o) {
  std::vector<std::string> found;
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    found.push_back(std::string(o.tls_cert.empty() ? "--tls-key without --tls-cert" : "--tls-cert without --tls-key") +
                    "; allowed are both or neither");
  }
  if (o.servers.empty() != (o.runtime != "attached")) {
    found.emplace_back("--servers FILE must be given with --runtime attached, and only then");
  }
  if (o.store_is_directory() != (o.runtime != "kubernetes")) {
    found.push_back(
        fmt::format("--store {} with --runtime {}; allowed are kubernetes with kubernetes and dir:PATH with local "
                    "or attached",
                    o.store, o.runtime));
  }
  return found;
}

}  // namespace

ParsedFlags parse_flags(int argc, const char* const* argv) {
  ParsedFlags out;
  CLI::App app("windlass-controller: keeps every ModelService inside its objectives at the lowest cost.",
               "windlass-controller");
  app.set_version_flag("--version", std::string("windlass-controller " WINDLASS_VERSION));
  for (const auto add : {add_world, add_loop, add_security, add_prometheus, add_log, add_cluster, add_workers}) {
    add(app, out.options);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      out.exit_status = app.exit(e);  // --help, --version
    } else {
      std::cerr << "windlass-controller: " << e.what() << " (--help shows what is allowed)\n";
      out.exit_status = 2;
    }
    return out;
  }
  for (const std::string& line : contradictions(out.options)) {
    std::cerr << "windlass-controller: " << line << "\n";
    out.exit_status = 2;
  }
  return out;
}

}  // namespace windlass::controller
