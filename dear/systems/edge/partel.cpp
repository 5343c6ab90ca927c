#include "dear/systems/edge/partel.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/systems/edge/messages.h"

namespace dear::systems::edge {
namespace {

using channels::Transfer;
using methods::edge::Worker;

constexpr double kIdle = 1e12;  // bytes a second of links that carry nothing

// A worker as a rank.
struct Place {
  int group = 0, worker = 0;
  Range units;  // of its block
  Range samples;
};

Place place_of(const PartelJob& job, int rank) {
  const auto workers = static_cast<int>(job.problem.groups.front().size());
  const int group = (rank - 1) / workers, worker = (rank - 1) % workers;
  const auto begin = std::accumulate(job.plan.whole.begin(), job.plan.whole.begin() + group, std::int64_t{0});
  return {.group = group,
          .worker = worker,
          .units = {.begin = begin, .end = begin + job.plan.whole[index_of(group)]},
          .samples = job.task.part(worker)};
}

const Worker& worker_of(const PartelJob& job, const Place& place) {
  return job.problem.groups[index_of(place.group)][index_of(place.worker)];
}

// Seconds of a block over the band of a worker.
double air_seconds(const PartelJob& job, const Place& place, double efficiency, double bandwidth_hz) {
  return static_cast<double>(place.units.size()) * job.problem.bits_per_parameter /
         (bandwidth_hz * efficiency);
}

std::int64_t bytes_of(std::int64_t numbers) { return numbers * static_cast<std::int64_t>(sizeof(double)); }

void work(const PartelJob& job, const BlockTask& task, int rank, Messages& messages) {
  const Place place = place_of(job, rank);
  if (place.units.empty()) return;
  const std::int64_t block = place.units.size() * task.width();
  const Worker& worker = worker_of(job, place);
  const std::chrono::duration<double> computes(worker.cycles_per_parameter *
                                               static_cast<double>(place.units.size()) / worker.frequency_hz);
  auto& blocks = messages.make(Transfer::Direction::receive, 0, block + place.samples.size());
  auto& gradient = messages.make(Transfer::Direction::send, 0, block);
  for (int iteration = 0; iteration < job.iterations; ++iteration) {
    messages.start(blocks);
    messages.finish(blocks, fmt::format("wait for the block of iteration {}", iteration));
    const auto until = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(computes);
    const std::span<const double> came = blocks.numbers;
    task.gradient(place.samples, place.units, came.first(static_cast<std::size_t>(block)),
                  came.subspan(static_cast<std::size_t>(block)), gradient.numbers);
    std::this_thread::sleep_until(until);
    messages.start(gradient);
    messages.finish(gradient, fmt::format("send the gradient of iteration {}", iteration));
  }
}

struct Served {
  Place place;
  Message *block = nullptr, *gradient = nullptr;
  std::vector<double> seconds;
};

// Sends blocks and margins, and returns when all gradients are there; how long that took.
double exchange(std::vector<Served>& workers, const BlockTask& task, const std::vector<double>& model,
                Messages& messages, int iteration) {
  for (Served& one : workers) {
    const auto block = static_cast<std::size_t>(one.place.units.size() * task.width());
    const auto from = model.begin() + one.place.units.begin * task.width();
    std::copy_n(from, block, one.block->numbers.begin());
    const std::vector<double> margins = task.margins(one.place.samples, model);
    std::copy(margins.begin(), margins.end(),
              one.block->numbers.begin() + static_cast<std::ptrdiff_t>(block));
  }
  const double begin = now_seconds();
  for (Served& one : workers) {
    messages.start(*one.block);
    messages.start(*one.gradient);
  }
  const std::string what = fmt::format("wait for the gradients of iteration {}", iteration);
  std::vector<bool> came(workers.size());
  for (std::size_t left = workers.size(); left > 0;) {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (came[i] || !workers[i].gradient->transfer.done) continue;
      came[i] = true;
      workers[i].seconds.push_back(now_seconds() - begin);
      --left;
    }
    if (left > 0) messages.wait(what);
  }
  const double seconds = now_seconds() - begin;
  for (const Served& one : workers) messages.finish(*one.block, what);
  return seconds;
}

PartelTrained serve(const PartelJob& job, const BlockTask& task, Messages& messages,
                    const std::function<void(int done, double loss)>& stepped) {
  std::vector<Served> workers;
  for (int rank = 1; rank < job.ranks(); ++rank) {
    const Place place = place_of(job, rank);
    if (place.units.empty()) continue;
    const std::int64_t block = place.units.size() * task.width();
    workers.push_back({.place = place,
                       .block = &messages.make(Transfer::Direction::send, rank, block + place.samples.size()),
                       .gradient = &messages.make(Transfer::Direction::receive, rank, block),
                       .seconds = {}});
  }
  std::vector<double> model = task.start(), central = model;
  PartelTrained trained{.losses = {task.loss(model)}};
  for (int iteration = 0; iteration < job.iterations; ++iteration) {
    trained.seconds.push_back(exchange(workers, task, model, messages, iteration));
    std::vector<double> gradient(model.size());
    for (const Served& one : workers)
      for (std::size_t i = 0; i < one.gradient->numbers.size(); ++i)
        gradient[static_cast<std::size_t>(one.place.units.begin * task.width()) + i] +=
            one.gradient->numbers[i];
    const std::vector<double> whole = task.whole_gradient(central);
    double largest = 0, apart = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      model[i] -= job.step_size * (gradient[i] + job.task.ridge * model[i]);
      central[i] -= job.step_size * whole[i];
      largest = std::max(largest, std::abs(central[i]));
      apart = std::max(apart, std::abs(model[i] - central[i]));
    }
    trained.difference = std::max(trained.difference, largest > 0 ? apart / largest : apart);
    trained.losses.push_back(task.loss(model));
    if (stepped) stepped(iteration + 1, trained.losses.back());
  }
  for (const std::vector<Worker>& group : job.problem.groups)
    trained.worker_seconds.emplace_back(group.size());
  for (const Served& one : workers)
    trained.worker_seconds[index_of(one.place.group)][index_of(one.place.worker)] =
        spread_of(one.seconds).median;
  return trained;
}

}  // namespace

int PartelJob::ranks() const {
  return 1 + static_cast<int>(problem.groups.size() * problem.groups.front().size());
}

PairCluster channels_of(const PartelJob& job) {
  const BlockTask task(job.task);
  const auto ranks = index_of(job.ranks());
  PairCluster cluster{.name = "channels of a cell",
                      .bytes_per_second = PairCluster::Matrix(ranks, std::vector<double>(ranks, kIdle)),
                      .latency_seconds = PairCluster::Matrix(ranks, std::vector<double>(ranks, 0.0))};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    cluster.devices.push_back({.name = rank == 0 ? "server" : fmt::format("worker {}", rank - 1),
                               .flops_per_second = 1e12,
                               .memory_bytes = std::int64_t{1} << 40});
    cluster.bytes_per_second[rank][rank] = 0;
    if (rank == 0) continue;
    const Place place = place_of(job, static_cast<int>(rank));
    if (place.units.empty()) continue;
    const Worker& worker = worker_of(job, place);
    const methods::edge::Bandwidth& band = job.plan.bandwidth[index_of(place.group)][index_of(place.worker)];
    const std::int64_t block = place.units.size() * task.width();
    cluster.bytes_per_second[0][rank] = static_cast<double>(bytes_of(block + place.samples.size())) /
                                        air_seconds(job, place, worker.efficiency_down, band.down_hz);
    cluster.bytes_per_second[rank][0] =
        static_cast<double>(bytes_of(block)) / air_seconds(job, place, worker.efficiency_up, band.up_hz);
    cluster.latency_seconds[0][rank] = worker.overhead_seconds;
  }
  return cluster;
}

PartelTrained train_partel(const PartelJob& job, const Group& group,
                           const std::function<void(int done, double loss)>& stepped) {
  const BlockTask task(job.task);
  if (group.size() != job.ranks())
    throw ConfigError(fmt::format("{} ranks train what {} groups of {} workers and a server do: start {}",
                                  group.size(), job.problem.groups.size(), job.problem.groups.front().size(),
                                  job.ranks()));
  if (job.task.parts != static_cast<int>(job.problem.groups.front().size()) ||
      std::accumulate(job.plan.whole.begin(), job.plan.whole.end(), std::int64_t{0}) != job.task.units)
    throw ConfigError(
        fmt::format("the plan is not of this task: it is to share {} units among groups, and the samples "
                    "among {} workers",
                    job.task.units, job.task.parts));
  Messages messages(group.open_channels(1), group.timeout());
  if (group.rank() == 0) return serve(job, task, messages, stepped);
  work(job, task, group.rank(), messages);
  return {};
}

}  // namespace dear::systems::edge
