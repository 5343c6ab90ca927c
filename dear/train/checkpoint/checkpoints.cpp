#include "dear/train/checkpoint/checkpoints.h"

#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/shard_set.h"
#include "dear/base/archive/step_folder.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/host_folders.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/parts.h"
#include "dear/train/checkpoint/patience.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/shards.h"
#include "dear/train/data_parallel/training_state.h"

namespace dear {

using archive::StepFolder;
using checkpoint::on_rank_0;

namespace {
namespace fs = std::filesystem;
constexpr int kLowest = 19;  // of nice values
}  // namespace

class Checkpoints::Impl {
 public:
  Impl(DataParallel& parallel, CheckpointsOptions options)
      : parallel_(parallel), options_(std::move(options)), folder_(options_.directory) {
    const Group& group = train::TrainingState(parallel_).group();
    on_rank_0(group, [&] {
      if (options_.keep < 1)
        throw ConfigError(fmt::format("keep is {}: at least 1 checkpoint must stay", options_.keep));
      if (options_.mirrored && options_.form == CheckpointForm::one_file)
        throw ConfigError("mirrored checkpoints are in shards: choose CheckpointForm::a_shard_of_each_rank");
    });
    if (options_.mirrored) hosts_.emplace(group, fs::absolute(options_.directory));
    on_each_folder(group, [&] { folder_.open_for_writing(); });
  }
  ~Impl() {
    if (writer_.joinable()) writer_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void save(const Position& position) {
    wait();
    train::TrainingState state(parallel_);
    const bool sharded = options_.form == CheckpointForm::a_shard_of_each_rank;
    const std::string path = folder_.of(step_ = position.step, sharded).path;
    if (sharded) {
      on_each_folder(state.group(), [&] { make_folder(path); });
      checkpoint::Shard shard = checkpoint::copy_shard(
          state, options_.random,
          checkpoint::describe_libtorch(state, position, checkpoint::collect(options_.parts)));
      sharded_ = {path, shard.file};
      write(state.group(), std::move(shard.copies), (fs::path(path) / shard.file).string());
      return;
    }
    std::shared_ptr<checkpoint::CopySink> copies;
    checkpoint::save_whole(
        state, options_.random,
        [&]() -> std::shared_ptr<checkpoint::TensorSink> {
          if (!options_.asynchronous) return std::make_shared<checkpoint::FileSink>(path);
          return copies = std::make_shared<checkpoint::CopySink>();
        },
        checkpoint::describe_libtorch(state, position, checkpoint::collect(options_.parts)));
    if (options_.asynchronous) {
      write(state.group(), std::move(copies), path);
    } else {
      on_rank_0(state.group(), [&] { folder_.keep_newest(options_.keep); });
    }
  }

  void wait() {
    if (!under_way_) return;
    const Group& group = train::TrainingState(parallel_).group();
    checkpoint::patiently(group, [&] {
      if (writer_.joinable()) writer_.join();
    });
    under_way_ = false;
    std::exception_ptr error = std::exchange(error_, nullptr);
    checkpoint::on_every_rank(group, [&] {
      if (error) std::rethrow_exception(error);
    });
    if (hosts_ && hosts_->several()) {
      const std::string file = (fs::path(sharded_.first).filename() / sharded_.second).string();
      checkpoint::on_every_rank_at_once(group, [&](const auto& run) { hosts_->mirror(file, run); });
    }
    on_each_folder(group, [&] {
      if (options_.form == CheckpointForm::a_shard_of_each_rank)
        archive::remove_other_shards(sharded_.first, sharded_.second);
      folder_.keep_newest(options_.keep, hosts_ && hosts_->several() ? std::optional(step_) : std::nullopt);
    });
  }

  std::optional<Position> resume() {
    wait();
    train::TrainingState state(parallel_);
    if (hosts_)
      checkpoint::on_every_rank_at_once(state.group(), [&](const auto& run) { hosts_->gather(run); });
    const CheckpointOptions options{.random = options_.random, .parts = options_.parts, .say = options_.say};
    std::string damaged;  // why none that was looked at could be read
    int cut_short = 0;
    for (const StepFolder::Saved& saved : listed(state.group())) {
      std::shared_ptr<checkpoint::Shards> shards;
      try {
        if (saved.sharded) {
          shards = checkpoint::Shards::open(state.group(), saved.path);
        } else {
          on_rank_0(state.group(), [&] { archive::ZipReader(saved.path).verify(); });
        }
      } catch (const ConfigError& error) {
        // One may have been cut short; of several the shards lay on hosts that are lost.
        if (!saved.cut_short || (hosts_ && ++cut_short > 1)) damaged = error.what();
        if (state.group().rank() == 0 && options_.say)
          options_.say(fmt::format("{}; the checkpoint before it is taken", error.what()));
        continue;
      }
      recorder::note_first_step(saved.step);
      return saved.sharded ? checkpoint::load_shards(state, shards, options)
                           : checkpoint::load_whole(state, saved.path, options);
    }
    if (!damaged.empty()) folder_.refuse_all(damaged);
    return std::nullopt;
  }

 private:
  // Rank 0's list, on every rank.
  [[nodiscard]] std::vector<StepFolder::Saved> listed(const Group& group) const {
    std::string text;
    on_rank_0(group, [&] {
      for (const StepFolder::Saved& saved : folder_.saved())
        text += fmt::format("{} {} {}\n", saved.step, int{saved.sharded}, int{saved.cut_short});
    });
    std::vector<StepFolder::Saved> all;
    std::istringstream lines(all_gather_text(group, text).front());
    std::int64_t step = 0;
    int sharded = 0, cut_short = 0;
    while (lines >> step >> sharded >> cut_short) {
      all.push_back(folder_.of(step, sharded != 0));
      all.back().cut_short = cut_short != 0;
    }
    return all;
  }

  // On rank 0, or on a rank of each host that has a folder of its own.
  void on_each_folder(const Group& group, const std::function<void()>& act) const {
    checkpoint::on_every_rank(group, [&] {
      if (hosts_ ? hosts_->leads() : group.rank() == 0) act();
    });
  }

  static void make_folder(const std::string& path) {
    std::error_code error;
    fs::create_directory(path, error);
    if (error)
      throw ConfigError(
          fmt::format("cannot make the folder '{}': {} (check where it lies)", path, error.message()));
  }

  // `copies` is null on a rank that has nothing to write.
  void write(const Group& group, std::shared_ptr<checkpoint::CopySink> copies, const std::string& path) {
    under_way_ = true;
    const auto run = [this, copies = std::move(copies), path] {
      try {
        copies->write_file(path);
      } catch (...) {
        error_ = std::current_exception();
      }
    };
    if (group.rank() != 0 && options_.form == CheckpointForm::one_file) return;
    if (!options_.asynchronous) {
      checkpoint::patiently(group, run);
      return wait();
    }
    try {
      writer_ = os::start_thread("of a checkpoint", [run] {
        // It takes the time that training leaves: Linux has a priority for each thread.
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
        run();
      });
    } catch (const TransportError&) {
      run();
    }
  }

  DataParallel& parallel_;
  const CheckpointsOptions options_;
  StepFolder folder_;
  std::optional<agreement::HostFolders> hosts_;
  std::pair<std::string, std::string> sharded_;  // folder and file of what is under way
  std::int64_t step_ = 0;                        // likewise
  bool under_way_ = false;
  std::exception_ptr error_;  // of the writer, once it has ended
  std::thread writer_;
};

Checkpoints::Checkpoints(DataParallel& parallel, CheckpointsOptions options)
    : impl_(std::make_unique<Impl>(parallel, std::move(options))) {}
Checkpoints::~Checkpoints() = default;
void Checkpoints::save(const Position& position) { impl_->save(position); }
void Checkpoints::wait() { impl_->wait(); }
std::optional<Position> Checkpoints::resume() { return impl_->resume(); }

}  // namespace dear
