#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "dear/fabric/rounds.h"
#include "dear/fabric/topology.h"
#include "dear/fabric/traffic.h"
#include "dear/sim/jobs.h"
#include "dear/sim/network_model.h"

namespace dear::sim {

// What a collective of a schedule puts on the network.
struct Transport {
  std::shared_ptr<const fabric::Rounds> rounds;
  double bytes = 0;             // of the whole vector
  double start_up_seconds = 0;  // before its first message
};
using TransportOf = std::function<Transport(const Communicate& what)>;

// A collective as one round: each rank sends all that it sends around a ring to the next one at once; in a
// broadcast, which is a chain from rank 0, the whole vector.
std::shared_ptr<const fabric::Rounds> one_flow_rounds(algorithm::Collective collective, int ranks);

// Collectives as messages that share links, those of one lane with another's. Ranks enter one by one and
// leave one by one.
class FabricNetwork final : public NetworkModel {
 public:
  // The topology outlives the model. Its ranks are those of `jobs`; collectives are of one job's members.
  FabricNetwork(const fabric::Topology& topology, TransportOf transport_of, Jobs jobs = {})
      : traffic_(topology), ranks_(topology.ranks()), jobs_(jobs), transport_of_(std::move(transport_of)) {}

  void enter(const Visit& visit, const Communicate& what, double now_seconds) override;
  [[nodiscard]] double next_seconds() override;
  void advance(std::vector<Visit>& through) override;

  [[nodiscard]] std::uint64_t messages() const { return traffic_.messages(); }

 private:
  struct Open {
    fabric::CollectiveId id = 0;
    double start_up_seconds = 0;
  };
  using Key = std::pair<Instance, int>;  // and the job

  fabric::Traffic traffic_;
  int ranks_;
  Jobs jobs_;
  TransportOf transport_of_;
  std::map<Key, Open> open_;
  std::map<fabric::CollectiveId, Key> keys_;
};

}  // namespace dear::sim
