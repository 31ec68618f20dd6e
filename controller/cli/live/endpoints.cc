// Reads and writes endpoints.json; see endpoints.h.
#include "controller/cli/live/endpoints.h"

#include <fstream>
#include <iterator>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/text_file.h"

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
  auto* dir =
      command.add_option("--dir", directory, "Folder of the running `windlass up` or `windlass attach`")->capture_default_str();
  auto* url = command.add_option("--url", controller_url, "URL of a remote controller: http://HOST:PORT")->excludes(dir);
  command
      .add_option("--gateway", gateway_admin_urls,
                  "With --url: URL of a gateway's admin port, for latency histograms; repeatable")
      ->needs(url);
  command.add_option("--token-file", token_file, "With --url: file with the installation's token")->needs(url);
  command
      .add_option("--ca-file", ca_file,
                  "With --url https://: PEM file of the authorities trusted to sign the controller's certificate")
      ->needs(url);
  command
      .add_option("--server-name", server_name,
                  "With --url https://: name in the controller's certificate, if not the URL's host")
      ->needs(url);
}

Result<Endpoints> EndpointOptions::resolve() const {
  if (!controller_url.empty()) {
    Endpoints elsewhere{controller_url, "", gateway_admin_urls, {"", "", server_name}};
    if (!token_file.empty()) {
      WINDLASS_ASSIGN_OR_RETURN(elsewhere.access.token, read_text_file(token_file, "a file with the installation's token"));
      std::string& token = elsewhere.access.token;
      token.erase(token.find_last_not_of(" \r\n\t") + 1);
      if (token.empty() || token.find_first_of(" \r\n\t") != std::string::npos) {
        return Error{ErrorCode::kInvalidArgument, token_file + ": must be one line of visible characters without spaces"};
      }
    }
    if (!ca_file.empty()) {
      WINDLASS_ASSIGN_OR_RETURN(elsewhere.access.ca_pem, read_text_file(ca_file, "a file of PEM certificates"));
    }
    return elsewhere;
  }
  const std::string path = endpoints_path(directory);
  std::ifstream in(path);
  if (!in) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format(
            "{}: no Windlass runs in this folder; start one with `windlass up -f FILE --dir {}`, or give a controller's URL "
            "with --url http://HOST:PORT",
            path, directory)};
  }
  auto endpoints = endpoints_from_json({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
  if (!endpoints.ok()) return endpoints.error().within(path);
  return endpoints;
}

}  // namespace windlass::cli
