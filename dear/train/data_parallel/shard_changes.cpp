#include "dear/train/data_parallel/shard_changes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/say.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {
namespace {

constexpr std::int64_t kLearning = 2;  // steps that are not like others

// Sends `bytes` from rank `from` to rank `to` and returns the seconds until they had come there.
double time_message(const Group& group, const View& view, const View& output, int from, int to,
                    std::int64_t bytes) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(group.size())), received(sent.size());
  if (group.rank() == from) sent[static_cast<std::size_t>(to)] = bytes;
  group.barrier().wait();
  const double begin = now_seconds();
  group.all_to_all_v(view, output, {.sent = sent.data(), .received = received.data()}).wait();
  const double mine = now_seconds() - begin;
  return comm::all_gather_values(group, mine)[static_cast<std::size_t>(to)];
}

}  // namespace

std::vector<RankSpeed> measure_speeds(const Group& group, const std::vector<double>& updates) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 16, kMost = std::int64_t{1} << 22;
  constexpr double kLong = 10e-3;
  const int ranks = group.size();
  const auto view_of = [&](std::int64_t bytes) {
    return View{.buffer = group.allocate(ranks * bytes), .count = ranks * bytes, .dtype = DType::u8};
  };
  std::vector<RankSpeed> speeds(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < speeds.size(); ++rank)
    speeds[rank] = {.send = 0, .receive = 0, .update = updates[rank]};
  std::int64_t bytes = kLeast;
  View view = view_of(bytes), output = view_of(bytes);
  for (int apart = 1; apart <= std::min(2, ranks - 1); ++apart) {
    for (int from = 0; from < ranks; ++from) {
      const int to = (from + apart) % ranks;
      const auto time = [&] {
        std::vector<double> seconds;
        for (int i = 0; i < 3; ++i) seconds.push_back(time_message(group, view, output, from, to, bytes));
        std::sort(seconds.begin(), seconds.end());
        return seconds[1];
      };
      double seconds = time();
      while (seconds < kLong && bytes < kMost) {
        bytes *= 4;
        view = view_of(bytes);
        output = view_of(bytes);
        seconds = time();
      }
      // A message is as quick as the slower of both ends.
      const double speed = static_cast<double>(bytes) / std::max(seconds, 1e-9);
      RankSpeed &sender = speeds[static_cast<std::size_t>(from)],
                &receiver = speeds[static_cast<std::size_t>(to)];
      sender.send = std::max(sender.send, speed);
      receiver.receive = std::max(receiver.receive, speed);
    }
  }
  return speeds;
}

void ShardChanges::begin() {
  const std::optional<ShardMeasuring>& options = own_.options_.measured_shards;
  agree(own_.group_, "measured shards",
        options ? fmt::format("window {}, drift {:a}, gain {:a}, cost {:a}", options->window, options->drift,
                              options->least_gain, options->most_cost)
                : "none");
  if (!options) return;
  const int ranks = own_.group_.size();
  std::vector<double> weights = own_.options_.shards;
  if (weights.empty()) weights.assign(static_cast<std::size_t>(ranks), 1.0 / ranks);
  shards_.emplace(*options, std::move(weights));
  if (ranks == 1) return shards_.reset();
  own_.engines.require_shares();
  group_ = own_.group_.duplicate();
  numbers_ = group_->allocate(2L * ranks * size_of(DType::f64));
}

void ShardChanges::step_ended() {
  if (!shards_ || !own_.engine_ || own_.participation_.joined()) return;
  const double now = now_seconds(), before = std::exchange(step_ended_, now);
  if (++steps_ > kLearning && before > 0) durations_.push_back(now - before);
  if (pending_) hear();
  if (std::ssize(durations_) == shards_->options().window) send();
}

// Each rank says two numbers in places of its own, and a maximum leaves them as they are.
void ShardChanges::send() {
  const auto rank = static_cast<std::size_t>(own_.group_.rank());
  auto* const numbers = reinterpret_cast<double*>(numbers_.data());
  std::fill_n(numbers, 2 * own_.group_.size(), 0.0);
  numbers[2 * rank] = spread_of(std::exchange(durations_, {})).median;
  numbers[2 * rank + 1] = own_.engine_->updates().bytes_per_second();
  own_.engine_->updates().measure_from_now();
  pending_ = group_->all_reduce({.buffer = numbers_, .count = 2L * own_.group_.size(), .dtype = DType::f64},
                                Reduction::max);
}

void ShardChanges::hear() {
  std::exchange(pending_, std::nullopt)->wait();
  const auto* const numbers = reinterpret_cast<const double*>(numbers_.data());
  double slowest = 0;
  std::vector<double> updates;
  for (int rank = 0; rank < own_.group_.size(); ++rank) {
    slowest = std::max(slowest, numbers[2 * rank]);
    updates.push_back(numbers[2 * rank + 1]);
  }
  if (shards_->wants_speeds(steps_, slowest)) measure(std::move(updates));
}

void ShardChanges::measure(std::vector<double> updates) {
  own_.waits.wait_for_all();
  const double begin = now_seconds();
  const std::vector<RankSpeed> mine = measure_speeds(own_.group_, updates);
  // Rank 0's, to the bit.
  std::vector<double> all{now_seconds() - begin};
  for (const RankSpeed& one : mine) all.insert(all.end(), {one.send, one.receive, one.update});
  all = agreement::of_rank_0(own_.group_, agreement::Subject::profile, all);
  std::vector<RankSpeed> speeds;
  for (std::size_t i = 1; i < all.size(); i += 3)
    speeds.push_back({.send = all[i], .receive = all[i + 1], .update = all[i + 2]});
  const bool all_reduced = own_.options_.policy == "wfbp" || own_.options_.policy == "serial";
  const std::optional<ShardPlan> plan =
      shards_->measured(speeds, all_reduced ? ShardUse::all_reduced : ShardUse::scattered, all[0]);
  own_.changes_->waited();
  durations_.clear();
  step_ended_ = 0;  // what follows is no step's time
  own_.engine_->updates().measure_from_now();
  if (!plan) return;
  own_.engines.cut_shards(plan->weights);
  if (own_.group_.rank() != 0) return;
  std::vector<std::string> links, shares;
  for (const RankSpeed& one : speeds)
    links.push_back(fmt::format("{:.3g}/{:.3g}", one.send / 1e6, one.receive / 1e6));
  for (const double weight : plan->weights) shares.push_back(fmt::format("{:.3f}", weight));
  tell(own_.options_.say,
       fmt::format("links send and receive {} MB/s by rank: shards are {} of each bucket from now on",
                   fmt::join(links, ", "), fmt::join(shares, ", ")));
}

}  // namespace dear::train
