// A process that saves checkpoints, killed at random moments: each time the newest of those before is resumed
// from, and has the bits that its step must have.
//
//   build/release/bench/bench_checkpoint_kills --directory /var/tmp/saved --megabytes 1000 --kills 100

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Options {
  std::string directory;
  int megabytes = 1000;
  int kills = 100;
  std::uint64_t seed = 1;
  std::int64_t first = 0;  // of the process that is killed: the step to begin after; 0 for the other one
};

// Parameters and two vectors of state of a third of the size each.
struct Job {
  explicit Job(const Options& options)
      : side(static_cast<std::int64_t>(std::sqrt(options.megabytes * 1e6 / 3 / sizeof(float)))),
        model(torch::nn::LinearOptions(side, side).bias(false)),
        adamw(model->parameters(), torch::optim::AdamWOptions(1e-3)) {
    parallel.emplace(*model, adamw, Group(comm::make_single(), Group::Options{}),
                     DataParallelOptions{.buckets = given()});
  }
  // Every element of the parameters and of their gradients tells the step.
  void step(std::int64_t number) {
    torch::Tensor& weight = model->weight;
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(static_cast<float>(number));
    }
    weight.mutable_grad() = torch::full_like(weight, 0.5F);
    parallel->step();
    const torch::NoGradGuard no_grad;
    weight.fill_(static_cast<float>(number));
  }
  [[nodiscard]] bool is_at(std::int64_t number) {
    const bool values = model->weight.eq(static_cast<float>(number)).all().item<bool>();
    const auto state = parallel->optimizer_state().front().state;
    return values && state && state->vectors.size() == 2;
  }
  std::int64_t side;
  torch::nn::Linear model;
  torch::optim::AdamW adamw;
  std::optional<DataParallel> parallel;
};

[[noreturn]] void save_for_ever(const Options& options) {
  Job job(options);
  Checkpoints checkpoints(*job.parallel, {.directory = options.directory});
  for (std::int64_t step = options.first;; ++step) {
    job.step(step);
    fmt::print("{}\n", step);
    std::fflush(stdout);
    checkpoints.save({.step = step});
  }
}

// The process, and the end of the pipe in which it says that it begins to save.
std::pair<pid_t, int> start(const Options& options, const char* program, std::int64_t first) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    const std::string megabytes = std::to_string(options.megabytes), number = std::to_string(first);
    ::execl(program, program, "--directory", options.directory.c_str(), "--megabytes", megabytes.c_str(),
            "--first", number.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  return {child, ends[0]};
}

bool run(const Options& options, const char* program) {
  std::filesystem::remove_all(options.directory);
  std::mt19937_64 random(options.seed);
  double longest = 0;  // of a save
  {
    Job job(options);
    Checkpoints checkpoints(*job.parallel, {.directory = options.directory});
    for (std::int64_t step = 1; step <= 2; ++step) {
      job.step(step);
      const double begin = now_seconds();
      checkpoints.save({.step = step});
      longest = std::max(longest, now_seconds() - begin);
    }
  }
  std::int64_t newest = 2;
  int right = 0, in_a_save = 0;
  for (int kill = 0; kill < options.kills; ++kill) {
    const auto [child, pipe] = start(options, program, newest + 1);
    char byte = 0;
    if (::read(pipe, &byte, 1) != 1) throw Error("the process that saves did not begin");
    const double seconds = std::uniform_real_distribution<double>(0, 1.2 * longest)(random);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe);
    for (const auto& entry : std::filesystem::directory_iterator(options.directory))
      in_a_save += entry.path().extension() == ".tmp" ? 1 : 0;
    Job job(options);
    Checkpoints checkpoints(*job.parallel, {.directory = options.directory});
    const std::optional<Position> position = checkpoints.resume();
    const bool good = position && position->step >= newest && job.is_at(position->step);
    right += good ? 1 : 0;
    if (!good) fmt::print("kill {}: WRONG\n", kill);
    newest = position ? position->step : newest;
  }
  fmt::print(
      "{} MB, {} kills in up to {:.1f} s, {} of them in the middle of a file: {} resumed with the right "
      "bits\n",
      options.megabytes, options.kills, 1.2 * longest, in_a_save, right);
  return right == options.kills;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("Checkpoints of a process that is killed while it writes them");
  dear::Options options;
  app.add_option("--directory", options.directory, "for the checkpoints; what is in it is removed")
      ->required();
  app.add_option("--megabytes", options.megabytes, "of a checkpoint")->capture_default_str();
  app.add_option("--kills", options.kills)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--first", options.first)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.first > 0) dear::save_for_ever(options);
    return dear::run(options, argv[0]) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_checkpoint_kills: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
