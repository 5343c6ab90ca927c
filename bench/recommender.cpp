// Training of a recommender whose embeddings make nearly all of its gradient, most of it zero: dense, and
// compressed, in turns on the same data. Over shaped wires:
//   bench/hosts up 2 100mbit
//   bench/hosts mpirun build/release/bench/bench_recommender --compression sketch
// Neural collaborative filtering (He et al. 2017, doi:10.1145/3038912.3052569) on generated ratings: users
// and items are drawn by Zipf's law, a hidden factor model says whether they like each other. Prints seconds
// of an iteration, and how far the curves of the loss lie apart.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/backends/init.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Arguments {
  std::int64_t users = 40000, items = 20000, width = 32, batch = 128;
  int steps = 200, turn = 20;
  double learning_rate = 4;
  std::string compression = "sketch";
  std::string fusion = "layer";
  std::string backend;
};

struct Filtering : torch::nn::Module {
  explicit Filtering(const Arguments& arguments)
      : users(register_module("users", torch::nn::Embedding(arguments.users, arguments.width))),
        items(register_module("items", torch::nn::Embedding(arguments.items, arguments.width))),
        tower(register_module("tower", torch::nn::Sequential(torch::nn::Linear(2 * arguments.width, 64),
                                                             torch::nn::ReLU(), torch::nn::Linear(64, 32),
                                                             torch::nn::ReLU(), torch::nn::Linear(32, 1)))) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.1 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32) * 1.7).view_as(tensor));
  }
  torch::Tensor forward(const torch::Tensor& user, const torch::Tensor& item) {
    return tower->forward(torch::cat({users->forward(user), items->forward(item)}, 1)).squeeze(1);
  }
  torch::nn::Embedding users, items;
  torch::nn::Sequential tower;
};

// Ratings of one step on one rank.
struct Ratings {
  torch::Tensor users, items, liked;
};

class Generator {
 public:
  explicit Generator(const Arguments& arguments) : arguments_(arguments) {}

  [[nodiscard]] Ratings batch(int step, int rank) const {
    std::mt19937_64 random(static_cast<std::uint64_t>(step) * 1009 + static_cast<std::uint64_t>(rank) + 1);
    Ratings ratings{.users = torch::empty({arguments_.batch}, torch::kInt64),
                    .items = torch::empty({arguments_.batch}, torch::kInt64),
                    .liked = torch::empty({arguments_.batch})};
    for (std::int64_t i = 0; i < arguments_.batch; ++i) {
      const std::int64_t user = drawn(random, arguments_.users), item = drawn(random, arguments_.items);
      ratings.users.data_ptr<std::int64_t>()[i] = user;
      ratings.items.data_ptr<std::int64_t>()[i] = item;
      const double affinity =
          std::sin(0.37 * static_cast<double>(user)) * std::sin(0.71 * static_cast<double>(item));
      ratings.liked.data_ptr<float>()[i] = affinity > 0 ? 1.0F : 0.0F;
    }
    return ratings;
  }

 private:
  // Zipf's law with exponent 1: the inverse of its continuous form.
  static std::int64_t drawn(std::mt19937_64& random, std::int64_t count) {
    const double part = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto rank =
        static_cast<std::int64_t>(std::exp(part * std::log(static_cast<double>(count) + 1))) - 1;
    return std::min(rank, count - 1);
  }
  const Arguments& arguments_;
};

class Run {
 public:
  Run(const Arguments& arguments, const Group& group, const std::string& compression)
      : generator_(arguments),
        rank_(group.rank()),
        model_(std::make_shared<Filtering>(arguments)),
        sgd_(model_->parameters(), torch::optim::SGDOptions(arguments.learning_rate)),
        parallel_(*model_, sgd_, group, options(arguments, compression)) {}

  void advance(int steps) {
    for (int i = 0; i < steps; ++i) {
      const double begin = now_seconds();
      const Ratings ratings = generator_.batch(static_cast<int>(losses.size()), rank_);
      const torch::Tensor loss = torch::nn::functional::binary_cross_entropy_with_logits(
          model_->forward(ratings.users, ratings.items), ratings.liked);
      losses.push_back(loss.item<double>());
      loss.backward();
      parallel_.step();
      seconds.push_back(now_seconds() - begin);
    }
    parallel_.synchronize();
  }
  CompressionReport report() { return parallel_.compression_report(); }

  std::vector<double> losses, seconds;

 private:
  static DataParallelOptions options(const Arguments& arguments, const std::string& compression) {
    DataParallelOptions options{.buckets = given(Fusion::parse(arguments.fusion))};
    if (!compression.empty()) options.compression = Compression::parse(compression);
    return options;
  }
  Generator generator_;
  int rank_;
  std::shared_ptr<Filtering> model_;
  torch::optim::SGD sgd_;
  DataParallel parallel_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

void run(const Arguments& arguments) {
  const Group group = init({.backend = arguments.backend, .reproducible = true});
  Run dense(arguments, group, ""), compressed(arguments, group, arguments.compression);
  for (int done = 0; done < arguments.steps; done += arguments.turn) {
    dense.advance(std::min(arguments.turn, arguments.steps - done));
    compressed.advance(std::min(arguments.turn, arguments.steps - done));
  }
  double apart = 0;
  for (std::size_t i = 0; i < dense.losses.size(); ++i)
    apart = std::max(apart, std::abs(dense.losses[i] - compressed.losses[i]));
  if (group.rank() != 0) return;
  const CompressionReport report = compressed.report();
  const double slow = median(dense.seconds), fast = median(compressed.seconds);
  fmt::print("{} parameters, {} on {}\n", (arguments.users + arguments.items) * arguments.width,
             arguments.compression, group.description());
  fmt::print("iteration: dense {:.1f} ms, compressed {:.1f} ms, {:.2f} times as many\n", 1e3 * slow,
             1e3 * fast, slow / fast);
  fmt::print("loss: {:.4f} at first, {:.4f} at last; largest difference of the curves {:.2g}\n",
             dense.losses.front(), dense.losses.back(), apart);
  fmt::print("sent: {:.3f} MB a step of {:.3f} MB dense; {} dense exchanges\n",
             report.bytes / 1e6 / static_cast<double>(report.steps),
             report.dense_bytes / 1e6 / static_cast<double>(report.steps), report.dense_exchanges);
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("Training of a recommender, dense and compressed, in turns");
  dear::Arguments arguments;
  app.add_option("--users", arguments.users)->capture_default_str();
  app.add_option("--items", arguments.items)->capture_default_str();
  app.add_option("--width", arguments.width, "of an embedding")->capture_default_str();
  app.add_option("--batch", arguments.batch, "ratings of a rank in a step")->capture_default_str();
  app.add_option("--steps", arguments.steps)->capture_default_str();
  app.add_option("--turn", arguments.turn, "steps of one run before the other goes on")
      ->capture_default_str();
  app.add_option("--lr", arguments.learning_rate, "of SGD")->capture_default_str();
  app.add_option("--compression", arguments.compression)->capture_default_str();
  app.add_option("--fusion", arguments.fusion)->capture_default_str();
  app.add_option("--backend", arguments.backend, "what carries collectives");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  try {
    dear::run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_recommender: {}\n", error.what());
    return 1;
  }
}
