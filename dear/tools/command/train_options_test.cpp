#include "dear/tools/command/train_options.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/systems/train_command/optimizers.h"

namespace dear::cli::train_options_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

LaunchEnvironment launched(int size) {
  return {.rank = 0, .size = size, .local_size = size, .launcher = "torchrun", .rendezvous = "x"};
}

TrainSettings check_alone(const TrainOptions& options) {
  return check(options, LaunchEnvironment{}, {.cores = 4});
}

TEST(TrainOptions, ATraceOfEachPolicyThatIsComparedLiesInAFileOfItsOwn) {
  TrainSettings settings;
  settings.compare = true;
  settings.trace = "out/run.json";
  EXPECT_EQ(settings.trace_of("dear"), "out/run-dear.json");
  settings.trace = "run";
  EXPECT_EQ(settings.trace_of("dear"), "run-dear");
  settings.compare = false;
  EXPECT_EQ(settings.trace_of("dear"), "run");
  settings.compare = true;
  settings.trace = "";
  EXPECT_EQ(settings.trace_of("dear"), "");
}

TEST(TrainOptions, TheBackendIsOneOfTheTable) {
  EXPECT_EQ(check_alone({}).job.backend, "");
  EXPECT_FALSE(check_alone({}).job.reproducible);
  const TrainSettings settings = check_alone({.job = {.backend = "mpi", .reproducible = true}});
  EXPECT_EQ(settings.job.backend, "mpi");
  EXPECT_TRUE(settings.job.reproducible);
  EXPECT_THAT([] { check_alone({.job = {.backend = "ethernet"}}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("'ethernet'"), HasSubstr("shm, gloo, mpi"))));
}

TEST(TrainOptions, ANetworkMayHaveALinkForEachPair) {
  const TrainSettings settings = check_alone({.workers = 8, .network = "two-sites"});
  EXPECT_EQ(name_of(settings.network.value()), "two-sites");
  EXPECT_TRUE(std::holds_alternative<PairCluster>(*settings.network));
}

TEST(TrainOptions, OneCopyNeedsShardsAndARealNetwork) {
  EXPECT_FALSE(check_alone({}).job.one_copy);
  EXPECT_TRUE(check_alone({.job = {.one_copy = true}, .workers = 2}).job.one_copy);
  EXPECT_TRUE(
      check_alone({.job = {.one_copy = true}, .workers = 2, .compare = "dear,dear-eager"}).job.one_copy);
  EXPECT_THAT([] { check_alone({.job = {.one_copy = true}, .compare = "dear,wfbp"}); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("--one-copy: policy wfbp"), HasSubstr("dear or dear-eager"))));
  EXPECT_THAT([] { check_alone({.job = {.one_copy = true}, .workers = 2, .network = "1gbit"}); },
              ThrowsMessage<ConfigError>(HasSubstr("--one-copy and --network")));
}

TEST(TrainOptions, BucketsAreGivenPlannedOrTuned) {
  EXPECT_EQ(check_alone({}).buckets.text(), "auto");
  for (const char* const written : {"auto", "auto=64KiB", "planned", "all"})
    EXPECT_EQ(check_alone({.fusion = written}).buckets.text(), written);
  EXPECT_THAT([] { check_alone({.job = {.tune = true}, .workers = 1}); },
              ThrowsMessage<ConfigError>(HasSubstr("no buckets to tune")));
}

TEST(TrainOptions, TheDefaultsAreComplete) {
  const TrainSettings settings = check_alone({});
  EXPECT_EQ(settings.workers, 2);
  EXPECT_THAT(settings.policies, ElementsAre("dear"));
  EXPECT_FALSE(settings.compare);
  EXPECT_EQ(settings.buckets.fusion.text(), "25MiB");
  EXPECT_FALSE(settings.network);
  EXPECT_EQ(settings.threads, 2);
  EXPECT_EQ(settings.timeout_seconds, 120);
  EXPECT_EQ(settings.sample, 0);
  EXPECT_EQ(settings.optimizer, "adamw");
  EXPECT_GT(settings.learning_rate, 0);
}

TEST(TrainOptions, WorkersShareTheCores) {
  EXPECT_EQ(check_alone({.workers = 2}).threads, 2);
  EXPECT_EQ(check_alone({.workers = 3}).threads, 1);
  EXPECT_EQ(check_alone({.workers = 16}).threads, 1);
  EXPECT_EQ(check_alone({.workers = 2, .threads = 3}).threads, 3);
  EXPECT_EQ(check({}, launched(2), {.cores = 8}).threads, 4);
}

TEST(TrainOptions, TheEnvironmentMayChooseTheThreads) {
  EXPECT_EQ(check({}, launched(2), {.cores = 8, .threads = 8}).threads, 8);
  EXPECT_EQ(check({.threads = 3}, launched(2), {.cores = 8, .threads = 8}).threads, 3);
}

TEST(TrainOptions, BindsWorkersOfItsOwnOnly) {
  EXPECT_FALSE(check_alone({.workers = 2}).bind);
  EXPECT_TRUE(check_alone({.workers = 2, .bind = true}).bind);
  EXPECT_THAT([] { check({.bind = true}, launched(3), {.cores = 4}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--bind"), HasSubstr("torchrun"))));
}

TEST(TrainOptions, UnderALauncherTheWorkersAreItsRanks) {
  EXPECT_EQ(check({}, launched(3), {.cores = 4}).workers, 3);
  EXPECT_EQ(check({.workers = 3}, launched(3), {.cores = 4}).workers, 3);
  EXPECT_THAT([] { check({.workers = 2}, launched(3), {.cores = 4}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--workers is 2"), HasSubstr("torchrun"),
                                               HasSubstr("3 ranks"), HasSubstr("leave --workers out"))));
}

TEST(TrainOptions, CompareNamesPoliciesInOrder) {
  const TrainSettings settings = check_alone({.compare = "serial,dear,serial"});
  EXPECT_TRUE(settings.compare);
  EXPECT_THAT(settings.policies, ElementsAre("serial", "dear", "serial"));
  EXPECT_EQ(settings.sample, 200);
  EXPECT_EQ(check_alone({.compare = "dear", .sample = 0}).sample, 0);
}

constexpr const char* kSchedule = R"({"format": "dear-schedule", "version": 1, "model": "m", "cluster": "c",
  "ranks": 2, "policy": "wfbp", "buckets": [["a"], ["b", "c"]]})";

class TrainOptionsSchedule : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "schedule-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    write(kSchedule);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/plan.json"; }
  void write(const std::string& text) const { std::ofstream(path()) << text; }

 private:
  std::string folder_;
};

TEST_F(TrainOptionsSchedule, GivesThePolicyAndTheBuckets) {
  const TrainSettings settings = check_alone({.schedule = path()});
  EXPECT_FALSE(settings.compare);
  EXPECT_THAT(settings.policies, ElementsAre("wfbp"));
  EXPECT_EQ(settings.buckets.fusion.text(), path());
  const Workload workload{
      .name = "m", .tensors = {{"a", 1}, {"b", 1}, {"c", 1}}, .layers = {{"all", {0, 1, 2}, 0, 0}}};
  EXPECT_EQ(settings.buckets.fusion(workload).buckets()[1].tensors, (std::vector<TensorId>{1, 2}));
}

TEST_F(TrainOptionsSchedule, StandsAlone) {
  const auto message = HasSubstr("leave --policy");
  for (const TrainOptions& options : {TrainOptions{.policy = "wfbp", .schedule = path()},
                                      TrainOptions{.compare = "dear", .schedule = path()},
                                      TrainOptions{.fusion = "25MiB", .schedule = path()}})
    EXPECT_THAT([&] { check_alone(options); }, ThrowsMessage<ConfigError>(message));
}

TEST_F(TrainOptionsSchedule, NeedsAFileWithAPolicyThatTrains) {
  EXPECT_THAT([] { check_alone({.schedule = "none.json"}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--schedule: "), HasSubstr("none.json"))));
  std::string text = kSchedule;
  text.replace(text.find("wfbp"), 4, "fsdp");
  write(text);
  EXPECT_THAT([&] { check_alone({.schedule = path()}); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("--schedule: " + path()), HasSubstr("\"fsdp\" can only be simulated"))));
}

TEST(TrainOptions, KfacHasOptionsOfItsOwn) {
  const TrainSettings settings = check_alone(
      {.optimizer = "kfac",
       .kfac = {.strategy = "mpd-kfac", .damping = 0.1, .clip = 0, .factors = 3, .exclude = "a,b.c"}});
  EXPECT_EQ(settings.optimizer, "kfac");
  ASSERT_TRUE(settings.kfac.has_value());
  EXPECT_EQ(settings.kfac->strategy, "mpd-kfac");
  EXPECT_EQ(settings.kfac->damping, 0.1);
  EXPECT_FALSE(settings.kfac->kl_clip.has_value());
  EXPECT_EQ(settings.kfac->inverse_every, 3);
  EXPECT_THAT(settings.kfac->exclude, ::testing::ElementsAre("a", "b.c"));
  EXPECT_GT(settings.learning_rate, 0);
  EXPECT_FALSE(check_alone({}).kfac.has_value());
}

TEST(TrainOptions, MixturesOfExpertsHaveOptionsOfTheirOwn) {
  const TrainSettings settings = check_alone({.job = {.batch = 8, .layers = 4},
                                              .workers = 2,
                                              .compare = "serial,dear",
                                              .moe = {.model = "moe-gpt",
                                                      .experts = 4,
                                                      .gate = "top2",
                                                      .overlap = "lancet",
                                                      .capacity_factor = 0.5,
                                                      .parts = 4,
                                                      .every = 4}});
  ASSERT_TRUE(settings.moe.has_value());
  EXPECT_EQ(
      settings.moe->text(),
      "a mixture of 4 experts in each 4 blocks, gate top2, capacity factor 0.5, overlap lancet, 4 parts");
  EXPECT_EQ(settings.sample, 0);  // which one worker could not make
  EXPECT_EQ(check_alone({.job = {.layers = 1}, .moe = {.model = "moe-gpt", .experts = 2}}).moe->every, 1);
  EXPECT_FALSE(check_alone({.moe = {.model = "gpt"}}).moe.has_value());
}

TEST(TrainOptions, EveryOptimizerOfTheTableIsAccepted) {
  for (const train_command::OptimizerChoice& choice : train_command::optimizers()) {
    const TrainSettings settings = check_alone({.optimizer = std::string(choice.name)});
    EXPECT_EQ(settings.optimizer, choice.name);
    EXPECT_EQ(settings.learning_rate, choice.learning_rate);
  }
  EXPECT_EQ(check_alone({.learning_rate = 0.5}).learning_rate, 0.5);
}

TEST(TrainOptions, CharactersOfAStepAreThoseOfAllWorkers) {
  EXPECT_EQ(check_alone({.job = {.batch = 8, .context = 32}, .workers = 4}).characters_per_step(), 1024);
}

struct Refusal {
  std::string name;
  TrainOptions options;
  std::vector<std::string> words;  // of the message
};

// Options of a job with mixtures of experts.
TrainOptions with_experts(MoeTrainOptions moe, TrainOptions options = {}) {
  moe.model = "moe-gpt";
  if (!moe.experts) moe.experts = 4;
  options.workers = options.workers.value_or(1);
  options.moe = std::move(moe);
  return options;
}

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithOneLineThatNamesTheOption) {
  try {
    check_alone(GetParam().options);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    for (const std::string& word : GetParam().words) {
      EXPECT_THAT(error.what(), HasSubstr(word));
    }
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(
    TrainOptions, Refused,
    ::testing::Values(
        Refusal{"no_workers", {.workers = 0}, {"--workers is 0", "from 1 to"}},
        Refusal{"too_many_workers", {.workers = 100000}, {"--workers is 100000"}},
        Refusal{"policy", {.policy = "fastest"}, {"--policy", "fastest", "dear-replicated"}},
        Refusal{"policy_chosen_among_one", {.policy = "auto=dear"}, {"--policy", "two or more policies"}},
        Refusal{
            "policy_chosen_among_simulated", {.policy = "auto=dear,ddp"}, {"--policy", "only be simulated"}},
        Refusal{"policy_of_kfac", {.policy = "mpd-kfac"}, {"--policy mpd-kfac", "--kfac mpd-kfac"}},
        Refusal{"policy_of_kfac_mistyped", {.policy = "spdkfac"}, {"--policy", "--kfac spd-kfac"}},
        Refusal{"policy_only_simulated", {.policy = "ddp"}, {"--policy", "\"ddp\" can only be simulated"}},
        Refusal{"compressed_one_copy",
                {.job = {.one_copy = true}, .compress = "bf16"},
                {"--compress", "--one-copy"}},
        Refusal{"compare", {.compare = "serial,fastest"}, {"--compare", "fastest", "wfbp"}},
        Refusal{"compare_many",
                {.compare =
                     "dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear,dear"},
                {"--compare", "17", "16"}},
        Refusal{"trace_of_a_policy_twice",
                {.compare = "serial,dear", .trace = "run.json", .json = "run-dear.json"},
                {"--trace", "--json", "the same file"}},
        Refusal{"compare_empty_name", {.compare = "serial,"}, {"--compare", "wfbp"}},
        Refusal{"policy_and_compare", {.policy = "dear", .compare = "dear"}, {"--policy", "--compare"}},
        Refusal{"fusion", {.fusion = "25 apples"}, {"--fusion", "25 apples"}},
        Refusal{"network", {.network = "2tincans"}, {"--network", "2tincans", "1gbit"}},
        Refusal{"grid_text", {.workers = 4, .grid = {.grid = "2by2"}}, {"--grid", "2by2", "2x4"}},
        Refusal{"grid_ranks", {.workers = 4, .grid = {.grid = "2x3"}}, {"--grid", "6 ranks", "4"}},
        Refusal{"pairs_on_memory",
                {.job = {.backend = "shm"}, .workers = 8, .network = "two-sites"},
                {"--network", "backend shm", "gloo"}},
        Refusal{
            "pairs_of_others", {.workers = 4, .network = "two-sites"}, {"--network", "8 devices", "4 ranks"}},
        Refusal{"grid_and_network",
                {.workers = 4, .network = "1gbit", .grid = {.grid = "2x2"}},
                {"--grid", "--network"}},
        Refusal{"grid_algorithm",
                {.workers = 4, .grid = {.grid = "2x2", .algorithms = {"hurry"}}},
                {"--algorithm", "hurry", "themis"}},
        Refusal{"grid_chunks", {.workers = 4, .grid = {.grid = "2x2", .chunks = 0}}, {"--chunks is 0"}},
        Refusal{"algorithm_of_no_grid", {.grid = {.algorithms = {"themis"}}}, {"--algorithm", "--grid"}},
        Refusal{"steps", {.job = {.steps = 0}}, {"--steps is 0"}},
        Refusal{"batch", {.job = {.batch = -1}}, {"--batch is -1"}},
        Refusal{"layers", {.job = {.layers = 0}}, {"--layers is 0"}},
        Refusal{"width", {.job = {.width = 0}}, {"--width is 0"}},
        Refusal{"heads", {.job = {.heads = 0}}, {"--heads is 0"}},
        Refusal{"heads_do_not_divide", {.job = {.width = 100, .heads = 3}}, {"--heads is 3", "--width, 100"}},
        Refusal{"context", {.job = {.context = 0}}, {"--context is 0"}},
        Refusal{"kfac_of_another", {.kfac = {.pi = true}}, {"--kfac-pi", "--optimizer kfac"}},
        Refusal{"kfac", {.optimizer = "kfac", .kfac = {.strategy = "best"}}, {"--kfac", "best", "spd-kfac"}},
        Refusal{"kfac_damping", {.optimizer = "kfac", .kfac = {.damping = 0}}, {"--kfac-damping", "0"}},
        Refusal{"kfac_huge_damping",
                {.optimizer = "kfac", .kfac = {.damping = 1e31}},
                {"--kfac-damping", "1e30"}},
        Refusal{"kfac_ema", {.optimizer = "kfac", .kfac = {.ema = 1}}, {"--kfac-ema", "1"}},
        Refusal{"kfac_clip", {.optimizer = "kfac", .kfac = {.clip = -1}}, {"--kfac-clip", "-1"}},
        Refusal{"kfac_factors", {.optimizer = "kfac", .kfac = {.factors = 0}}, {"--kfac-factors", "0"}},
        Refusal{"kfac_inverses",
                {.optimizer = "kfac", .kfac = {.factors = 2, .inverses = 3}},
                {"--kfac-inverses", "3", "2"}},
        Refusal{"kfac_eager", {.policy = "dear-eager", .optimizer = "kfac"}, {"kfac", "dear-eager"}},
        Refusal{"kfac_compressed", {.compress = "bf16", .optimizer = "kfac"}, {"kfac", "compressed"}},
        Refusal{"optimizer", {.optimizer = "lbfgs"}, {"--optimizer", "lbfgs", "sgd"}},
        Refusal{"negative_lr", {.learning_rate = -0.1}, {"--lr is -0.1"}},
        Refusal{
            "lr_not_a_number", {.learning_rate = std::numeric_limits<double>::quiet_NaN()}, {"--lr is nan"}},
        Refusal{"threads", {.threads = 0}, {"--threads is 0"}},
        Refusal{"timeout", {.timeout = "soon"}, {"--timeout", "soon"}},
        Refusal{"no_timeout", {.timeout = "0s"}, {"--timeout is 0"}},
        Refusal{"sample", {.sample = -1}, {"--sample is -1"}},
        Refusal{"trace_without_folder",
                {.trace = "/nowhere/at/all.json"},
                {"--trace", "/nowhere/at", "No such file"}},
        Refusal{"json_is_a_folder", {.json = "/"}, {"--json", "it is a folder"}},
        Refusal{"profile_below_a_file", {.profile = "/etc/passwd/x"}, {"--profile", "/etc/passwd"}},
        Refusal{"metrics_of_several", {.compare = "wfbp,dear", .metrics = "m.jsonl"}, {"--metrics"}},
        Refusal{"model", {.moe = {.model = "moe"}}, {"--model: there is no 'moe'", "gpt, moe-gpt"}},
        Refusal{"experts_of_gpt", {.moe = {.experts = 4}}, {"--experts", "--model moe-gpt"}},
        Refusal{"overlap_of_gpt", {.moe = {.overlap = "none"}}, {"--overlap", "--model moe-gpt"}},
        Refusal{"no_experts", {.workers = 2, .moe = {.model = "moe-gpt"}}, {"--experts", "the 2 workers"}},
        Refusal{"experts_of_workers",
                {.workers = 2, .moe = {.model = "moe-gpt", .experts = 5}},
                {"--experts: 5 experts cannot be dealt to 2 ranks alike"}},
        Refusal{"experts_beyond_tokens",
                {.job = {.batch = 1, .context = 2}, .workers = 1, .moe = {.model = "moe-gpt", .experts = 4}},
                {"--experts: 2 tokens are too few for 4 experts"}},
        Refusal{"gate", with_experts({.gate = "soft"}), {"--gate: there is no 'soft'", "batch-prioritized"}},
        Refusal{"gate_of_two", with_experts({.experts = 1, .gate = "top2"}), {"--gate top2", "--experts"}},
        Refusal{"capacity", with_experts({.capacity_factor = 0}), {"--capacity-factor", "of 0 cannot be"}},
        Refusal{"low_capacity", with_experts({.capacity_factor = 1e-6}), {"--capacity-factor", "no place"}},
        Refusal{"overlap", with_experts({.overlap = "all"}), {"--overlap: there is no 'all'", "lancet"}},
        Refusal{"parts", with_experts({.parts = 3}), {"--parts: 3 parts do not divide a batch of 8"}},
        Refusal{"many_parts", with_experts({.parts = 9}), {"--parts is 9", "from 1 to 8"}},
        Refusal{"mixture_every", with_experts({.every = 5}), {"--mixture-every is 5", "from 1 to 4"}},
        Refusal{
            "experts_with_kfac", with_experts({}, {.optimizer = "kfac"}), {"moe-gpt", "--optimizer kfac"}},
        Refusal{
            "experts_with_lamb", with_experts({}, {.optimizer = "lamb"}), {"moe-gpt", "--optimizer lamb"}},
        Refusal{"experts_saved", with_experts({}, {.saving = {.save = "saved"}}), {"moe-gpt and --save"}},
        Refusal{"experts_sampled", with_experts({}, {.sample = 9}), {"moe-gpt and --sample"}},
        Refusal{"experts_profiled", with_experts({}, {.profile = "p.json"}), {"moe-gpt and --profile"}},
        Refusal{"empty_name", {.json = ""}, {"--json is empty"}},
        Refusal{"one_file_twice", {.trace = "same.json", .json = "same.json"}, {"the same file"}}),
    [](const auto& info) { return info.param.name; });

class OutputFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "outputs-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(OutputFiles, ArePromisedButNotTouched) {
  const std::string fresh = (folder_ / "fresh.json").string();
  const std::string old = (folder_ / "old.json").string();
  std::ofstream(old) << "old";
  const TrainSettings settings = check_alone({.trace = old, .json = fresh, .profile = "/dev/null"});
  EXPECT_EQ(settings.json, fresh);
  EXPECT_EQ(settings.trace, old);
  EXPECT_EQ(settings.profile, "/dev/null");
  EXPECT_FALSE(std::filesystem::exists(fresh));
  EXPECT_EQ(std::filesystem::file_size(old), 3U);
}

TEST(TrainOptions, ThereIsACore) { EXPECT_GE(this_host().cores, 1); }

}  // namespace
}  // namespace dear::cli::train_options_test
