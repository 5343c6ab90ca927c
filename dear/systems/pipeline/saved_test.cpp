// A pipeline goes on from a file as one process would have gone on, and clips as one.

#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/systems/pipeline/testing/nets.h"

namespace dear::systems::pipeline::saved_test {
namespace {

using testing::accumulate;
using testing::Batch;
using testing::batch_of;
using testing::drawn_net;
using ::testing::Each;
using testing::groups_of;
using ::testing::HasSubstr;
using testing::loss_of;
using testing::Net;
using testing::run_on;

constexpr int kParts = 4;
constexpr std::uint64_t kSeed = 7;  // of a net with a weight that two operators read
constexpr double kClip = 0.05;      // below the norms of its gradients
const PipelineOptions kOptions{.micro_batches = kParts, .measure = false};

// The name of a file that is gone with this object.
class File {
 public:
  explicit File(const std::string& name)
      : path_(fmt::format("{}dear_saved_{}_{}.pt", ::testing::TempDir(), name, ::getpid())) {}
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Steps of one process, and the norms of its gradients.
std::vector<double> train_alone(const Net& net, int steps) {
  torch::optim::AdamW optimizer(net.root->parameters(), 1e-2);
  std::vector<double> norms;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    accumulate(net, batch_of(8, at::kDouble, step), kParts);
    norms.push_back(torch::nn::utils::clip_grad_norm_(net.root->parameters(), kClip));
    optimizer.step();
  }
  return norms;
}

TEST(SavedPipelines, GoOnOnOtherRanksAsOneProcess) {
  const File file("whole");
  const Net one = drawn_net(kSeed, at::kDouble, kSeed);
  const std::vector<double> norms = train_alone(one, 5);
  for (const int ranks : {3, 2}) {
    const int begin = ranks == 3 ? 0 : 3, end = ranks == 3 ? 3 : 5;
    std::vector<Net> nets;
    for (int rank = 0; rank < ranks; ++rank)
      nets.push_back(drawn_net(kSeed, at::kDouble, kSeed + static_cast<std::uint64_t>(ranks)));
    if (ranks == 3)
      for (Net& net : nets) testing::draw_parameters(*net.root, kSeed);
    EXPECT_THAT(run_on(groups_of(ranks),
                       [&](int rank, const Group& group) {
                         Pipeline pipe(nets[static_cast<std::size_t>(rank)].model,
                                       batch_of(8, at::kDouble).inputs, group, kOptions);
                         torch::optim::AdamW own(pipe.parameters(), ranks == 3 ? 1e-2 : 1);
                         if (ranks == 2) {
                           const Position position = pipe.load(own, file.path());
                           EXPECT_EQ(position.step, 3);
                           EXPECT_EQ(position.more.at("epoch"), "1");
                         }
                         for (int step = begin; step < end; ++step) {
                           const Batch batch = batch_of(8, at::kDouble, step);
                           own.zero_grad();
                           pipe.step(batch.inputs, batch.targets, loss_of);
                           const double norm = norms.at(static_cast<std::size_t>(step));
                           EXPECT_NEAR(pipe.clip_grad_norm(kClip), norm, 1e-6 * norm);
                           own.step();
                         }
                         if (ranks == 3)
                           return pipe.save(own, file.path(), {.step = 3, .more = {{"epoch", "1"}}});
                         const auto state = pipe.state();
                         for (const auto& item : one.root->named_parameters())
                           EXPECT_LE((state.at(item.key()) - item.value()).abs().max().item<double>(), 1e-6)
                               << item.key();
                       }),
                Each("ok"));
  }
}

TEST(SavedPipelines, RefuseWhatDoesNotFitOnAllRanksAndGoOn) {
  const File file("refused"), none("none");
  os::write_file_atomically(none.path(), "no checkpoint");
  std::vector<Net> nets{drawn_net(kSeed, at::kDouble, 1), drawn_net(kSeed, at::kDouble, 1)};
  std::vector<Net> others{drawn_net(kSeed + 1, at::kDouble, 1), drawn_net(kSeed + 1, at::kDouble, 1)};
  EXPECT_THAT(
      run_on(groups_of(2),
             [&](int rank, const Group& group) {
               const auto at = static_cast<std::size_t>(rank);
               const Batch batch = batch_of(8, at::kDouble);
               Pipeline pipe(nets[at].model, batch.inputs, group, kOptions);
               Pipeline other(others[at].model, batch.inputs, group, kOptions);
               torch::optim::AdamW own(pipe.parameters()), of_other(other.parameters());
               torch::optim::Adam adam(pipe.parameters());
               pipe.step(batch.inputs, batch.targets, loss_of);
               own.step();
               pipe.save(own, file.path(), {.step = 1});
               const auto refused = [](const auto& act, const char* why) {
                 EXPECT_THAT(os::testing::report_of(act),
                             AllOf(::testing::StartsWith("ConfigError"), HasSubstr(why)));
               };
               refused([&] { other.load(of_other, file.path()); }, "a checkpoint of another model");
               refused([&] { pipe.load(adam, file.path()); }, "of the optimiser AdamW, and this one is Adam");
               refused([&] { pipe.load(of_other, file.path()); }, "not one of the pipeline's parameters()");
               refused([&] { pipe.load(own, none.path()); }, "as a checkpoint");
               refused([&] { pipe.save(own, "/nowhere/at/all.pt", {}); }, "/nowhere/at/all.pt");
               refused([&] { (void)pipe.clip_grad_norm(0); }, "give a number above 0");
               EXPECT_EQ(pipe.load(own, file.path()).step, 1);
               pipe.step(batch.inputs, batch.targets, loss_of);
             }),
      Each("ok"));
}

TEST(SavedPipelines, OfReplicasAreOneFileAndStayAlike) {
  const File file("replicas");
  constexpr int kRanks = 4, kReplicas = 2;
  std::vector<Net> nets;
  for (int rank = 0; rank < kRanks; ++rank) nets.push_back(drawn_net(kSeed, at::kDouble, kSeed + 1));
  std::vector<std::map<std::string, torch::Tensor>> states(kRanks);
  std::vector<double> norms(kRanks);
  const auto steps = [](Pipeline& pipe, torch::optim::AdamW& own, int replica) {
    for (int step = 0; step < 2; ++step) {
      const Batch batch = batch_of(8, at::kDouble, 10 * step + replica);
      own.zero_grad();
      pipe.step(batch.inputs, batch.targets, loss_of);
      own.step();
    }
  };
  EXPECT_THAT(run_on(groups_of(kRanks),
                     [&](int rank, const Group& group) {
                       const auto at = static_cast<std::size_t>(rank);
                       Pipeline pipe(nets[at].model, batch_of(8, at::kDouble).inputs, group,
                                     {.micro_batches = kParts, .replicas = kReplicas, .measure = false});
                       torch::optim::AdamW own(pipe.parameters(), 1e-2), again(pipe.parameters(), 1e-2);
                       steps(pipe, own, rank % kReplicas);
                       pipe.save(own, file.path(), {.step = 2});
                       steps(pipe, own, rank % kReplicas);
                       const auto before = pipe.state();
                       EXPECT_EQ(pipe.load(again, file.path()).step, 2);
                       steps(pipe, again, rank % kReplicas);
                       states[at] = pipe.state();
                       for (const auto& [name, tensor] : before)
                         EXPECT_TRUE(torch::equal(tensor, states[at].at(name))) << name;
                       norms[at] = pipe.clip_grad_norm(kClip);
                     }),
              Each("ok"));
  for (int rank = 1; rank < kRanks; ++rank)
    for (const auto& [name, tensor] : states[0])
      EXPECT_TRUE(torch::equal(tensor, states[static_cast<std::size_t>(rank)].at(name))) << name;
  EXPECT_THAT(norms, Each(norms[0]));
  EXPECT_GT(norms[0], kClip);
}

}  // namespace
}  // namespace dear::systems::pipeline::saved_test
