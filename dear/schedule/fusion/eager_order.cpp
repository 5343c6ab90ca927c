#include "dear/schedule/fusion/eager_order.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <queue>
#include <utility>

namespace dear::fusion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Bounds the number of branches that are tried, so that an order takes some milliseconds.
constexpr std::size_t kBranchesTimesChunks = 10'000;
constexpr std::size_t kMostBranches = 200;
constexpr std::size_t kFewestBranches = 8;
// Bounds of moves: transfers played in all, and how far a transfer is moved.
constexpr std::size_t kMostPlayed = 500'000;
constexpr std::size_t kFarthestMove = 6;

// Jobs 0 to n - 1 are the reduce-scatters of n chunks, the n after them the all-gathers.
using Job = std::uint32_t;

// Heads and tails of jobs, true or sharpened by a branch.
struct Windows {
  std::vector<double> head, tail;
};

struct Sequence {
  std::vector<Job> jobs;
  std::vector<double> begin;  // by position
};

// A job that waits to begin, and its urgency.
struct Waiting {
  double key;
  Job job;
};
struct LaterFirst {
  bool operator()(const Waiting& a, const Waiting& b) const {
    return a.key != b.key ? a.key > b.key : a.job > b.job;
  }
};
struct ShorterTailLast {
  bool operator()(const Waiting& a, const Waiting& b) const {
    return a.key != b.key ? a.key < b.key : a.job > b.job;
  }
};
using Earliest = std::priority_queue<Waiting, std::vector<Waiting>, LaterFirst>;
using MostUrgent = std::priority_queue<Waiting, std::vector<Waiting>, ShorterTailLast>;

class Sequencer {
 public:
  Sequencer(const std::vector<TimedChunk>& chunks, double compute_seconds)
      : chunks_(chunks), count_(static_cast<Job>(chunks.size())), compute_seconds_(compute_seconds) {}

  [[nodiscard]] Windows windows() const {
    Windows windows{std::vector<double>(2 * count_), std::vector<double>(2 * count_)};
    for (Job chunk = 0; chunk < count_; ++chunk) {
      windows.head[chunk] = chunks_[chunk].ready;
      windows.tail[count_ + chunk] = chunks_[chunk].forward_left;
    }
    sharpen(windows);
    return windows;
  }

  // Jackson's preemptive schedule.
  [[nodiscard]] double least(const Windows& windows) const {
    Earliest coming;
    for (Job job = 0; job < 2 * count_; ++job) coming.push({windows.head[job], job});
    MostUrgent ready;
    std::vector<double> left(2 * count_);
    for (Job job = 0; job < 2 * count_; ++job) left[job] = seconds_of(job);
    double now = 0, seconds = compute_seconds_;
    while (!coming.empty() || !ready.empty()) {
      if (ready.empty()) now = std::max(now, coming.top().key);
      for (; !coming.empty() && coming.top().key <= now; coming.pop())
        ready.push({windows.tail[coming.top().job], coming.top().job});
      const Job job = ready.top().job;
      const double until = coming.empty() ? kInfinity : coming.top().key;
      if (now + left[job] > until) {
        left[job] -= until - now;
        now = until;
        continue;
      }
      ready.pop();
      now += left[job];
      seconds = std::max(seconds, now + windows.tail[job]);
    }
    return seconds;
  }

  // The sequence in which always the job with the longest tail goes next, of those that may begin.
  [[nodiscard]] Sequence by_tails(const Windows& windows) const {
    Earliest coming;
    for (Job chunk = 0; chunk < count_; ++chunk) coming.push({windows.head[chunk], chunk});
    MostUrgent ready;
    Sequence sequence;
    double now = 0, updated = 0;
    while (!coming.empty() || !ready.empty()) {
      if (ready.empty()) now = std::max(now, coming.top().key);
      for (; !coming.empty() && coming.top().key <= now; coming.pop())
        ready.push({windows.tail[coming.top().job], coming.top().job});
      const Job job = ready.top().job;
      ready.pop();
      sequence.jobs.push_back(job);
      sequence.begin.push_back(now);
      now += seconds_of(job);
      if (job >= count_) continue;
      updated = std::max(updated, now) + chunks_[job].update;
      coming.push({std::max(updated, windows.head[count_ + job]), count_ + job});
    }
    return sequence;
  }

  // The order with the same transfers, the quicker of two orders of updates, and no waits but those for data.
  [[nodiscard]] EagerOrder order_of(const std::vector<Job>& jobs) const {
    EagerOrder by_scatters, by_gathers;
    for (const Job job : jobs) {
      const Job chunk = job % count_;
      by_gathers.network.push_back({chunk, job < count_ ? Half::scatter : Half::gather});
      (job < count_ ? by_scatters : by_gathers).updates.push_back(chunk);
    }
    by_scatters.network = by_gathers.network;
    by_gathers.seconds = play(by_gathers);
    by_scatters.seconds = play(by_scatters);
    return by_scatters.seconds < by_gathers.seconds ? by_scatters : by_gathers;
  }

  [[nodiscard]] double play(const EagerOrder& order) const {
    std::vector<double> scattered(count_, kInfinity), whole(count_, kInfinity);
    double network = 0, updater = 0, seconds = compute_seconds_;
    std::size_t next_update = 0;
    for (const auto& [chunk, half] : order.network) {
      const TimedChunk& of = chunks_[chunk];
      if (half == Half::scatter) {
        network = std::max(network, of.ready) + of.scatter;
        scattered[chunk] = network;
        continue;
      }
      for (; whole[chunk] == kInfinity; ++next_update) {
        const std::uint32_t next = order.updates[next_update];
        updater = std::max(updater, scattered[next]) + chunks_[next].update;
        whole[next] = updater;
      }
      network = std::max(network, whole[chunk]) + of.gather;
      seconds = std::max(seconds, network + of.forward_left);
    }
    return seconds;
  }

  // The better of the orders of dear and wfbp.
  [[nodiscard]] EagerOrder known() const {
    std::vector<Job> phases, pairs;
    for (Job chunk = count_; chunk-- > 0;) {
      phases.push_back(chunk);
      pairs.push_back(chunk);
      pairs.push_back(count_ + chunk);
    }
    for (Job chunk = 0; chunk < count_; ++chunk) phases.push_back(count_ + chunk);
    EagerOrder dear = order_of(phases), wfbp = order_of(pairs);
    return wfbp.seconds < dear.seconds * (1 - kLeastGain) ? wfbp : dear;
  }

  // See [Note: an order for the network].
  [[nodiscard]] EagerOrder improved(EagerOrder best) const {
    std::vector<Windows> open{windows()};
    const double least_of_all = least(open.front());
    const std::size_t branches =
        std::clamp(kBranchesTimesChunks / std::max<std::size_t>(count_, 1), kFewestBranches, kMostBranches);
    for (std::size_t tried = 0; tried < branches && !open.empty(); ++tried) {
      if (best.seconds <= least_of_all * (1 + kLeastGain)) break;
      const Windows windows = std::move(open.back());
      open.pop_back();
      if (least(windows) >= best.seconds * (1 - kLeastGain)) continue;
      const Sequence sequence = by_tails(windows);
      EagerOrder order = order_of(sequence.jobs);
      if (order.seconds < best.seconds * (1 - kLeastGain)) best = std::move(order);
      branch(windows, sequence, open);
    }
    return best.seconds > least_of_all * (1 + kLeastGain) ? with_moves(std::move(best)) : best;
  }

 private:
  // Moves single transfers a little earlier or later as long as that helps, because branching does not see
  // waits for updates.
  [[nodiscard]] EagerOrder with_moves(EagerOrder best) const {
    const std::size_t size = best.network.size();
    if (size * size * kFarthestMove > kMostPlayed) return best;
    for (std::size_t played = 0, from = 0, unchanged = 0; played < kMostPlayed && unchanged < size;
         from = (from + 1) % size) {
      ++unchanged;
      for (std::size_t to = from - std::min(from, kFarthestMove);
           to <= std::min(from + kFarthestMove, size - 1); ++to) {
        EagerOrder moved = with_move(best.network, from, to);
        played += size;
        if (moved.seconds >= best.seconds * (1 - kLeastGain)) continue;
        best = std::move(moved);
        unchanged = 0;
      }
    }
    return best;
  }

  // With infinite seconds if a gather would come before its reduce-scatter.
  [[nodiscard]] EagerOrder with_move(const std::vector<HalfTransfer>& network, std::size_t from,
                                     std::size_t to) const {
    std::vector<Job> jobs;
    std::vector<bool> scattered(count_, false);
    for (const auto& [chunk, half] : network) jobs.push_back(half == Half::scatter ? chunk : count_ + chunk);
    const auto at = [&](std::size_t position) {
      return jobs.begin() + static_cast<std::ptrdiff_t>(position);
    };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    if (to < from) std::rotate(at(to), at(from), at(from + 1));
    for (const Job job : jobs) {
      if (job >= count_ && !scattered[job - count_])
        return {.network = {}, .updates = {}, .seconds = kInfinity};
      if (job < count_) scattered[job] = true;
    }
    return order_of(jobs);
  }

  [[nodiscard]] double seconds_of(Job job) const {
    return job < count_ ? chunks_[job].scatter : chunks_[job - count_].gather;
  }

  // An all-gather begins after its reduce-scatter and the update, so the window of each limits that of the
  // other.
  void sharpen(Windows& windows) const {
    for (Job chunk = 0; chunk < count_; ++chunk) {
      const TimedChunk& of = chunks_[chunk];
      double& gather_head = windows.head[count_ + chunk];
      double& scatter_tail = windows.tail[chunk];
      gather_head = std::max(gather_head, windows.head[chunk] + of.scatter + of.update);
      scatter_tail = std::max(scatter_tail, windows.tail[count_ + chunk] + of.gather + of.update);
    }
  }

  // The jobs that make the sequence as long as it is form a run without a gap; where the first of them waited
  // for an update, its reduce-scatter ends another run before. The last job that is less urgent than the
  // final job of its run delays all jobs between the two: it goes behind these, or before all of them.
  void branch(const Windows& windows, const Sequence& sequence, std::vector<Windows>& open) const {
    const std::vector<Job>& jobs = sequence.jobs;
    const auto end_of = [&](std::size_t at) { return sequence.begin[at] + seconds_of(jobs[at]); };
    std::size_t last = 0;
    for (std::size_t at = 1; at < jobs.size(); ++at)
      if (end_of(at) + windows.tail[jobs[at]] > end_of(last) + windows.tail[jobs[last]]) last = at;
    for (;;) {
      const auto urgent = [&](std::size_t at) { return windows.tail[jobs[at]] >= windows.tail[jobs[last]]; };
      std::size_t holding = last;
      while (holding > 0 && urgent(holding) && sequence.begin[holding] <= end_of(holding - 1)) --holding;
      if (!urgent(holding)) return branch_on(windows, jobs, holding, last, open);
      const Job first = jobs[holding];
      if (first < count_ || sequence.begin[holding] <= windows.head[first]) return;
      last = static_cast<std::size_t>(std::find(jobs.begin(), jobs.end(), first - count_) - jobs.begin());
    }
  }

  void branch_on(const Windows& windows, const std::vector<Job>& jobs, std::size_t holding, std::size_t last,
                 std::vector<Windows>& open) const {
    double held_seconds = 0, held_head = kInfinity;
    for (std::size_t at = holding + 1; at <= last; ++at) {
      held_seconds += seconds_of(jobs[at]);
      held_head = std::min(held_head, windows.head[jobs[at]]);
    }
    Windows before = windows;
    double& tail = before.tail[jobs[holding]];
    tail = std::max(tail, held_seconds + windows.tail[jobs[last]]);
    sharpen(before);
    Windows behind = windows;
    double& head = behind.head[jobs[holding]];
    head = std::max(head, held_head + held_seconds);
    sharpen(behind);
    open.push_back(std::move(before));
    open.push_back(std::move(behind));  // taken first
  }

  const std::vector<TimedChunk>& chunks_;
  const Job count_;
  const double compute_seconds_;
};

}  // namespace

EagerOrder eager_order(const std::vector<TimedChunk>& chunks, double compute_seconds) {
  const Sequencer sequencer(chunks, compute_seconds);
  return sequencer.improved(sequencer.known());
}

double quick_eager_seconds(const std::vector<TimedChunk>& chunks, double compute_seconds) {
  const Sequencer sequencer(chunks, compute_seconds);
  return std::min(sequencer.known().seconds,
                  sequencer.order_of(sequencer.by_tails(sequencer.windows()).jobs).seconds);
}

double seconds_of(const EagerOrder& order, const std::vector<TimedChunk>& chunks, double compute_seconds) {
  return Sequencer(chunks, compute_seconds).play(order);
}

double least_seconds(const std::vector<TimedChunk>& chunks, double compute_seconds) {
  const Sequencer sequencer(chunks, compute_seconds);
  return sequencer.least(sequencer.windows());
}

}  // namespace dear::fusion
