// The examples on a cluster, as the chart is installed: with the worker's image, and with no image that fetches models.
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <variant>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/load.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/pod.h"
#include "tests/fakes/bad_objects.h"
#include "tests/paths.h"

namespace windlass::controller {
namespace {

// Given each file that the README applies to a cluster; expects a pod for each of its ModelServices.
TEST(Examples, TheReadmesAreAcceptedAsInstalled) {
  const std::string readme = fakes::read_text(source_path("/README.md"));
  const std::regex applied("kubectl apply -f (examples/[a-z0-9.-]+)");
  int services = 0;
  for (auto match = std::sregex_iterator(readme.begin(), readme.end(), applied); match != std::sregex_iterator(); ++match) {
    const std::string file = (*match)[1];
    const auto objects = api::load_objects(fakes::read_text(source_path("/" + file)), file);
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    for (const api::Object& object : *objects) {
      const auto* service = std::get_if<api::ModelService>(&object.value);
      if (service == nullptr) continue;
      ++services;
      planner::Pool pool;
      pool.name = "nvidia-l4-1";
      const auto pod = pod_of(worker_spec(*service, pool, 0, {}), {"registry.example/worker:1", ""});
      EXPECT_TRUE(pod.ok()) << file << ": " << pod.error().message;
      EXPECT_TRUE(model_shape_of(service->spec).ok()) << file;
    }
  }
  EXPECT_GE(services, 1);
}

}  // namespace
}  // namespace windlass::controller
