// Training by rounds on ranks that are threads, beside replicas that one thread trains by the rule.

#include "dear/systems/rounds/rounds.h"

#include <atomic>
#include <future>
#include <map>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/rounds/fragments.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/counting.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::systems::rounds::rounds_test {
namespace {

using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

const bool kOneThreadEach = (at::set_num_threads(1), true);

constexpr std::int64_t kFeatures = 6;
constexpr int kReplicas = 3;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 10));
    second = register_module("second", torch::nn::Linear(10, 3));
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (torch::Tensor& one : parameters())
      one.copy_(0.4 * torch::sin(++phase + torch::arange(one.numel(), torch::kFloat64)).view_as(one));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

void backward(Net& net, std::int64_t step, int replica) {
  const train::testing::Batch batch = rows(step, 4 * replica, 4, kFeatures);
  torch::mse_loss(net->forward(batch.inputs.to(torch::kFloat64)), batch.targets.to(torch::kFloat64))
      .backward();
}

torch::optim::SGDOptions outer_options() {
  return torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true);
}
MakeOuter outer() { return outer_optimizer<torch::optim::SGD>(outer_options()); }

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& one : tensors) all.push_back(one.detach().clone());
  return all;
}

void expect_near(const std::vector<torch::Tensor>& mine, const std::vector<torch::Tensor>& theirs,
                 double tolerance = 1e-10) {
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i)
    EXPECT_LE((mine[i] - theirs[i]).abs().max().item<double>(), tolerance) << "tensor " << i;
}

// One rank: its net, optimiser, rounds and training.
struct Rank {
  Rank(int number, const Group& group, const RoundOptions& options, MakeOuter make = outer())
      : number(number), rounds((shift(), *net), group, options, std::move(make)) {
    rounds.follow(training);
  }
  void shift() {  // rank 0's are taken
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& one : net->parameters()) one.add_(number);
  }
  void train(std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step < last; ++step) {
      backward(net, step, number);
      training.step();
    }
  }
  int number;
  Net net;
  Rounds rounds;
  torch::optim::AdamW adamw{net->parameters(), torch::optim::AdamWOptions(0.01)};
  DataParallel training{*net, adamw, rounds.inside(), {.buckets = given(Fusion())}};
};

// The parameters of each replica by the rule. A fragment's tensors, by number: rank 0 tells.
std::vector<std::vector<torch::Tensor>> by_the_rule(const RoundOptions& options,
                                                    const std::vector<std::vector<std::size_t>>& fragments,
                                                    std::int64_t steps) {
  std::vector<Net> nets(kReplicas);
  for (Net& net : nets) net = Net();
  std::vector<std::unique_ptr<torch::optim::AdamW>> inner;
  for (Net& net : nets)
    inner.push_back(
        std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.01)));
  std::vector<torch::Tensor> global = copies(nets[0]->parameters());
  std::vector<std::unique_ptr<torch::optim::SGD>> outers;
  for (const auto& fragment : fragments) {
    std::vector<torch::Tensor> its;
    for (const std::size_t tensor : fragment) its.push_back(global[tensor]);
    outers.push_back(std::make_unique<torch::optim::SGD>(its, outer_options()));
  }
  std::map<std::size_t, std::int64_t> due;
  const std::int64_t apart = options.every / options.fragments;
  for (std::int64_t step = 1; step <= steps; ++step) {
    for (int m = 0; m < kReplicas; ++m) {
      inner[static_cast<std::size_t>(m)]->zero_grad();
      backward(nets[static_cast<std::size_t>(m)], step, m);
      inner[static_cast<std::size_t>(m)]->step();
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t f = 0; f < fragments.size(); ++f) {
      if (step % options.every == (static_cast<std::int64_t>(f) + 1) * apart % options.every) {
        due[f] = step + options.delay;
        for (const std::size_t tensor : fragments[f]) {
          torch::Tensor sum = torch::zeros_like(global[tensor]);
          for (Net& net : nets) sum += global[tensor] - net->parameters()[tensor];
          global[tensor].mutable_grad() = sum / kReplicas;
        }
      }
      if (!due.contains(f) || due[f] != step) continue;
      outers[f]->step();
      for (Net& net : nets)
        for (const std::size_t tensor : fragments[f]) {
          torch::Tensor own = net->parameters()[tensor];
          own.copy_(own * options.mixing + global[tensor] * (1 - options.mixing));
        }
    }
  }
  std::vector<std::vector<torch::Tensor>> result;
  for (Net& net : nets) result.push_back(copies(net->parameters()));
  return result;
}

std::vector<std::vector<std::size_t>> numbers_of(const Rank& rank) {
  std::map<std::string, std::size_t> number;
  for (const auto& item : rank.net->named_parameters()) number.emplace(item.key(), number.size());
  std::vector<std::vector<std::size_t>> all;
  for (const std::vector<std::string>& names : rank.rounds.report().fragments) {
    all.emplace_back();
    for (const std::string& name : names) all.back().push_back(number.at(name));
  }
  return all;
}

TEST(Rounds, AreTheRule) {
  for (const RoundOptions& options :
       {RoundOptions{.every = 3}, RoundOptions{.every = 6, .fragments = 2, .delay = 2, .mixing = 0.25}}) {
    run_all(kReplicas, [&](int number, const Group& group) {
      Rank rank(number, group, options);
      rank.train(1, 15);
      expect_near(rank.net->parameters(),
                  by_the_rule(options, numbers_of(rank), 14)[static_cast<std::size_t>(number)]);
    });
  }
}

TEST(Rounds, GoOnFromAState) {
  const RoundOptions options{.every = 6, .fragments = 2, .delay = 2, .mixing = 0.25};
  run_all(kReplicas, [&](int number, const Group& group) {
    const Group again = group.duplicate();
    Rank rank(number, group, options);
    rank.train(
        1, 9);  // of the second fragment's turn at 6 the mean came in at 8, the first one's next turn is 9
    rank.train(9, 11);
    const std::map<std::string, torch::Tensor> state = rank.rounds.state();
    ASSERT_TRUE(state.contains("under way"));
    const std::vector<torch::Tensor> own = copies(rank.net->parameters());
    Rank other(number, again, options);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < own.size(); ++i) other.net->parameters()[i].copy_(own[i]);
    }
    other.rounds.load_state(state);
    for (Rank* one : {&rank, &other}) {  // a change that does not depend on AdamW's moments
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& tensor : one->net->parameters()) tensor.mul_(0.5);
      one->rounds.end();
    }
    expect_near(other.net->parameters(), rank.net->parameters(), 0);
  });
}

// What the backends carry: of all collectives of a rank.
TEST(Rounds, SendNothingBetweenTurns) {
  std::vector<std::atomic<std::int64_t>> bytes(2);
  std::vector<Group> groups;
  std::size_t next = 0;
  for (auto& backend : backends::testing::make_shm_threads(2))
    groups.emplace_back(std::make_unique<train::testing::Counting>(std::move(backend), bytes[next++]),
                        Group::Options{});
  for (const std::exception_ptr& error : run_each(std::move(groups), [&](int number, const Group& group) {
         const std::atomic<std::int64_t>& mine = bytes[static_cast<std::size_t>(number)];
         Rank rank(number, group, {.every = 4, .fragments = 2});
         const std::int64_t at_start = mine;
         std::int64_t elements = 0;
         for (const torch::Tensor& one : rank.net->parameters()) elements += one.numel();
         for (std::int64_t round = 0; round < 3; ++round) {
           std::int64_t of_round = 0;
           for (std::int64_t step = 1; step <= 4; ++step) {
             const std::int64_t before = mine;
             rank.train(4 * round + step, 4 * round + step + 1);
             if (step % 2 == 1) {
               EXPECT_EQ(mine, before) << "step " << step;
             }
             of_round += mine - before;
           }
           // Vectors of two halves, of lines of 64 bytes; with a weight to each fragment.
           EXPECT_GE(of_round, 2 * 8 * elements);
           EXPECT_LE(of_round, 2 * (8 * elements + 4 * 64 + 2 * 3 * 64));
           EXPECT_EQ(rank.rounds.report().bytes * 2, static_cast<double>(mine - at_start));
           EXPECT_EQ(rank.training.statistics().bytes, rank.rounds.report().bytes);
         }
       }))
    EXPECT_EQ(what_of(error), "");
}

// Holds every collective until it is opened.
class Held : public Backend {
 public:
  explicit Held(std::shared_future<void> open) : inner_(comm::make_single()), open_(std::move(open)) {}
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string description() const override { return "held"; }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return inner_->allocate(bytes, deadline);
  }
  Timing run(const Request& request, Deadline deadline) override {
    if (request.collective == Collective::reduce_scatter) open_.wait();
    return inner_->run(request, deadline);
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Backend> inner_;
  std::shared_future<void> open_;
};

TEST(Rounds, TravelUnderTheStepsOfTheDelay) {
  std::promise<void> open;
  const Group group(std::make_unique<Held>(open.get_future().share()), {});
  Rank rank(0, group, {.every = 4, .delay = 3});
  rank.train(1, 7);  // the exchange of step 4 cannot have ended
  EXPECT_EQ(rank.rounds.report().exchanges, 0);
  open.set_value();
  rank.train(7, 8);
  EXPECT_EQ(rank.rounds.report().exchanges, 1);
  expect_near(rank.net->parameters(), [&] {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(0.01));
    std::vector<torch::Tensor> global = copies(net->parameters());
    for (std::int64_t step = 1; step <= 4; ++step) {
      adamw.zero_grad();
      backward(net, step, 0);
      adamw.step();
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < global.size(); ++i)  // 0.7 (1 + 0.9) of the way
      global[i] -= 1.33 * (global[i] - net->parameters()[i]);
    return global;
  }());
}

// Turns of the first fragment are after steps 2 and 6, of the second after 4 and 8; at the end each has one
// more.
TEST(Rounds, ShowTheirExchangesInATrace) {
  run_all(2, [](int number, const Group& group) {
    Net net;
    Rounds rounds(*net, group, {.every = 4, .fragments = 2, .delay = 1}, outer());
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel training(*net, sgd, rounds.inside(), {.buckets = given(Fusion()), .record_trace = true});
    rounds.follow(training);
    for (std::int64_t step = 1; step <= 8; ++step) {
      backward(net, step, number);
      training.step();
    }
    rounds.end();
    std::map<std::string, std::vector<std::int64_t>> iterations;
    for (const Span& span : training.trace().spans) {
      if (!span.name.starts_with("exchange fragment") && !span.name.starts_with("wait for fragment"))
        continue;
      iterations[span.name].push_back(span.iteration);
      EXPECT_EQ(span.rank, number);
      EXPECT_LE(span.begin_seconds, span.end_seconds);
      EXPECT_EQ(span.lane, span.activity == Activity::wait ? "compute" : "network between replicas");
    }
    const std::map<std::string, std::vector<std::int64_t>> expected{{"exchange fragment 0", {1, 5, 7}},
                                                                    {"exchange fragment 1", {3, 7, 7}},
                                                                    {"wait for fragment 0", {1, 5, 7}},
                                                                    {"wait for fragment 1", {3, 7, 7}}};
    EXPECT_EQ(iterations, expected);
  });
}

TEST(Rounds, EndWithReplicasOfUnequalSteps) {
  run_all(kReplicas, [](int number, const Group& group) {
    Rank rank(number, group, {.every = 4, .fragments = 2, .delay = 1}, nullptr);
    rank.train(1, 2 + 3 * number);
    rank.rounds.end();
    const std::string digest = parameter_digest(*rank.net);
    for (const std::string& other : all_gather_text(group, digest)) EXPECT_EQ(other, digest);
    rank.train(50, 55);
  });
}

TEST(Rounds, RefuseInOneSentence) {
  const auto refusal = [](const RoundOptions& options) {
    std::string message;
    run_all(2, [&](int number, const Group& group) {
      Net net;
      const std::string mine = message_of<ConfigError>([&] { const Rounds rounds(*net, group, options); });
      if (number == 0) message = mine;
    });
    return message;
  };
  EXPECT_THAT(refusal({.every = 0}), HasSubstr("at least 1 step"));
  EXPECT_THAT(refusal({.every = 5, .fragments = 2}), HasSubstr("multiple"));
  EXPECT_THAT(refusal({.every = 5, .fragments = 5}), HasSubstr("4 trained tensors"));
  EXPECT_THAT(refusal({.every = 4, .delay = 4}), HasSubstr("give 0 to 3"));
  EXPECT_THAT(refusal({.every = 4, .inside = 3}), HasSubstr("give a divisor"));
  EXPECT_THAT(refusal({.every = 4, .compression = Compression{}}), HasSubstr("fp64"));
}

TEST(Rounds, NameTheRankThatLeaves) {
  const std::vector<std::exception_ptr> errors =
      run_each(groups_of(2, std::chrono::seconds(20)), [](int number, const Group& group) {
        Rank rank(number, group, {.every = 2, .delay = 1});
        rank.train(1, 2);
        if (number == 1) throw std::runtime_error("the disk is full");
        rank.train(2, 5);
      });
  EXPECT_THAT(what_of(errors[0]), HasSubstr("rank 1"));
}

TEST(Fragments, AreBalancedAndEachTensorIsInOne) {
  const std::vector<Fragment> fragments = deal({100, 0, 30, 30, 30, 10, 90}, 2, 2);
  ASSERT_EQ(fragments.size(), 2U);
  EXPECT_EQ(fragments[0].parts, (std::vector<std::vector<std::size_t>>{{0}, {3, 5}}));
  EXPECT_EQ(fragments[1].parts, (std::vector<std::vector<std::size_t>>{{6}, {2, 4}}));
  EXPECT_EQ(fragments[1].tensors(), (std::vector<std::size_t>{2, 4, 6}));
}

TEST(Fragments, HaveTheirTurnsSpreadOverTheRound) {
  std::vector<std::int64_t> turns;
  for (std::int64_t position = 0; position <= 12; ++position) turns.push_back(turn_at(position, 6, 3));
  EXPECT_EQ(turns, (std::vector<std::int64_t>{-1, -1, 0, -1, 1, -1, 2, -1, 0, -1, 1, -1, 2}));
}

}  // namespace
}  // namespace dear::systems::rounds::rounds_test
