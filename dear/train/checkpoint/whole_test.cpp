// One file: saved, put back, refused.

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/data_parallel/training_state.h"

namespace dear::whole_test {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

// The parameters after 6 steps, of which 3 come after a checkpoint.
struct Uninterrupted {
  explicit Uninterrupted(const std::string& path, int ranks, const DataParallelOptions& options) {
    run_all(ranks, [&](int rank, Group group) {
      Job job(group, options);
      job.steps(3);
      save_checkpoint(*job.parallel, path, {.step = 3, .more = {{"epoch", "1"}}});
      job.steps(3);
      const std::string end = job.digest();
      if (rank != 0) return;
      digest = end;
      for (const torch::Tensor& tensor : job.net->parameters()) parameters.push_back(tensor.detach().clone());
    });
  }
  std::string digest;
  std::vector<torch::Tensor> parameters;
};

DataParallelOptions with(const std::string& policy, const std::string& fusion = "64KiB") {
  return {.policy = policy, .buckets = given(Fusion::parse(fusion)), .profile_steps = 1};
}

class EveryPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Whole, EveryPolicy,
                         ::testing::Values("serial", "wfbp", "dear-replicated", "dear", "dear-eager"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(EveryPolicy, GoesOnToTheBitOnAsManyRanksAndWithinRoundingOnOthers) {
  const Folder folder;
  const std::string path = folder.path("saved.pt");
  const Uninterrupted expected(path, 4, with(GetParam()));
  for (const auto& [ranks, policy, fusion] :
       {std::tuple(4, GetParam(), "64KiB"), std::tuple(4, "dear", "layer"),
        std::tuple(3, GetParam(), "64KiB"), std::tuple(1, "dear", "64KiB")}) {
    run_all(ranks, [&, ranks = ranks, policy = policy, fusion = fusion](int, Group group) {
      Job job(group, with(policy, fusion));
      {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& tensor : job.net->parameters()) tensor.mul_(-1);
      }
      const Position position = load_checkpoint(*job.parallel, path);
      EXPECT_EQ(position.step, 3);
      EXPECT_EQ(position.more.at("epoch"), "1");
      job.taken = position.step;
      job.steps(3);
      const std::string digest = job.digest();
      if (ranks == 4) {
        EXPECT_EQ(digest, expected.digest) << policy;
      }
      for (std::size_t i = 0; i < expected.parameters.size(); ++i)
        EXPECT_TRUE(job.net->parameters()[i].allclose(expected.parameters[i], 1e-4, 1e-6)) << ranks << policy;
    });
  }
}

TEST(Whole, IsPutBackIntoATrainingThatRunsAlready) {
  const Folder folder;
  const Uninterrupted expected(folder.path("saved.pt"), 2, with("dear"));
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    job.steps(5);
    job.taken = load_checkpoint(*job.parallel, folder.path("saved.pt")).step;
    job.steps(3);
    EXPECT_EQ(job.digest(), expected.digest);
  });
}

TEST(Whole, GoesOnWithOneCopy) {
  const Folder folder;
  for (const bool one_copy : {true, false}) {
    DataParallelOptions options = with("dear");
    options.one_copy = one_copy;
    const Uninterrupted expected(folder.path("saved.pt"), 2, options);
    for (const int before : {0, 2}) {
      run_all(2, [&](int, Group group) {
        Job job(group, options);
        job.steps(before);
        job.taken = load_checkpoint(*job.parallel, folder.path("saved.pt")).step;
        job.steps(3);
        EXPECT_EQ(job.digest(), expected.digest) << one_copy << before;
      });
    }
  }
}

TEST(Whole, LeavesAParameterAloneThatItDoesNotName) {
  run_all(2, [&](int, Group group) {
    DataParallelOptions options = with("dear");
    options.one_copy = true;
    Job job(group, options);
    job.steps(2);
    const std::string before = job.digest();
    train::TrainingState(*job.parallel)
        .set_model([](const std::string&) { return torch::Tensor(); },
                   train::EngineState::Holder::every_rank);
    EXPECT_EQ(job.digest(), before);
    job.step();
    EXPECT_NE(job.digest(), before);
  });
}

TEST(Whole, GoesOnToTheBitWhereTheProgramUpdates) {
  const Folder folder;
  DataParallelOptions options = with("dear");
  options.updates = Updates::program;
  const Uninterrupted expected(folder.path("saved.pt"), 4, options);
  run_all(4, [&](int, Group group) {
    Job job(group, options);
    job.taken = load_checkpoint(*job.parallel, folder.path("saved.pt")).step;
    job.steps(3);
    EXPECT_EQ(job.digest(), expected.digest);
  });
}

TEST(Whole, GoesOnUnderCompressionAndSaysWhatAnotherNumberOfRanksForgets) {
  const Folder folder;
  DataParallelOptions options = with("dear");
  options.compression = Compression::parse("top-k:0.05,ef");
  const Uninterrupted expected(folder.path("saved.pt"), 2, options);
  run_all(2, [&](int, Group group) {
    Job job(group, options);
    job.taken = load_checkpoint(*job.parallel, folder.path("saved.pt")).step;
    job.steps(3);
    EXPECT_EQ(job.digest(), expected.digest);
  });
  run_all(3, [&](int rank, Group group) {
    Job job(group, options);
    std::string said;
    load_checkpoint(*job.parallel, folder.path("saved.pt"),
                    {.say = [&](const std::string& text) { said += text; }});
    EXPECT_THAT(said, rank == 0 ? HasSubstr("2 ranks") : HasSubstr(""));
    job.steps(1);
  });
}

TEST(Whole, SavedBeforeTheNextStepIsWhatWasLoaded) {
  const Folder folder;
  const Uninterrupted expected(folder.path("saved.pt"), 2, with("dear"));
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    load_checkpoint(*job.parallel, folder.path("saved.pt"));
    save_checkpoint(*job.parallel, folder.path("again.pt"), {.step = 3});
    EXPECT_EQ(job.parallel->optimizer_state().front().state->vectors.size(), 2U);
  });
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    job.taken = load_checkpoint(*job.parallel, folder.path("again.pt")).step;
    job.steps(3);
    EXPECT_EQ(job.digest(), expected.digest);
  });
}

TEST(Whole, BringsOptionsOfTheOptimiserAlong) {
  const Folder folder;
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    job.steps(1);
    job.adamw.param_groups()[0].options().set_lr(0.125);
    save_checkpoint(*job.parallel, folder.path("saved.pt"), {.step = 1});
  });
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    load_checkpoint(*job.parallel, folder.path("saved.pt"));
    EXPECT_EQ(job.adamw.param_groups()[0].options().get_lr(), 0.125);
  });
}

// The message that each rank gets, which is the same on all.
std::string refusal(int ranks, const std::function<void(Group)>& program) {
  const auto errors = run_each(groups_of(ranks), [&](int, Group group) { program(group); });
  for (const auto& error : errors) {
    EXPECT_TRUE(error);
    if (!error) return "";
    EXPECT_THROW(std::rethrow_exception(error), ConfigError);
    EXPECT_EQ(what_of(error), what_of(errors.front()));
  }
  return what_of(errors.front());
}

TEST(Whole, OfAnotherModelOrOptimiserIsRefusedAndChangesNothing) {
  const Folder folder;
  const std::string path = folder.path("saved.pt");
  const Uninterrupted expected(path, 2, with("dear"));
  EXPECT_THAT(refusal(2,
                      [&](Group group) {
                        torch::nn::Sequential net(torch::nn::Linear(16, 160), torch::nn::Linear(160, 3));
                        torch::optim::AdamW adamw(net->parameters(), 1e-3);
                        DataParallel parallel(*net, adamw, group, with("dear"));
                        load_checkpoint(parallel, path);
                      }),
              AllOf(HasSubstr(path), HasSubstr("another model"), HasSubstr("'1.weight'")));
  EXPECT_THAT(refusal(2,
                      [&](Group group) {
                        torch::nn::Sequential net = train::testing::make_net();
                        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-3));
                        DataParallel parallel(*net, sgd, group, with("dear"));
                        const std::string before = parameter_digest(*net);
                        try {
                          load_checkpoint(parallel, path);
                        } catch (const ConfigError&) {
                          EXPECT_EQ(parameter_digest(*net), before);
                          throw;
                        }
                      }),
              AllOf(HasSubstr("AdamW"), HasSubstr("SGD")));
}

TEST(Whole, ThatIsDamagedIsRefused) {
  const Folder folder;
  const std::string path = folder.path("saved.pt");
  const Uninterrupted expected(path, 2, with("dear"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto load = [&](Group group) {
    Job job(group, with("dear"));
    load_checkpoint(*job.parallel, path);
  };
  EXPECT_THAT(refusal(2, load), HasSubstr("cut short"));
  std::ofstream(path) << "something else, which is longer than the end of a directory";
  EXPECT_THAT(refusal(2, load), HasSubstr(path));
  EXPECT_THAT(refusal(2,
                      [&](Group group) {
                        Job job(group, with("dear"));
                        load_checkpoint(*job.parallel, folder.path("none.pt"));
                      }),
              HasSubstr("none.pt"));
}

// A folder that is not there stands for all that writing can fail with.
TEST(Whole, ThatCannotBeWrittenIsAnErrorOnEveryRankAndTrainingGoesOn) {
  const Folder folder;
  const Uninterrupted expected(folder.path("saved.pt"), 2, with("dear"));
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    job.steps(3);
    const std::string message =
        message_of<ConfigError>([&] { save_checkpoint(*job.parallel, folder.path("no/saved.pt"), {}); });
    EXPECT_THAT(message, HasSubstr("no/saved.pt"));
    job.steps(3);
    EXPECT_EQ(job.digest(), expected.digest);
  });
}

TEST(Whole, IsSavedBetweenStepsByAllRanksTogether) {
  const Folder folder;
  run_all(2, [&](int, Group group) {
    Job job(group, with("dear"));
    const auto batch = train::testing::rows(0, 0, 2, train::testing::kFeatures);
    torch::mse_loss(job.net->forward(batch.inputs), batch.targets).backward();
    EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(*job.parallel, folder.path("saved.pt"), {}); }),
                HasSubstr("after step()"));
    job.parallel->step();
    job.parallel->synchronize();
  });
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Job job(group, with("dear"));
    job.steps(2);
    rank == 0 ? save_checkpoint(*job.parallel, folder.path("saved.pt"), {}) : static_cast<void>(job.digest());
    if (rank == 1) job.step();
    job.parallel->synchronize();  // step() returns before collectives of its own have met others
  });
  EXPECT_TRUE(errors[0]);
  EXPECT_TRUE(errors[1]);
}

}  // namespace
}  // namespace dear::whole_test
