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

// Parses a duration such as 500ms or 1s; `seconds` receives it.
CLI::Option* add_duration(CLI::App& app, const std::string& name, double& seconds, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&seconds, name](const std::string& text) {
            const auto parsed = parse_duration_s(text);
            if (!parsed.ok() || *parsed <= 0) {
              throw CLI::ValidationError(name,
                                         parsed.ok() ? "must be more than 0 (got '" + text + "')" : parsed.error().message);
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
    return ok ? ""
              : fmt::format("must be at most {} lower-case letters and digits, with - only in between (got '{}')", most, text);
  };
}

// Flags for the store, the runtime and the address.
void add_world(CLI::App& app, AppOptions& o) {
  const CLI::Validator store_kind(
      [](std::string& text) {
        if (text == "kubernetes" || (text.rfind("dir:", 0) == 0 && text.size() > 4)) return std::string();
        return "must be 'kubernetes' or 'dir:PATH' (got '" + text + "')";
      },
      "kubernetes|dir:PATH");
  app.add_option("--store", o.store, "where the objects are stored")->check(store_kind)->capture_default_str();
  app.add_option("--runtime", o.runtime,
                 "where the workers run; attached: somebody else runs them, at the addresses in --servers")
      ->check(CLI::IsMember({"kubernetes", "local", "attached"}))
      ->capture_default_str();
  app.add_option("--listen", o.listen, "HOST:PORT to serve health, metrics and the routing table")->capture_default_str();
}

void add_loop(CLI::App& app, AppOptions& o) {
  add_duration(app, "--tick", o.tick_s, "time between decisions while nothing changes [1s]");
  add_duration(app, "--load-status-period", o.load_status_period_s,
               "shortest time between two writes of load figures to a status [30s]");
  app.add_option("--max-queued", o.max_queued, "maximum number of queued requests per gateway and model")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

void add_security(CLI::App& app, AppOptions& o) {
  app.add_option("--tls-cert", o.tls_cert, "PEM certificate for --listen, followed by its chain; reloaded when it changes");
  app.add_option("--tls-key", o.tls_key, "PEM private key of --tls-cert");
  app.add_option("--token-file", o.token_file,
                 "file with the installation's token: callers of /v1/* and /metrics must send it as a bearer token, and the "
                 "controller sends it when it scrapes gateways");
  app.add_flag("--open-metrics", o.open_metrics, "serve /metrics without a token");
  app.add_option("--gateway-ca", o.gateway_ca,
                 "PEM file of the CAs for the gateways' admin certificates, if they use TLS [the system's store]");
  app.add_option("--gateway-server-name", o.gateway_server_name, "name expected in the gateways' admin certificates")
      ->capture_default_str();
}

void add_prometheus(CLI::App& app, AppOptions& o) {
  const CLI::Validator http_url(
      [](std::string& text) {
        const bool http = text.rfind("http://", 0) == 0 || text.rfind("https://", 0) == 0;
        if (http && text.find('@') == std::string::npos && text.find_first_of("?# ") == std::string::npos) return std::string();
        return fmt::format(
            "must be http://HOST:PORT or https://HOST:PORT with an optional path, without user or query (got '{}')", text);
      },
      "URL");
  CLI::Option* prometheus =
      app.add_option(
             "--prometheus-url", o.prometheus_url,
             "URL of a Prometheus server that scrapes the gateways; the controller reads demand from it [the gateways' own "
             "/metrics]")
          ->check(http_url);
  app.add_option("--prometheus-selector", o.prometheus_selector,
                 "label matchers that select this installation's gateways in Prometheus, such as namespace=\"llm\"")
      ->needs(prometheus);
  app.add_option("--prometheus-token-file", o.prometheus_token_file,
                 "file with the bearer token for Prometheus; reloaded when it changes")
      ->needs(prometheus);
  add_duration(app, "--prometheus-period", o.prometheus_period_s, "time between two rounds of Prometheus queries [5s]")
      ->needs(prometheus);
}

void add_log(CLI::App& app, AppOptions& o) {
  app.add_option("--log-level", o.log_level, "lowest level that is logged to stderr")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

void add_cluster(CLI::App& app, AppOptions& o) {
  app.add_option("--kubeconfig", o.kubeconfig,
                 "kubeconfig file [KUBECONFIG; in a pod, its service account; otherwise ~/.kube/config]");
  app.add_option("--context", o.context, "context of the kubeconfig [its current-context]");
  app.add_option("--namespace", o.name_space, "namespace of the leader-election Lease [the kubeconfig's or the pod's]");
  app.add_option("--instance", o.instance,
                 "name of this installation, if the cluster has several; it serves ModelServices whose label "
                 "windlass.dev/instance has this value; the installation called windlass also serves those without the label")
      ->check(dns_label(40))
      ->capture_default_str();
  app.add_option("--watch-namespaces", o.watch_namespaces,
                 "comma-separated namespaces whose ModelServices are served; write permissions are needed only there [all]")
      ->delimiter(',')
      ->check(dns_label(63));
  app.add_option("--plain-names", o.plain_names,
                 "comma-separated namespaces whose models clients call by name alone; other models are called NAMESPACE/NAME; "
                 "* for all namespaces, - for none")
      ->delimiter(',')
      ->check([label = dns_label(63)](const std::string& text) { return text == "-" || text == "*" ? "" : label(text); })
      ->capture_default_str();
  app.add_option("--identity", o.identity, "name of this process in the Lease; a random part is added [the host name]");
  app.add_flag("--leader-elect,!--no-leader-elect", o.leader_elect,
               "use a Lease, so that one controller leads and the others stand by [on]");
}

void add_workers(CLI::App& app, AppOptions& o) {
  app.add_option("--worker-image", o.worker_image, "image of workers whose ModelService does not set one");
  app.add_flag("--any-pod-template", o.any_pod_template,
               "allow every field in podTemplates, even ones that give their author control of the node (docs/security.md)");
  app.add_option("--fetch-image", o.fetch_image, "image with the `hf` tool, which downloads hf:// models in worker pods");
  app.add_option("--worker-pull-secrets", o.worker_pull_secrets,
                 "comma-separated Secrets for pulling workers' images; they must exist in the namespaces of the ModelServices")
      ->delimiter(',');
  app.add_option("--worker-user", o.worker_user,
                 "user number of worker pods; none: the image's, or what the cluster chooses, as OpenShift does")
      ->check([](const std::string& text) {
        const bool number = !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
        return text == "none" || (number && text[0] != '0') ? std::string()
                                                            : fmt::format("must be 1 to 999999999, or none (got '{}')", text);
      })
      ->capture_default_str();
  app.add_option("--worker-binary", o.worker_binary, "path of windlass-worker, for --runtime local [next to this program]");
  app.add_option("--local-gpus", o.local_gpus,
                 "number of accelerators of this machine, for --runtime local and attached [its cores]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--servers", o.servers,
                 "file with a JSON list of {service, address, accelerator, gpus, slots}, for --runtime attached");
  app.add_flag("--keep-workers", o.keep_workers,
               "for --runtime local: workers survive a crash of this program, and the next one on the same folder adopts them");
  app.add_option("--model-root", o.model_root, "folder that relative file:// paths start from [the working directory]");
}

// Invalid combinations of flags, one message each.
std::vector<std::string> contradictions(const AppOptions& o) {
  std::vector<std::string> found;
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    found.push_back(o.tls_cert.empty() ? "--tls-cert: must be set if --tls-key is (got nothing)"
                                       : "--tls-key: must be set if --tls-cert is (got nothing)");
  }
  if (o.servers.empty() != (o.runtime != "attached")) {
    found.emplace_back("--servers: must be set with --runtime attached, and only then");
  }
  if (o.store_is_directory() != (o.runtime != "kubernetes")) {
    found.push_back(fmt::format("--store: must be {} with --runtime {} (got {})",
                                o.runtime == "kubernetes" ? "kubernetes" : "dir:PATH", o.runtime, o.store));
  }
  return found;
}

}  // namespace

ParsedFlags parse_flags(int argc, const char* const* argv) {
  ParsedFlags out;
  CLI::App app("windlass-controller: keeps every ModelService within its latency objectives at the lowest cost.",
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
      std::cerr << "windlass-controller: " << e.what() << " (see --help)\n";
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
