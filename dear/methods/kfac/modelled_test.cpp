#include "dear/methods/kfac/modelled.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/network.h"
#include "dear/workload/zoo/make_workload.h"

namespace dear::methods::kfac::modelled_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Job job_of(const char* name, std::int64_t batch, std::int64_t largest = kLargestFactor) {
  const zoo::Model& model = zoo::find_model(name);
  const zoo::Device& device = zoo::find_device("rtx2080ti");
  return make_job(zoo::make_workload(model, device, {.batch = batch, .dtype = DType::f32}),
                  model.make(model.size), device, {.batch = batch, .largest_dimension = largest});
}

// The sizes that the authors' list of matrices gives (github.com/shyhuai/kfac_pytorch).
TEST(Modelled, FactorsOfResNet50AreThosePublished) {
  std::int64_t inputs = 0, outputs = 0, smallest = 1 << 30, largest = 0;
  const std::vector<Factor> factors = job_of("resnet50", 32).factors();
  for (const Factor& factor : factors) {
    (factor.side == Side::input ? inputs : outputs) += factor.packed_elements();
    smallest = std::min(smallest, factor.dimension);
    largest = std::max(largest, factor.dimension);
  }
  EXPECT_EQ(factors.size(), 108U);
  EXPECT_EQ(smallest, 64);
  EXPECT_EQ(largest, 4608);
  EXPECT_NEAR(static_cast<double>(inputs), 62.35e6, 0.01e6);
  EXPECT_NEAR(static_cast<double>(outputs), 14.62e6, 0.01e6);
}

TEST(Modelled, VocabulariesKeepTheirPlainGradient) {
  const zoo::Model& model = zoo::find_model("vgg16");
  const Job job = job_of("vgg16", 32);
  EXPECT_THAT(left_out(job, model.make(model.size)), ElementsAre("classifier.0")) << "25088 inputs";
  EXPECT_THAT(left_out(job_of("vgg16", 32, 30'000), model.make(model.size)), IsEmpty());
  for (const Factor& factor : job.factors()) EXPECT_LE(factor.dimension, kLargestFactor);
}

TEST(Modelled, FactorsTakeAsLongAsTheirSamples) {
  const Job one = job_of("resnet50", 32), two = job_of("resnet50", 64);
  for (std::size_t layer = 0; layer < one.curvature.size(); ++layer) {
    ASSERT_EQ(one.curvature[layer].has_value(), two.curvature[layer].has_value());
    if (!one.curvature[layer]) continue;
    EXPECT_LT(one.curvature[layer]->input_factor_seconds, two.curvature[layer]->input_factor_seconds);
    EXPECT_EQ(one.curvature[layer]->precondition_seconds, two.curvature[layer]->precondition_seconds);
  }
}

TEST(Modelled, CollectivesAreLinesThroughTheModelOfTheCluster) {
  const Job job = job_of("resnet50", 32);
  const zoo::Device& device = zoo::find_device("rtx2080ti");
  const Cluster cluster = flat_cluster(parse_network("10gbe"), 16);
  const Costs costs = costs_on(cluster, {.algorithm = "ring"}, device, job);
  EXPECT_EQ(costs.ranks, 16);
  const cost::ClusterTimes times(cluster, {.algorithm = "ring"});
  for (const std::int64_t elements : {5'000, 500'000, 50'000'000})
    EXPECT_NEAR(costs.all_reduce.seconds(elements), times.seconds(Collective::all_reduce, 4 * elements),
                1e-9 + 1e-6 * costs.all_reduce.seconds(elements));
  EXPECT_GT(costs.all_reduce.seconds(1'000'000), costs.reduce.seconds(1'000'000));
  EXPECT_EQ(costs_on(flat_cluster(parse_network("10gbe"), 1), {}, device, job).all_reduce.seconds(1000), 0);
}

TEST(Modelled, MemoryOfCurvatureIsTwoMatricesAFactor) {
  Job job;
  job.workload.layers.push_back({.name = "layer", .tensors = {}});
  job.curvature.push_back(LayerCurvature{.inputs = 3, .outputs = 2});
  EXPECT_EQ(curvature_bytes(job), 4 * 2 * (9 + 4));
}

TEST(Modelled, RefusesAWorkloadOfAnotherModel) {
  const zoo::Model& model = zoo::find_model("resnet50");
  EXPECT_THROW(make_job(Workload{}, model.make(model.size), zoo::find_device("a100"), {}), ConfigError);
}

}  // namespace
}  // namespace dear::methods::kfac::modelled_test
