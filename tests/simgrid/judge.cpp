#include "judge.h"

#include "engine.h"
#include <algorithm>
#include <simgrid/s4u.hpp>
#include <vector>

#include <fmt/format.h>

namespace dear::judge {
namespace {

namespace s4u = simgrid::s4u;

// A link of each kind for every rank and node, built here from the numbers alone: DeAR's own routes are what
// is judged.
class World {
 public:
  explicit World(const Platform& platform) : platform_(platform), zone_(make_world()) {
    const int ranks = platform.nodes * platform.ranks_per_node;
    const double inside = 1 / platform.inside.beta_seconds_per_byte;
    const double across = 1 / platform.across.beta_seconds_per_byte;
    for (int rank = 0; rank < ranks; ++rank)
      hosts_.push_back(zone_->create_host(fmt::format("rank {}", rank), 1e9));
    if (platform.ranks_per_node > 1) make_ports("rank", ranks, inside, rank_up_, rank_down_);
    if (platform.nodes > 1)
      make_ports("node", platform.nodes * platform.links_per_node, across, node_up_, node_down_);
    if (platform.oversubscription > 1)
      core_ = zone_
                  ->create_link("core",
                                across * platform.nodes * platform.links_per_node / platform.oversubscription)
                  ->seal();
    start_up_inside_ = start_up_link(zone_, "start-up inside", platform.inside.alpha_seconds);
    start_up_across_ = start_up_link(zone_, "start-up across", platform.across.alpha_seconds);
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from != to)
          zone_->add_route(host(from)->get_netpoint(), host(to)->get_netpoint(), nullptr, nullptr,
                           route(from, to), false);
      }
    }
    zone_->seal();
  }

  [[nodiscard]] s4u::Host* host(int rank) const { return hosts_.at(static_cast<std::size_t>(rank)); }

 private:
  using Links = std::vector<s4u::Link*>;

  void make_ports(const char* of, int count, double capacity, Links& up, Links& down) {
    for (int i = 0; i < count; ++i) {
      up.push_back(zone_->create_link(fmt::format("{} up {}", of, i), capacity)->seal());
      down.push_back(zone_->create_link(fmt::format("{} down {}", of, i), capacity)->seal());
    }
  }

  [[nodiscard]] std::vector<s4u::LinkInRoute> route(int from, int to) const {
    const int from_node = from / platform_.ranks_per_node;
    const int to_node = to / platform_.ranks_per_node;
    const auto card = [&](int rank) {
      const int number = rank % platform_.ranks_per_node % platform_.links_per_node;
      const int before = rank / platform_.ranks_per_node * platform_.links_per_node;
      return static_cast<std::size_t>(before) + static_cast<std::size_t>(number);
    };
    std::vector<s4u::LinkInRoute> links;
    if (!rank_up_.empty()) links.emplace_back(rank_up_.at(static_cast<std::size_t>(from)));
    if (from_node != to_node) {
      links.emplace_back(node_up_.at(card(from)));
      if (core_ != nullptr) links.emplace_back(core_);
      links.emplace_back(node_down_.at(card(to)));
    }
    if (!rank_down_.empty()) links.emplace_back(rank_down_.at(static_cast<std::size_t>(to)));
    links.emplace_back(from_node == to_node ? start_up_inside_ : start_up_across_);
    return links;
  }

  const Platform& platform_;
  s4u::NetZone* zone_;
  std::vector<s4u::Host*> hosts_;
  Links rank_up_;
  Links rank_down_;
  Links node_up_;
  Links node_down_;
  s4u::Link* core_ = nullptr;
  s4u::Link* start_up_inside_ = nullptr;
  s4u::Link* start_up_across_ = nullptr;
};

void act(std::size_t number, const Job& job, int member) {
  const auto mailbox = [&](int from, int to) {
    return s4u::Mailbox::by_name(fmt::format("{}: {} to {}", number, from, to));
  };
  static int payload = 0;
  if (!job.enter_seconds.empty())
    s4u::this_actor::sleep_until(job.enter_seconds.at(static_cast<std::size_t>(member)));
  for (const std::vector<algorithm::Part>& round : job.program.rounds) {
    const algorithm::Part& part = round.at(static_cast<std::size_t>(member));
    std::vector<s4u::CommPtr> messages;
    std::vector<void*> received(part.receives.size() + part.reduces.size());
    for (const algorithm::BlockMessage& message : part.sends) {
      std::uint64_t bytes = 0;
      for (const Range& blocks : message.blocks)
        bytes += static_cast<std::uint64_t>(blocks.size()) * job.block_bytes;
      messages.push_back(mailbox(member, message.peer)->put_async(&payload, bytes));
    }
    std::size_t slot = 0;
    for (const auto* expected : {&part.receives, &part.reduces}) {
      for (const algorithm::BlockMessage& message : *expected)
        messages.push_back(mailbox(message.peer, member)->get_async(&received.at(slot++)));
    }
    s4u::Comm::wait_all(messages);
  }
}

std::vector<double> simulate(s4u::Engine& engine, const std::vector<Job>& jobs, const Platform& platform) {
  const World world(platform);
  std::vector<double> ends(jobs.size());
  for (std::size_t number = 0; number < jobs.size(); ++number) {
    const Job& job = jobs[number];
    for (int member = 0; member < job.program.ranks; ++member) {
      const int rank = job.ranks.empty() ? member : job.ranks.at(static_cast<std::size_t>(member));
      s4u::Actor::create("member", world.host(rank), [&ends, &job, number, member] {
        act(number, job, member);
        ends[number] = std::max(ends[number], s4u::Engine::get_clock());
      });
    }
  }
  engine.run();
  return ends;
}

}  // namespace

Cluster cluster_of(const Platform& platform) {
  return {.name = "platform",
          .dimensions = {{.name = "node", .size = platform.ranks_per_node, .link = platform.inside},
                         {.name = "rack",
                          .size = platform.nodes,
                          .link = platform.across,
                          .links = platform.links_per_node,
                          .oversubscription = platform.oversubscription}}};
}

std::vector<double> simgrid_seconds(const std::vector<Job>& jobs, const Platform& platform) {
  return in_a_process(jobs.size(), [&](s4u::Engine& engine) { return simulate(engine, jobs, platform); });
}

}  // namespace dear::judge
