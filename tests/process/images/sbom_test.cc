// Runs scripts/images/sbom as the Dockerfiles do, against the packages and programs of this machine; a folder stands for the
// image.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/harness/process.h"
#include "tests/paths.h"
#include "tests/process/images/dockerfiles.h"

namespace windlass::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// A package that no machine has. Its version contains every character that a URL must escape.
constexpr const char* kOddPackage =
    "Package: odd+1\nStatus: install ok installed\nMaintainer: \"A\\B\" <a@b>\nArchitecture: all\n"
    "Source: strange (3:4+5)\nVersion: 1:2.0+ds~1-3\nDescription: odd\n\n"
    "Package: gone\nStatus: deinstall ok config-files\nMaintainer: a <a@b>\nArchitecture: all\nVersion: 1\nDescription: gone\n";

// The text between two markers; both must exist.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  const std::size_t to = text.find(end, from);
  if (from == std::string::npos || to == std::string::npos) return "";
  return text.substr(from + begin.size(), to - from - begin.size());
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

class SbomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_command({"dpkg-query", "--version"}).ok()) GTEST_SKIP() << "needs dpkg-query, which only Debian has";
    if (!fs::exists(build_path("/.ninja_deps"))) GTEST_SKIP() << "needs a Ninja build, which records the headers";
  }

  // What the build stage writes to /compiled. Copies Ninja's own files, since another Ninja may be using them.
  CommandResult compile() {
    fs::create_directories(folder_.file("build/CMakeFiles"));
    for (const char* name : {"build.ninja", ".ninja_deps", ".ninja_log", "CMakeFiles/rules.ninja"}) {
      fs::copy_file(build_path("/") + name, folder_.file("build/") + name, fs::copy_options::overwrite_existing);
    }
    CommandResult result = run_command(
        {"sh", kImages + "/sbom", "compiled", folder_.file("build"), source_path("/scripts/cuda-requirements.txt")});
    write_text_file(folder_.file("compiled"), result.out);
    return result;
  }

  // Runs the command of the Dockerfile's last stage in a folder that stands for the image.
  CommandResult run_in_image(const std::string& image, const std::map<std::string, std::string>& arguments = {}) {
    const std::string text = dockerfile(image);
    root_ = folder_.file(image);
    std::vector<std::string> query = {"dpkg-query", "--status"};
    for (const std::string& package : runtime_packages(text)) query.push_back(package);
    const CommandResult status = run_command(query);
    EXPECT_TRUE(status.ok()) << status.describe();
    fs::create_directories(root_ + "/var/lib/dpkg");
    write_text_file(root_ + "/var/lib/dpkg/status", status.out + "\n" + kOddPackage);
    fs::create_directories(root_ + "/etc");
    fs::copy_file("/etc/os-release", root_ + "/etc/os-release", fs::copy_options::overwrite_existing);
    std::string command = between(text, "/sbom/sbom ", ">/usr/share/sbom/windlass.spdx.json");
    EXPECT_NE(command, "") << image << ": the Dockerfile writes no SBOM";
    for (const std::string& word : words_of(command)) {
      if (word.rfind("/usr/local/bin/", 0) != 0 && word.rfind("/opt/", 0) != 0) continue;
      fs::create_directories(fs::path(root_ + word).parent_path());
      write_text_file(root_ + word, word);
    }
    replace_all(command, "\\\n", " ");
    replace_all(command, "/sbom/compiled", folder_.file("compiled"));
    std::map<std::string, std::string> env = {
        {"ROOT", root_}, {"VERSION", "1.2.3-gabc"}, {"DEBIAN", "debian:bookworm-slim"}, {"SOURCE_DATE_EPOCH", "1700000000"}};
    for (const auto& [name, value] : arguments) env[name] = value;
    return run_command({"sh", "-c", "sh " + kImages + "/sbom " + command}, "", env);
  }

  // "NAME VERSION" of an installed package.
  static std::string installed(const std::string& package) {
    return run_command({"dpkg-query", "-W", "-f", "${Package} ${Version}", package}).out;
  }

  TempDir folder_{"windlass-sbom-"};
  std::string root_;
};
using SbomSchemaTest = SbomTest;

// Given Ninja's records of this build; expects each package whose headers were read, with its version on this machine,
// including header-only libraries, and each wheel of the CUDA toolkit with its hash.
TEST_F(SbomTest, ListsCompiledInPackages) {
  const CommandResult result = compile();
  ASSERT_TRUE(result.ok()) << result.describe();
  std::set<std::string> names;
  for (const std::string& line : lines_of(result.out)) {
    const std::vector<std::string> words = words_of(line);
    ASSERT_GE(words.size(), 4U) << line;
    names.insert(words[1]);
    if (words[0] != "deb") continue;
    EXPECT_THAT(installed(words[1]), HasSubstr(words[1] + " " + words[2]));
  }
  for (const char* name :
       {"nlohmann-json3-dev", "libcli11-dev", "libspdlog-dev", "libeigen3-dev", "libc6-dev", "nvidia-cublas"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_THAT(result.out, HasSubstr("pypi nvidia-nccl-cu13 2.28.9 e4553a30"));
}

// Given the SBOM step of each Dockerfile; expects it to list the image with its base, each runtime package in this machine's
// version, each copied file with its hash, and what was compiled in. A second run gives the same SBOM.
TEST_F(SbomTest, ListsTheContentsOfEachImage) {
  ASSERT_TRUE(compile().ok());
  for (const std::string& image : dockerfiles()) {
    const CommandResult result = run_in_image(image);
    ASSERT_TRUE(result.ok()) << image << ": " << result.describe();
    const json document = json::parse(result.out, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << result.out;
    EXPECT_EQ(document["name"], "windlass/" + image + ":1.2.3-gabc");
    EXPECT_EQ(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
    std::map<std::string, json> packages;
    for (const json& package : document["packages"]) packages[package["SPDXID"]] = package;
    EXPECT_EQ(packages.size(), document["packages"].size()) << image << ": an id twice";
    EXPECT_EQ(packages["SPDXRef-image"]["versionInfo"], "1.2.3-gabc");
    EXPECT_EQ(packages["SPDXRef-base"]["versionInfo"], "not pinned by digest");

    std::set<std::string> contained;
    std::set<std::string> compiled_in;
    for (const json& relation : document["relationships"]) {
      const std::string from = relation["spdxElementId"];
      const std::string to = relation["relatedSpdxElement"];
      EXPECT_TRUE(packages.contains(to)) << to;
      if (relation["relationshipType"] == "CONTAINS") contained.insert(packages[to]["name"]);
      if (relation["relationshipType"] == "BUILD_DEPENDENCY_OF") compiled_in.insert(packages[from]["name"]);
    }
    for (const std::string& package : runtime_packages(dockerfile(image))) {
      EXPECT_TRUE(contained.contains(package)) << image << ": " << package;
    }
    for (const std::string& program : programs(dockerfile(image))) {
      EXPECT_TRUE(contained.contains(program)) << image << ": " << program;
      const json& listed = packages["SPDXRef-file-" + program];
      const CommandResult sum = run_command({"sha256sum", root_ + listed.value("packageFileName", "")});
      EXPECT_EQ(listed["checksums"][0]["checksumValue"], words_of(sum.out)[0]) << program;
    }
    for (const std::string& word : words_of(dockerfile(image))) {
      if (word.rfind("/opt/cuda/lib/", 0) != 0) continue;
      EXPECT_TRUE(contained.contains(word.substr(14))) << image << ": " << word;
    }
    EXPECT_TRUE(compiled_in.contains("nlohmann-json3-dev")) << image;
    EXPECT_FALSE(contained.contains("gone")) << "it was removed";
    const json& odd = packages["SPDXRef-installed-deb-odd-1-all"];
    EXPECT_EQ(odd["versionInfo"], "1:2.0+ds~1-3");
    EXPECT_THAT(odd.dump(), HasSubstr("/odd%2B1@1%3A2.0%2Bds~1-3?arch=all&distro="));
    EXPECT_THAT(odd.dump(), HasSubstr("&upstream=strange%403%3A4%2B5\""));
    EXPECT_EQ(run_in_image(image).out, result.out) << image;
  }
}

// Given a base image with a digest; expects the digest as its version. Given another version; expects another document name.
TEST_F(SbomTest, NamesTheBaseImage) {
  ASSERT_TRUE(compile().ok());
  const std::string digest = "sha256:" + std::string(64, '0');
  const json pinned = json::parse(run_in_image("gateway", {{"DEBIAN", "debian@" + digest}}).out);
  const json other = json::parse(run_in_image("gateway", {{"VERSION", "2"}}).out);
  EXPECT_EQ(pinned["packages"][1]["versionInfo"], digest);
  EXPECT_NE(pinned["documentNamespace"], other["documentNamespace"]);
}

// Given an image that lacks a file copied by the Dockerfile; expects an error instead of an SBOM.
TEST_F(SbomTest, MissingFileIsAnError) {
  write_text_file(folder_.file("compiled"), "");
  const CommandResult result =
      run_command({"sh", kImages + "/sbom", "image", "x", "1", "debian", folder_.file("compiled"), "/no/such/program"});
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(result.err, HasSubstr("/no/such/program"));
}

// Given the SBOM of each image; expects the SPDX project's own tool to accept it, and to reject one with a wrong id.
TEST_F(SbomSchemaTest, SpdxToolsAgree) {
  ASSERT_TRUE(compile().ok());
  const std::string tool = source_path("/tests/process/images/validate-sbom");
  std::vector<std::string> command = {tool};
  for (const std::string& image : dockerfiles()) {
    command.push_back(folder_.file(image + ".spdx.json"));
    write_text_file(command.back(), run_in_image(image).out);
  }
  const CommandResult valid = run_command(command, "", {}, std::chrono::minutes(20));
  if (valid.exit_status == 77) GTEST_SKIP() << valid.err;
  EXPECT_TRUE(valid.ok()) << valid.describe();
  std::string text = read_text_file(command.back());
  replace_all(text, "SPDXRef-image", "SPDXRef_image");
  write_text_file(command.back(), text);
  EXPECT_EQ(run_command({tool, command.back()}).exit_status, 1);
}

}  // namespace
}  // namespace windlass::testing
