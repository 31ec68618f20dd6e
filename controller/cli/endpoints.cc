// Reads and writes endpoints.json; see endpoints.h.
#include "controller/cli/endpoints.h"

#include <fstream>
#include <iterator>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::cli {

std::string to_json(const Endpoints& endpoints) {
  const nlohmann::ordered_json json = {{"controller", endpoints.controller_url},
                                       {"gateway", endpoints.gateway_url},
                                       {"gatewayAdmin", endpoints.gateway_admin_urls}};
  return json.dump(2) + "\n";
}

Result<Endpoints> endpoints_from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    Endpoints endpoints;
    json.at("controller").get_to(endpoints.controller_url);
    json.at("gateway").get_to(endpoints.gateway_url);
    json.at("gatewayAdmin").get_to(endpoints.gateway_admin_urls);
    return endpoints;
  } catch (const nlohmann::json::exception& error) {
    return Error{ErrorCode::kInvalidArgument, error.what()};
  }
}

std::string endpoints_path(const std::string& directory) { return directory + "/endpoints.json"; }

void EndpointOptions::add_to(CLI::App& command) {
  auto* dir = command.add_option("--dir", directory, "Folder of a running `windlass up`")->capture_default_str();
  auto* url = command.add_option("--url", controller_url, "A controller elsewhere: http://HOST:PORT")->excludes(dir);
  command.add_option("--gateway", gateway_admin_urls, "With --url: a gateway's admin address, for its histograms; repeatable")
      ->needs(url);
}

Result<Endpoints> EndpointOptions::resolve() const {
  if (!controller_url.empty()) return Endpoints{controller_url, "", gateway_admin_urls};
  const std::string path = endpoints_path(directory);
  std::ifstream in(path);
  if (!in) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}: no Windlass runs in this folder; start one with `windlass up -f FILE --dir {}`, or name a controller "
                    "with --url http://HOST:PORT",
                    path, directory)};
  }
  auto endpoints = endpoints_from_json({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
  if (!endpoints.ok()) return endpoints.error().within(path);
  return endpoints;
}

}  // namespace windlass::cli
