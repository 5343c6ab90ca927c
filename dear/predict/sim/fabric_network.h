#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "dear/platform/fabric/chunk_traffic.h"
#include "dear/platform/fabric/rounds.h"
#include "dear/platform/fabric/topology.h"
#include "dear/platform/fabric/traffic.h"
#include "dear/predict/sim/network_model.h"
#include "dear/predict/sim/teams.h"

namespace dear::sim {

// The load that a collective of a schedule puts on the network: rounds, or chunks where there are any.
struct Transport {
  std::shared_ptr<const fabric::Rounds> rounds;
  double bytes = 0;  // of the whole vector, for rounds
  std::shared_ptr<const fabric::ChunkPhases> chunks{};
  double start_up_seconds = 0;  // before its first message
};
// By step that communicates: its load, and the ranks that take part in it.
using TransportOf = std::function<Transport(StepId step)>;
using GroupOf = std::function<ProcessGroup(StepId step)>;

// A collective as one round: each rank sends all that it sends around a ring to the next one at once; in a
// broadcast, which is a chain from rank 0, the whole vector.
std::shared_ptr<const fabric::Rounds> one_flow_rounds(Collective collective, int ranks);

// Collectives as messages that share links, those of one lane with another's. Ranks enter one by one and
// leave one by one.
class FabricNetwork final : public NetworkModel {
 public:
  // The topology outlives the model, and all its ranks are in `teams`, of which each has collectives of its
  // own.
  FabricNetwork(const fabric::Topology& topology, TransportOf transport_of, GroupOf group_of, Teams teams)
      : traffic_(topology),
        teams_(teams),
        transport_of_(std::move(transport_of)),
        group_of_(std::move(group_of)) {}
  // All ranks take part in each collective.
  FabricNetwork(const fabric::Topology& topology, TransportOf transport_of)
      : FabricNetwork(topology, std::move(transport_of), [](StepId) { return ProcessGroup::all; },
                      {.ranks = topology.ranks()}) {}

  void enter(const Visit& visit, double now_seconds) override;
  [[nodiscard]] double next_seconds() override;
  void advance(std::vector<Visit>& through) override;

  [[nodiscard]] std::uint64_t messages() const { return traffic_.messages(); }

 private:
  struct Open {
    fabric::CollectiveId id = 0;
    Team team{};
    double start_up_seconds = 0;
    std::unique_ptr<fabric::ChunkTraffic> chunks{};  // instead of an id
  };
  using Key = std::pair<Instance, int>;  // and the first rank of the team

  fabric::Traffic traffic_;
  Teams teams_;
  TransportOf transport_of_;
  GroupOf group_of_;
  std::map<Key, Open> open_;
  std::map<fabric::CollectiveId, Key> keys_;
};

}  // namespace dear::sim
