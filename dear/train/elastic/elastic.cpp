#include "dear/train/elastic/elastic.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "dear/base/membership/member.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/checkpoints.h"

namespace dear {
namespace {

constexpr std::chrono::duration<double> kMeeting = std::chrono::seconds(20);  // of ranks that are all there
constexpr std::chrono::duration<double> kNotice = std::chrono::seconds(10);   // until a launcher sees an end
constexpr int kTries = 5;  // meetings that fail although nobody has ended

std::int64_t used_in(const Position& position) {
  std::int64_t used = -1;
  const auto found = position.more.find("used");
  if (found != position.more.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), used);
  if (used < 0)
    throw ConfigError("the checkpoint is none of dear::Elastic: it does not say how many samples were used");
  return used;
}

}  // namespace

class Elastic::Impl {
 public:
  Impl(torch::nn::Module& model, torch::optim::Optimizer& optimizer, ElasticOptions options)
      : model_(model),
        optimizer_(optimizer),
        options_(std::move(options)),
        environment_(read_launch_environment()) {
    const auto least = std::min({options_.samples, options_.batch, std::int64_t{options_.epochs},
                                 std::int64_t{options_.commit}, std::int64_t{options_.every}});
    if (least < 1)
      throw ConfigError(fmt::format(
          "Elastic: {} samples, batches of {}, {} epochs, a commit every {} and a save every {} steps: each "
          "must be at least 1",
          options_.samples, options_.batch, options_.epochs, options_.commit, options_.every));
    if (!environment_.membership.empty()) member_.emplace(environment_.membership, environment_.member);
    begin();
  }

  void run(const std::function<void(const torch::Tensor&)>& backward) {
    while (used_ < all()) {
      if (given_up_ || (member_ && member_->roster().epoch != epoch_)) {
        begin();
        continue;  // the others may have been further
      }
      try {
        step(backward);
      } catch (const TransportError&) {
        if (!is_lost()) throw;
      } catch (const TimeoutError&) {
        if (!is_lost()) throw;
      } catch (const MismatchError&) {
        if (!is_lost()) throw;
      }
    }
  }

  std::optional<Group> group;
  std::unique_ptr<DataParallel> parallel;
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  [[nodiscard]] std::int64_t all() const { return options_.samples * options_.epochs; }
  [[nodiscard]] std::int64_t samples_of_step() const {
    const std::int64_t left = all() - used_, batch = std::min(options_.batch, all());
    return left < 2 * batch ? left : batch;
  }

  // The part of this rank of the samples of the next step.
  torch::Tensor indices() {
    const std::int64_t count = samples_of_step(), rank = group->rank(), size = group->size();
    std::vector<torch::Tensor> found;
    for (std::int64_t first = used_ + count * rank / size, last = used_ + count * (rank + 1) / size;
         first < last;) {
      const std::int64_t place = first % options_.samples;
      const std::int64_t here = std::min(last - first, options_.samples - place);
      found.push_back(order_of(first / options_.samples).narrow(0, place, here));
      first += here;
    }
    return torch::cat(found);
  }

  torch::Tensor order_of(std::int64_t epoch) const {
    // As Python's dear.Elastic draws them.
    const auto seed = static_cast<std::uint64_t>((options_.seed << 20) + epoch);
    return torch::randperm(options_.samples, at::make_generator<at::CPUGeneratorImpl>(seed),
                           torch::TensorOptions().dtype(torch::kInt64));
  }

  void step(const std::function<void(const torch::Tensor&)>& backward) {
    const torch::Tensor mine = indices();
    parallel->samples(mine.size(0));
    backward(mine);
    parallel->step();
    const std::int64_t steps = steps_ + 1, used = used_ + samples_of_step();
    if (steps % options_.commit == 0 || used == all()) commit(steps, used);
    steps_ = steps;
    used_ = used;
    if (checkpoints_ && (steps % options_.every == 0 || used == all()))
      checkpoints_->save({.step = steps, .more = {{"used", std::to_string(used)}}});
  }

  // After an error of the group: whether the launcher has seen a process end, so that the others can go on.
  bool is_lost() {
    if (!member_) return false;
    const Deadline deadline = Deadline::after(kNotice);
    while (member_->roster().epoch == epoch_) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return given_up_ = true;
  }

  void commit(std::int64_t steps, std::int64_t used) {
    if (committed_) committed_->save({.step = steps, .more = {{"used", std::to_string(used)}}});
    recorder::note_progress(steps);
  }

  // Meets the ranks of now, and takes the state of the last commit.
  void begin() {
    for (int tries = 1;; ++tries) {
      leave();
      const LaunchEnvironment environment = join();
      try {
        group.emplace(init({.timeout = options_.timeout,
                            .meeting = std::min(options_.timeout, member_ ? kMeeting : options_.timeout),
                            .environment = environment}));
        train_on(*group);
        given_up_ = false;
        return;
      } catch (const ConfigError&) {
        throw;
      } catch (const Error&) {
        if (!member_ || tries > kTries) throw;
        if (!is_lost()) member_->ask_again(member_->roster());
      }
    }
  }

  void leave() {
    committed_.reset();
    checkpoints_.reset();
    if (group) group->abort(fmt::format("rank {}: its ranks have changed", group->rank()));
    parallel.reset();
    group.reset();
    for (torch::Tensor& one : model_.parameters()) one.mutable_grad() = torch::Tensor();
  }

  // Waits until all ranks of now are ready to meet.
  LaunchEnvironment join() {
    LaunchEnvironment now = environment_;
    if (!member_) return now;
    const membership::Roster roster = member_->join(Deadline::after(options_.timeout));
    epoch_ = roster.epoch;
    now.rank = *roster.rank_of(member_->number());
    now.size = static_cast<int>(roster.members.size());
    now.local_rank = roster.local_rank(now.rank);
    now.local_size = roster.local_size(now.rank);
    if (!roster.hosts.empty()) {
      now.master_address = roster.address;
      now.master_port = roster.port;
    }
    now.rendezvous += fmt::format(" epoch {}", epoch_);
    now.job += fmt::format(" epoch {}", epoch_);
    recorder::begin_again(now.rank, now.size);
    return now;
  }

  void train_on(const Group& ranks) {
    if (std::min(options_.batch, all()) < ranks.size())
      throw ConfigError(
          fmt::format("Elastic: a batch of {} samples for {} ranks: each takes at least one of every batch",
                      std::min(options_.batch, all()), ranks.size()));
    parallel = std::make_unique<DataParallel>(model_, optimizer_, ranks, options_.training);
    if (!options_.checkpoints.empty())
      checkpoints_ =
          std::make_unique<Checkpoints>(*parallel, CheckpointsOptions{.directory = options_.checkpoints});
    if (const std::optional<Position> position = resume(ranks)) {
      steps_ = position->step;
      used_ = used_in(*position);
    }
    commit(steps_, used_);
  }

  // From the last commit of ranks of this job, else from a checkpoint.
  std::optional<Position> resume(const Group& ranks) {
    if (!environment_.elastic_folder.empty()) {
      committed_ = std::make_unique<Checkpoints>(
          *parallel, CheckpointsOptions{.directory = environment_.elastic_folder,
                                        .keep = 1,
                                        .form = CheckpointForm::a_shard_of_each_rank,
                                        .mirrored = true,
                                        .random = RandomState::none});
      if (auto position = committed_->resume()) return position;
      const std::vector<std::int64_t> steps = comm::all_gather_values(ranks, steps_);
      if (const auto most = *std::max_element(steps.begin(), steps.end()); most > 0)
        throw ConfigError(fmt::format(
            "rank {}: the state of step {} is not in '{}', where ranks committed it: let nobody remove it",
            ranks.rank(), most, environment_.elastic_folder));
    }
    return checkpoints_ ? checkpoints_->resume() : std::nullopt;
  }

  torch::nn::Module& model_;
  torch::optim::Optimizer& optimizer_;
  ElasticOptions options_;
  LaunchEnvironment environment_;
  std::optional<membership::Member> member_;
  std::int64_t epoch_ = -1;  // of the roster
  bool given_up_ = false;
  std::int64_t steps_ = 0, used_ = 0;  // the state of now
  std::unique_ptr<Checkpoints> checkpoints_;
  std::unique_ptr<Checkpoints> committed_;  // in the memory of the launcher
};

Elastic::Elastic(torch::nn::Module& model, torch::optim::Optimizer& optimizer, ElasticOptions options)
    : impl_(std::make_unique<Impl>(model, optimizer, std::move(options))) {}
Elastic::~Elastic() = default;
void Elastic::run(const std::function<void(const torch::Tensor&)>& backward) { impl_->run(backward); }
DataParallel& Elastic::training() { return *impl_->parallel; }
int Elastic::rank() const { return impl_->group->rank(); }
int Elastic::ranks() const { return impl_->group->size(); }
std::int64_t Elastic::steps() const { return impl_->steps(); }
std::int64_t Elastic::used() const { return impl_->used(); }

}  // namespace dear
