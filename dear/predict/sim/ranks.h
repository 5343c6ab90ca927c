#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dear/platform/cluster/cluster.h"
#include "dear/predict/sim/network_model.h"
#include "dear/predict/sim/variation.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/policies/schedule.h"

namespace dear::sim {

// The times of several ranks that run one graph over one network. A rank's own steps take what `own_seconds`
// says; its collectives end when the network says so.
struct RanksResult {
  // [rank][iteration]: when its commit ended.
  std::vector<std::vector<double>> commit_seconds;
  std::vector<conductor::StepSpan> spans;  // of rank 0, in order of completion
};
using OwnSeconds = std::function<double(int rank, Instance which)>;
// `start_seconds`, by rank: when its first step begins; 0 for all when empty. With interference the network
// is slower as long as any rank computes, since collectives go at the pace of the slowest, and all ranks
// compute more slowly as long as anything is on the network: what ranks that do alike take from each other.
// A codec that shares what the program computes with takes turns with it: their steps run one after the
// other, whole, in the order in which they could begin; of those of one moment the codec's first. Updates
// that share it interrupt: they begin at once, and what runs meanwhile ends so much later.
RanksResult drive_ranks(const Schedule& schedule, std::int64_t iterations, int ranks,
                        const OwnSeconds& own_seconds, NetworkModel& network,
                        const std::vector<double>& start_seconds = {}, const Interference& interference = {},
                        const SharedCompute& shared = {});

// RanksJob is a graph of any work, as several ranks run it.
struct RanksJob {
  const Graph& graph;
  std::vector<bool> communicates;  // by step: a collective of the network
  StepId commit = 0;               // the step whose ends RanksResult::commit_seconds tells
  // Whether a step and others like it run one after the other, in the order in which they could begin; those
  // of one moment that go first before the others. One that interrupts begins at once, and the others that
  // run or wait end so much later. By step; empty where none does.
  enum class Turns : std::uint8_t { none, takes, goes_first, interrupts };
  std::vector<Turns> turns{};
};
RanksResult drive_ranks(const RanksJob& job, std::int64_t iterations, int ranks,
                        const OwnSeconds& own_seconds, NetworkModel& network,
                        const std::vector<double>& start_seconds = {}, const Interference& interference = {});

}  // namespace dear::sim
