// Measures what resuming from shards reads and holds: the bytes of the checkpoint that all ranks read
// together, and the memory of each rank beyond that of a training that begins anew without the optimiser's
// state. The training that goes on has the bits of the one that was saved. First with --save, then without,
// on any number of ranks:
//
//   dear launch -n 4 build/release/bench/bench_checkpoint_loads --directory /var/tmp/saved --save
//   dear launch -n 4 build/release/bench/bench_checkpoint_loads --directory /var/tmp/saved

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string directory;
  int megabytes = 2000;
  int layers = 24;
  std::string policy = "dear", fusion = "25MiB";
  bool save = false;
};

// Parameters and two vectors of state of a third of the size each.
struct Job {
  Job(const Options& options, const Group& group)
      : side(static_cast<std::int64_t>(
            std::sqrt(options.megabytes * 1e6 / 3 / sizeof(float) / options.layers))) {
    torch::manual_seed(3);
    for (int layer = 0; layer < options.layers; ++layer)
      model->push_back(torch::nn::Linear(torch::nn::LinearOptions(side, side).bias(false)));
    adamw.emplace(model->parameters(), torch::optim::AdamWOptions(1e-3));
    parallel.emplace(
        *model, *adamw, group,
        DataParallelOptions{.policy = options.policy, .buckets = given(Fusion::parse(options.fusion))});
  }
  void step() {
    model->forward(torch::ones({1, side})).square().mean().backward();
    parallel->step();
  }
  std::string digest() {
    parallel->synchronize();
    return parameter_digest(*model);
  }
  std::int64_t side;
  torch::nn::Sequential model;
  std::optional<torch::optim::AdamW> adamw;
  std::optional<DataParallel> parallel;
};

// A number of kB or bytes in a file of /proc/self, in bytes.
std::int64_t in_proc(const std::string& file, const std::string& key) {
  std::ifstream lines("/proc/self/" + file);
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with(key + ":"))
      return std::stoll(line.substr(key.size() + 1)) * (line.ends_with("kB") ? 1024 : 1);
  return 0;
}

// The most memory that this process has while it lives, but for what ranks share, which is buckets; and the
// most of it that is mapped files.
class Watch {
 public:
  Watch() {
    ::malloc_trim(0);
    files_before_ = in_proc("status", "RssFile");
    read_before_ = in_proc("io", "rchar");
    sampler_ = std::thread([this] {
      while (!ended_) {
        const std::int64_t files = in_proc("status", "RssFile");
        files_ = std::max(files_.load(), files);
        peak_ = std::max(peak_.load(), files + in_proc("status", "RssAnon"));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  ~Watch() {
    ended_ = true;
    sampler_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  void begin_anew() { peak_ = 0; }
  // By read(), and as pages of mapped files.
  [[nodiscard]] std::int64_t bytes_read() const {
    return in_proc("io", "rchar") - read_before_ + std::max<std::int64_t>(files_ - files_before_, 0);
  }

 private:
  std::int64_t files_before_ = 0, read_before_ = 0;
  std::atomic<std::int64_t> files_ = 0, peak_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread sampler_;
};

std::int64_t size_of(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    bytes += entry.is_regular_file() ? static_cast<std::int64_t>(entry.file_size()) : 0;
  return bytes;
}

void save(const Options& options, const Group& group) {
  if (group.rank() == 0) fs::remove_all(options.directory);
  group.barrier().wait();
  Job job(options, group);
  Checkpoints checkpoints(*job.parallel,
                          {.directory = options.directory, .form = CheckpointForm::a_shard_of_each_rank});
  job.step();
  checkpoints.save({.step = 1});
  job.step();
  const std::string digest = job.digest();
  if (group.rank() == 0) std::ofstream(options.directory + "/digest") << group.size() << ' ' << digest;
}

bool load(const Options& options, const Group& group) {
  const std::int64_t size = size_of(fs::path(options.directory) / "step-00000001");
  std::string digest;
  int saved = 0;
  std::ifstream(options.directory + "/digest") >> saved >> digest;
  std::int64_t fresh = 0;  // the peak without a resumption
  {
    const Watch watch;
    Job job(options, group);
    job.step();
    job.step();
    job.parallel->synchronize();
    fresh = watch.peak();
  }
  group.barrier().wait();
  Watch watch;
  Job job(options, group);
  watch.begin_anew();
  const std::int64_t before = in_proc("status", "RssFile") + in_proc("status", "RssAnon");
  const double begin = now_seconds();
  const auto position = Checkpoints(*job.parallel, {.directory = options.directory,
                                                    .form = CheckpointForm::a_shard_of_each_rank})
                            .resume();
  const double seconds = now_seconds() - begin;
  const std::int64_t held = watch.peak() - before;
  job.step();
  job.parallel->synchronize();
  const std::int64_t peak = watch.peak(), read = watch.bytes_read();
  const bool same = job.digest() == digest;
  const bool right = position && position->step == 1 && (same || saved != group.size());
  const auto all_read = comm::all_gather_values(group, read);
  const auto all_held = comm::all_gather_values(group, held);
  const auto all_beyond = comm::all_gather_values(group, peak - fresh);
  if (group.rank() != 0) return right;
  const auto total = static_cast<double>(size);
  const auto read_by_all =
      static_cast<double>(std::accumulate(all_read.begin(), all_read.end(), std::int64_t{0}));
  const auto most_held = static_cast<double>(*std::max_element(all_held.begin(), all_held.end()));
  const auto beyond = static_cast<double>(*std::max_element(all_beyond.begin(), all_beyond.end()));
  const double share = total / group.size(), mb = 1e6;
  fmt::print("{:.0f} MB saved on {} ranks, resumed on {} in {:.1f} s, {}\n", total / mb, saved, group.size(),
             seconds, same ? "to the bit" : "with other bits");
  fmt::print("  read by all ranks: {:.0f} MB, {:.2f} x the checkpoint\n", read_by_all / mb,
             read_by_all / total);
  fmt::print(
      "  most memory of a rank in resume(), beyond the model: {:.0f} MB, {:.2f} x its part of the "
      "checkpoint\n",
      most_held / mb, most_held / share);
  fmt::print(
      "  and until the first step has ended, beyond a training that begins anew: {:.0f} MB, {:.2f} x\n",
      beyond / mb, beyond / share);
  return right;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What resuming from shards reads and holds");
  dear::Options options;
  app.add_option("--directory", options.directory, "for the checkpoints; what is in it is removed")
      ->required();
  app.add_option("--megabytes", options.megabytes, "of the checkpoint")->capture_default_str();
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--policy", options.policy)->capture_default_str();
  app.add_option("--fusion", options.fusion)->capture_default_str();
  app.add_flag("--save", options.save, "save, to be resumed from by another run");
  CLI11_PARSE(app, argc, argv);
  try {
    const dear::Group group = dear::init();
    if (!options.save) return dear::load(options, group) ? EXIT_SUCCESS : EXIT_FAILURE;
    dear::save(options, group);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_checkpoint_loads: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
