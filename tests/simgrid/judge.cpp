#include "judge.h"

#include <simgrid/s4u.hpp>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

namespace dear::judge {
namespace {

namespace s4u = simgrid::s4u;

constexpr double kUnlimited = 1e15;  // bytes per second

// A link of each kind for every rank and node, built here from the numbers alone: DeAR's own routes are what
// is judged.
class World {
 public:
  explicit World(const Platform& platform) : platform_(platform), zone_(s4u::create_full_zone("world")) {
    const int ranks = platform.nodes * platform.ranks_per_node;
    const double inside = 1 / platform.inside.beta_seconds_per_byte;
    const double across = 1 / platform.across.beta_seconds_per_byte;
    for (int rank = 0; rank < ranks; ++rank)
      hosts_.push_back(zone_->create_host(fmt::format("rank {}", rank), 1e9));
    if (platform.ranks_per_node > 1) make_ports(ranks, inside, rank_up_, rank_down_);
    if (platform.nodes > 1) make_ports(platform.nodes, across, node_up_, node_down_);
    if (platform.oversubscription > 1)
      core_ = zone_->create_link("core", across * platform.nodes / platform.oversubscription)->seal();
    start_up_inside_ = start_up("start-up inside", platform.inside.alpha_seconds);
    start_up_across_ = start_up("start-up across", platform.across.alpha_seconds);
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

  void make_ports(int count, double capacity, Links& up, Links& down) {
    for (int i = 0; i < count; ++i) {
      up.push_back(zone_->create_link(fmt::format("up {} of {}", i, count), capacity)->seal());
      down.push_back(zone_->create_link(fmt::format("down {} of {}", i, count), capacity)->seal());
    }
  }

  // Carries anything, for all that use it at once; only its latency matters.
  s4u::Link* start_up(const std::string& name, double seconds) {
    return zone_->create_link(name, kUnlimited)
        ->set_latency(seconds)
        ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)
        ->seal();
  }

  [[nodiscard]] std::vector<s4u::LinkInRoute> route(int from, int to) const {
    const auto from_node = static_cast<std::size_t>(from / platform_.ranks_per_node);
    const auto to_node = static_cast<std::size_t>(to / platform_.ranks_per_node);
    std::vector<s4u::LinkInRoute> links;
    if (!rank_up_.empty()) links.emplace_back(rank_up_.at(static_cast<std::size_t>(from)));
    if (from_node != to_node) {
      links.emplace_back(node_up_.at(from_node));
      if (core_ != nullptr) links.emplace_back(core_);
      links.emplace_back(node_down_.at(to_node));
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

void act(const algorithm::Program& program, int rank, std::uint64_t block_bytes) {
  const auto mailbox = [](int from, int to) {
    return s4u::Mailbox::by_name(fmt::format("{} to {}", from, to));
  };
  static int payload = 0;
  for (const std::vector<algorithm::Part>& round : program.rounds) {
    const algorithm::Part& part = round.at(static_cast<std::size_t>(rank));
    std::vector<s4u::CommPtr> messages;
    std::vector<void*> received(part.receives.size() + part.reduces.size());
    for (const algorithm::Transfer& transfer : part.sends) {
      std::uint64_t bytes = 0;
      for (const algorithm::Blocks& blocks : transfer.blocks)
        bytes += static_cast<std::uint64_t>(blocks.count()) * block_bytes;
      messages.push_back(mailbox(rank, transfer.peer)->put_async(&payload, bytes));
    }
    std::size_t slot = 0;
    for (const auto* transfers : {&part.receives, &part.reduces}) {
      for (const algorithm::Transfer& transfer : *transfers)
        messages.push_back(mailbox(transfer.peer, rank)->get_async(&received.at(slot++)));
    }
    s4u::Comm::wait_all(messages);
  }
}

double simulate(const algorithm::Program& program, const Platform& platform, std::uint64_t block_bytes) {
  std::vector<std::string> words = {"judge",
                                    "--log=root.threshold:error",
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/bandwidth-factor:1",
                                    "--cfg=network/latency-factor:1",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=network/TCP-gamma:0",
                                    "--cfg=network/crosstraffic:0"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  s4u::Engine engine(&count, arguments.data());
  const World world(platform);
  for (int rank = 0; rank < program.ranks; ++rank)
    s4u::Actor::create(fmt::format("rank {}", rank), world.host(rank),
                       [&, rank] { act(program, rank, block_bytes); });
  engine.run();
  return s4u::Engine::get_clock();
}

}  // namespace

Cluster cluster_of(const Platform& platform) {
  return {.name = "platform",
          .dimensions = {{.name = "node", .size = platform.ranks_per_node, .link = platform.inside},
                         {.name = "rack",
                          .size = platform.nodes,
                          .link = platform.across,
                          .oversubscription = platform.oversubscription}}};
}

double simgrid_seconds(const algorithm::Program& program, const Platform& platform,
                       std::uint64_t block_bytes) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe to the judge");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process for the judge");
  if (child == 0) {
    const double seconds = simulate(program, platform, block_bytes);
    _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
  }
  close(ends[1]);
  double seconds = 0;
  const bool answered = read(ends[0], &seconds, sizeof seconds) == sizeof seconds;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!answered || status != 0) throw std::runtime_error("SimGrid failed; its message is above");
  return seconds;
}

}  // namespace dear::judge
