#include "dear/base/liveness/connect.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/admission/handshake.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::liveness {
namespace {

using admission::joined;
using admission::parted;
using admission::Wires;

// How long connections may take: where hosts do not reach each other a job starts without them.
constexpr std::chrono::duration<double> kPatience = std::chrono::seconds(10);

std::string host_name() {
  std::array<char, 65> name{};
  ::gethostname(name.data(), name.size() - 1);
  return printable(name.data());
}

// What a rank says of itself.
struct Introduction {
  std::string host, host_name, pid, address, nonce;

  [[nodiscard]] std::string text() const { return joined({host, host_name, pid, address, nonce}); }
  static Introduction read(const std::string& text) {
    auto parts = parted(text);
    if (!parts || parts->size() != 5)
      throw TransportError("a rank runs another build of DeAR than others: install one on all hosts");
    return {(*parts)[0], (*parts)[1], (*parts)[2], (*parts)[3], (*parts)[4]};
  }
};

// The two places at which a rank listens, for those of its host and for leaders of others. One that waits for
// nobody there is asked there whether it lives.
struct Listening {
  Wires near, far;
  bool works = true;

  Listening(const Liveness::Options& options, const Node& node) {
    try {
      const bool has_parent = node.parent >= 0;
      if (!node.near.empty() || (has_parent && node.is_near))
        near = Wires(std::string(1, Wires::kLocal), options.rank);
      if (!node.far.empty() || (has_parent && !node.is_near)) far = Wires(options.address, options.rank);
    } catch (const Error&) {
      works = false;
    }
  }
  [[nodiscard]] std::string text() const {
    return joined(
        {works ? "works" : "", near.place().address, far.place().address, std::to_string(far.place().port)});
  }
};

class Connecting {
 public:
  Connecting(const Liveness::Options& options, std::string key, const Node& node)
      : options_{.key = std::move(key),
                 .rank = options.rank,
                 .size = options.size,
                 .deadline = Deadline(std::min(options.deadline.at(), Deadline::after(kPatience).at()))},
        node_(node) {}

  // Leaders first: those of a host wait for theirs.
  std::vector<std::unique_ptr<Neighbour>> connect(Listening& listening,
                                                  const std::vector<std::string>& texts) {
    std::vector<Wires::Place> near, far;
    for (const std::string& text : texts) {
      const auto parts = parted(text);
      if (!parts || parts->size() != 4 || (*parts)[0].empty()) throw TransportError("a rank cannot listen");
      near.push_back({.address = (*parts)[1]});
      far.push_back({.address = (*parts)[2], .port = std::atoi((*parts)[3].c_str())});
    }
    std::vector<std::unique_ptr<Neighbour>> neighbours;
    add(neighbours, listening.far, far, node_.far, false);
    add(neighbours, listening.near, near, node_.near, true);
    return neighbours;
  }

 private:
  void add(std::vector<std::unique_ptr<Neighbour>>& neighbours, Wires& wires,
           const std::vector<Wires::Place>& places, const std::vector<int>& children, bool is_near) {
    Wires::Options options = options_;
    options.peers = children;
    if (node_.parent >= 0 && node_.is_near == is_near) options.peers.push_back(node_.parent);
    if (options.peers.empty()) return;
    auto connected = wires.connect(options, places);
    for (const int peer : options.peers)
      neighbours.push_back(
          std::make_unique<Neighbour>(peer, is_near, std::move(connected[static_cast<std::size_t>(peer)])));
  }

  Wires::Options options_;
  const Node& node_;
};

// A rank that fails here, maybe since another one has failed already, is not to be taken for one that died.
void take_leave(const Connected& connected, int rank, const std::string& why) {
  const std::string word = to_bytes(read_sentence(why, rank, Cause::lost));
  for (const auto& one : connected.neighbours) {
    if (one->rank == connected.node.parent)
      one->say({.kind = Message::Kind::word, .rank = rank, .text = word});
    one->say({.kind = Message::Kind::left, .rank = rank});
    one->send();
  }
}

}  // namespace

std::optional<Connected> connect(const Liveness::Options& options, const Liveness::Exchange& exchange) {
  const Introduction mine{.host = options.host,
                          .host_name = host_name(),
                          .pid = std::to_string(::getpid()),
                          .address = options.address,
                          .nonce = options.rank == 0 ? admission::fresh_nonce() : ""};
  std::vector<Introduction> all;
  for (const std::string& text : exchange(options.takes_part ? mine.text() : "")) {
    if (text.empty()) return std::nullopt;  // on all ranks
    all.push_back(Introduction::read(text));
  }
  std::vector<std::string> hosts;
  for (const Introduction& one : all) hosts.push_back(one.host);
  const bool several =
      std::any_of(hosts.begin(), hosts.end(), [&](const auto& one) { return one != hosts[0]; });
  Connected result{.node = node_of(hosts, options.rank), .neighbours = {}, .names = {}};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (several && all[rank].address.empty()) return std::nullopt;  // on all ranks
    const std::string where = several ? " on " + all[rank].host_name : "";
    result.names.push_back(fmt::format("rank {} (pid {}{})", rank, all[rank].pid, where));
  }
  Listening listening(options, result.node);
  const std::vector<std::string> places = exchange(listening.text());
  std::string works = "works";
  try {
    result.neighbours =
        Connecting(options, admission::derived_key(options.key, "liveness", all[0].nonce), result.node)
            .connect(listening, places);
  } catch (const Error&) {
    works.clear();
  }
  try {
    for (const std::string& one : exchange(works))
      if (one.empty()) return std::nullopt;
  } catch (const std::exception& error) {
    take_leave(result, options.rank, error.what());
    throw;
  }
  return result;
}

}  // namespace dear::liveness
