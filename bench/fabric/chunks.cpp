// bench_fabric_chunks: how long it takes to play an all-reduce of 1 GB in chunks message by message, on the
// networks of 1024 ranks on which Themis was evaluated. Where ranks keep in step one line stands for all; the
// last rank comes a picosecond late in the other column, and every message of every rank is played. Verifies
// both against the times of the planner, which are chunk by chunk.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/fabric/chunk_play.h"

namespace {

using dear::Cluster;
using dear::algorithm::ChunkPlan;
using dear::fabric::PlayedChunks;

constexpr std::int64_t kBytes = 1'000'000'000;

std::pair<PlayedChunks, double> timed(const ChunkPlan& plan, const Cluster& cluster, double late_seconds) {
  std::vector<double> enter(static_cast<std::size_t>(cluster.ranks()), 0);
  enter.back() = late_seconds;
  const auto begin = std::chrono::steady_clock::now();
  PlayedChunks played = dear::fabric::play(plan, cluster, {.enter_seconds = std::move(enter)});
  return {std::move(played), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

bool play_both(const Cluster& cluster) {
  const auto [plan, seconds] =
      dear::cost::make_chunk_plan(cluster, dear::Collective::all_reduce, kBytes, {.algorithm = "themis-scf"});
  const auto [in_step, in_step_took] = timed(plan, cluster, 0);
  const auto [each, each_took] = timed(plan, cluster, 1e-12);
  const auto right = [&, expected = seconds](const PlayedChunks& played) {
    return std::abs(played.seconds - expected) <= 1e-6 * expected;
  };
  const bool both = right(in_step) && right(each);
  fmt::print(
      "{:<32} {:>6} {:>9} {:>11.4f} {:>10.2f} {:>10.2f} {}\n", cluster.name, plan.chunks(), each.messages,
      in_step_took, each_took, static_cast<double>(each.messages) / each_took / 1e6,
      both ? ""
           : fmt::format("WRONG: {} s and {} s instead of {} s", in_step.seconds, each.seconds, seconds));
  return both;
}

}  // namespace

int main() {
  fmt::print("{:<32} {:>6} {:>9} {:>11} {:>10} {:>10}\n", "network", "chunks", "messages", "in step (s)",
             "each (s)", "million/s");
  bool right = true;
  for (const dear::ClusterPreset& preset : dear::clusters()) {
    if (preset.cluster.name.starts_with("themis")) right = play_both(preset.cluster) && right;
  }
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
