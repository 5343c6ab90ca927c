#include "chunk_judge.h"

#include "engine.h"
#include <algorithm>
#include <map>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace dear::judge {
namespace {

namespace s4u = simgrid::s4u;
using algorithm::ChunkPhase;
using algorithm::ChunkPlan;

std::size_t index(int number) { return static_cast<std::size_t>(number); }

// The links of one dimension, built here from the numbers alone: DeAR's own routes are what is judged. Lists
// of links are by rank, or by link of a member above.
struct Network {
  Wire wire;
  int ranks_of_member = 1;
  std::vector<s4u::Link*> out;                      // to the switch, or to the next in a ring
  std::vector<s4u::Link*> in;                       // from the switch, or to the previous in a ring
  std::map<std::pair<int, int>, s4u::Link*> pairs;  // of a mesh
  s4u::Link* start_up = nullptr;

  [[nodiscard]] int member(int rank) const { return rank / ranks_of_member % wire.size; }
  [[nodiscard]] std::size_t port(int rank) const {
    if (wire.links_above == 0) return index(rank);
    const int of_member = rank / ranks_of_member * wire.links_above;
    return index(of_member + rank % ranks_of_member % wire.links_above);
  }
};

class Networks {
 public:
  explicit Networks(const std::vector<Wire>& wires) : zone_(make_world()) {
    for (const Wire& wire : wires) {
      Network& network = networks_.emplace_back();
      network.wire = wire;
      network.ranks_of_member = ranks_;
      ranks_ *= wire.size;
    }
    for (int rank = 0; rank < ranks_; ++rank)
      hosts_.push_back(zone_->create_host(fmt::format("rank {}", rank), 1e9));
    for (std::size_t dimension = 0; dimension < networks_.size(); ++dimension) make_links(dimension);
    for (std::size_t dimension = 0; dimension < networks_.size(); ++dimension) {
      const Network& network = networks_[dimension];
      for (int from = 0; from < ranks_; ++from) {
        for (int to = 0; to < ranks_; ++to) {
          const int apart = (network.member(to) - network.member(from)) * network.ranks_of_member;
          if (from != to && to == from + apart)
            zone_->add_route(hosts_[index(from)]->get_netpoint(), hosts_[index(to)]->get_netpoint(), nullptr,
                             nullptr, route(dimension, from, to), false);
        }
      }
    }
    zone_->seal();
  }

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] s4u::Host* host(int rank) const { return hosts_.at(index(rank)); }

 private:
  void make_links(std::size_t dimension) {
    Network& network = networks_[dimension];
    const double capacity = 1 / network.wire.link.beta_seconds_per_byte;
    const auto link = [&](const std::string& name) {
      return zone_->create_link(fmt::format("{}: {}", dimension, name), capacity)->seal();
    };
    network.start_up =
        start_up_link(zone_, fmt::format("{}: start-up", dimension), network.wire.link.alpha_seconds);
    if (network.wire.wiring == Wiring::full_mesh) {
      for (int rank = 0; rank < ranks_; ++rank) {
        for (int member = 0; member < network.wire.size; ++member)
          network.pairs[{rank, member}] = link(fmt::format("{} to member {}", rank, member));
      }
      return;
    }
    const int ports =
        network.wire.links_above == 0 ? ranks_ : ranks_ / network.ranks_of_member * network.wire.links_above;
    for (int port = 0; port < ports; ++port) {
      network.out.push_back(link(fmt::format("{} out", port)));
      network.in.push_back(link(fmt::format("{} in", port)));
    }
  }

  [[nodiscard]] std::vector<s4u::LinkInRoute> route(std::size_t dimension, int from, int to) const {
    const Network& network = networks_[dimension];
    std::vector<s4u::LinkInRoute> links;
    const int ahead = (network.member(to) - network.member(from) + network.wire.size) % network.wire.size;
    if (network.wire.wiring == Wiring::full_mesh) {
      links.emplace_back(network.pairs.at({from, network.member(to)}));
    } else if (network.wire.wiring == Wiring::ring) {
      const bool forward = 2 * ahead <= network.wire.size;
      const int first = from - network.member(from) * network.ranks_of_member;
      for (int member = network.member(from); member != network.member(to);
           member = (member + (forward ? 1 : network.wire.size - 1)) % network.wire.size) {
        const auto at = index(first + member * network.ranks_of_member);
        links.emplace_back(forward ? network.out.at(at) : network.in.at(at));
      }
    } else {
      // Through the switches that this one stands above, as well.
      std::size_t lowest = dimension;
      while (networks_[lowest].wire.links_above > 0) --lowest;
      for (std::size_t at = lowest; at <= dimension; ++at) {
        links.emplace_back(networks_[at].out.at(networks_[at].port(from)));
        links.emplace_back(networks_[at].in.at(networks_[at].port(to)));
      }
    }
    links.emplace_back(network.start_up);
    return links;
  }

  s4u::NetZone* zone_;
  int ranks_ = 1;
  std::vector<Network> networks_;
  std::vector<s4u::Host*> hosts_;
};

s4u::Mailbox* mailbox(ChunkPhase phase, int from, int to) {
  return s4u::Mailbox::by_name(fmt::format("{}, {}: {} to {}", phase.chunk, phase.step, from, to));
}

void run_phase(const ChunkPlan& plan, ChunkPhase phase, int rank) {
  static int payload = 0;
  const int dimension = plan.dimension_of(phase);
  const std::vector<int> line = plan.grid.line(rank, dimension);
  const auto self = index(plan.grid.coordinate(rank, dimension));
  const algorithm::Program program = algorithm::line_program(
      plan.algorithms[index(dimension)], plan.collective_of(phase), static_cast<int>(line.size()));
  const double block_bytes = plan.bytes_of(phase) / program.blocks;
  for (const std::vector<algorithm::Part>& round : program.rounds) {
    const algorithm::Part& part = round[self];
    std::vector<s4u::CommPtr> messages;
    std::vector<void*> received(part.receives.size() + part.reduces.size());
    for (const algorithm::BlockMessage& message : part.sends) {
      double blocks = 0;
      for (const Range& range : message.blocks) blocks += range.size();
      messages.push_back(mailbox(phase, rank, line[index(message.peer)])
                             ->put_async(&payload, static_cast<std::uint64_t>(blocks * block_bytes + 0.5)));
    }
    std::size_t slot = 0;
    for (const auto* expected : {&part.receives, &part.reduces}) {
      for (const algorithm::BlockMessage& message : *expected)
        messages.push_back(mailbox(phase, line[index(message.peer)], rank)->get_async(&received.at(slot++)));
    }
    s4u::Comm::wait_all(messages);
  }
}

}  // namespace

Cluster cluster_of(const std::vector<Wire>& wires) {
  Cluster cluster{.name = "wires"};
  int ranks = 1;
  for (const Wire& wire : wires) {
    cluster.dimensions.push_back({.name = "dimension",
                                  .size = wire.size,
                                  .wiring = wire.wiring,
                                  .link = wire.link,
                                  .links = wire.links_above == 0 ? ranks : wire.links_above,
                                  .beside = wire.links_above == 0});
    ranks *= wire.size;
  }
  return cluster;
}

std::vector<double> simgrid_chunk_seconds(const ChunkPlan& plan, const std::vector<Wire>& wires,
                                          const std::vector<double>& enter_seconds) {
  return in_a_process(index(plan.grid.ranks()), [&](s4u::Engine& engine) {
    const Networks world(wires);
    std::vector<double> ends = enter_seconds;
    // Of a rank's steps, by chunk: released when the step is through.
    std::map<std::pair<int, std::pair<int, int>>, s4u::SemaphorePtr> through;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      for (int chunk = 0; chunk < plan.chunks(); ++chunk) {
        for (int step = 0; step < plan.steps(); ++step)
          through[{rank, {chunk, step}}] = s4u::Semaphore::create(0);
      }
      for (const std::vector<ChunkPhase>& service : plan.service) {
        s4u::Actor::create("lane", world.host(rank), [&, rank, phases = &service] {
          s4u::this_actor::sleep_until(enter_seconds[index(rank)]);
          for (const ChunkPhase& phase : *phases) {
            if (phase.step > 0) through.at({rank, {phase.chunk, phase.step - 1}})->acquire();
            run_phase(plan, phase, rank);
            through.at({rank, {phase.chunk, phase.step}})->release();
            ends[index(rank)] = std::max(ends[index(rank)], s4u::Engine::get_clock());
          }
        });
      }
    }
    engine.run();
    return ends;
  });
}

}  // namespace dear::judge
