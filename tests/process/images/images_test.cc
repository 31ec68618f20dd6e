// Checks the Dockerfiles without a container engine: each installs exactly the packages (by Debian's dpkg) of the shared
// libraries that its programs link in this build, runs with a numeric user, and is named by the chart's values.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/harness/process.h"
#include "tests/paths.h"
#include "tests/process/images/dockerfiles.h"

namespace windlass::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Part of every Debian base image: nothing runs without them.
const std::set<std::string> kOfTheBase = {"libc6", "libgcc-s1"};

// Library -> the file that the loader uses for it here.
std::map<std::string, std::string> loaded_by(const std::string& program) {
  std::map<std::string, std::string> result;
  const CommandResult listed = run_command({"ldd", program});
  for (const std::string& line : lines_of(listed.out)) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() >= 3 && words[1] == "=>") result[words[0]] = words[2];
  }
  return result;
}

// The libraries that the program itself links.
std::set<std::string> needed_by(const std::string& program) {
  std::set<std::string> result;
  const CommandResult read = run_command({"readelf", "-d", program});
  for (const std::string& line : lines_of(read.out)) {
    const std::size_t at = line.find("Shared library: [");
    if (at != std::string::npos) result.insert(line.substr(at + 17, line.rfind(']') - at - 17));
  }
  return result;
}

// The package that owns the file; empty if none does.
std::string owner_of(const std::string& path) {
  const std::string real = fs::weakly_canonical(path).string();
  std::vector<std::string> candidates = {real};
  if (real.rfind("/usr/", 0) == 0) candidates.push_back(real.substr(4));  // dpkg lists some files under /lib
  for (const std::string& candidate : candidates) {
    const CommandResult found = run_command({"dpkg", "-S", candidate});
    if (found.ok()) return found.out.substr(0, found.out.find(':'));
  }
  return "";
}

class ImagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_command({"dpkg-query", "--version"}).ok()) GTEST_SKIP() << "needs dpkg-query, which only Debian has";
  }
};

// Given the required images; expects a Dockerfile for each, and for each image that the chart's values name.
TEST_F(ImagesTest, OneForEachProgram) {
  const std::set<std::string> images = dockerfiles();
  EXPECT_EQ(images, (std::set<std::string>{"controller", "gateway", "worker-cpu", "worker-cuda"}));
  int named = 0;
  for (const std::string& line : lines_of(read_text_file(source_path("/charts/windlass/values.yaml")))) {
    const std::size_t at = line.find("repository: windlass/");
    if (at == std::string::npos) continue;
    ++named;
    EXPECT_TRUE(images.contains(words_of(line.substr(at + 21))[0])) << line;
  }
  EXPECT_EQ(named, 3);
}

// Given the programs of this build; expects each shared library that they link to come from a package of the image's list or to
// be copied into the image, and no unused package in the list. (apt installs the libraries' own dependencies.)
TEST_F(ImagesTest, PackagesHoldEveryLibrary) {
  std::map<std::string, std::string> owners;
  for (const std::string& image : dockerfiles()) {
    const std::string text = dockerfile(image);
    const std::set<std::string> listed = runtime_packages(text);
    ASSERT_FALSE(listed.empty()) << image;
    std::set<std::string> used = {"ca-certificates"};
    ASSERT_FALSE(programs(text).empty()) << image;
    for (const std::string& name : programs(text)) {
      const std::string program = build_path() + "/" + name;
      const std::map<std::string, std::string> loaded = loaded_by(program);
      const std::set<std::string> needed = needed_by(program);
      ASSERT_FALSE(needed.empty()) << program << " is not built";
      for (const std::string& library : needed) {
        if (text.find("/" + library) != std::string::npos) continue;  // the image copies it
        const auto file = loaded.find(library);
        if (file == loaded.end()) continue;  // the loader itself
        if (!owners.contains(library)) owners[library] = owner_of(file->second);
        const std::string& package = owners.at(library);
        if (package.empty() && image == "worker-cpu")
          continue;  // CUDA's libraries, if this build uses them: that image is built without CUDA
        EXPECT_NE(package, "") << image << ": " << file->second;
        if (package.empty() || kOfTheBase.contains(package)) continue;
        EXPECT_TRUE(listed.contains(package)) << image << ": " << name << " needs " << library << ", list " << package;
        used.insert(package);
      }
    }
    for (const std::string& package : listed) EXPECT_TRUE(used.contains(package)) << image << ": nothing needs " << package;
  }
}

// Given the Dockerfiles; expects a numeric user, which runAsNonRoot needs because the chart sets none, and the chart's command
// to be in the image.
TEST_F(ImagesTest, RunAsTheChartRunsThem) {
  const std::string helpers = read_text_file(source_path("/charts/windlass/templates/_helpers.tpl"));
  EXPECT_THAT(helpers, HasSubstr("runAsNonRoot: true\n"));
  EXPECT_THAT(helpers, Not(HasSubstr("runAsUser:")));
  for (const std::string& image : dockerfiles()) {
    EXPECT_THAT(dockerfile(image), HasSubstr("\nUSER 65532:65532\n")) << image;
    EXPECT_THAT(dockerfile(image), HasSubstr(fmt::format("\nENTRYPOINT [\"{}\"]\n", programs(dockerfile(image))[0]))) << image;
  }
  EXPECT_EQ(programs(dockerfile("controller")), (std::vector<std::string>{"windlass-controller", "windlass"}));
}

// Given the script that installs packages into an image; expects valid shell.
TEST_F(ImagesTest, InstallerIsShell) {
  const CommandResult checked = run_command({"sh", "-n", kImages + "/apt-install"});
  EXPECT_TRUE(checked.ok()) << checked.describe();
  EXPECT_NE(run_command({"sh", kImages + "/apt-install"}).exit_status, 0) << "it must require arguments";
}

}  // namespace
}  // namespace windlass::testing
