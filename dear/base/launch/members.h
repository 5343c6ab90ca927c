#pragma once

#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <vector>

#include "dear/base/launch/hosts.h"
#include "dear/base/launch/keeper.h"
#include "dear/base/launch/rank_process.h"
#include "dear/base/launch/records.h"

namespace dear::launch {

// A process that was started as a rank.
struct Member {
  Member(int rank_number, const RankProgram& program, const Keeper& keeper)
      : rank(rank_number), process(std::make_unique<RankProcess>(program, keeper)), pid(process->pid()) {}
  // On another host, whose launcher starts it.
  Member(int rank_number, int host_number, const Hosts& all_hosts)
      : rank(rank_number), host(host_number), hosts(&all_hosts) {
    hosts->tell(host, {"start", std::to_string(rank)});
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // To its process group.
  void send(int signal) const;
  [[nodiscard]] bool silent() const {
    return !process || (!process->output.is_open() && !process->error.is_open());
  }

  int rank;  // at the start of the job; of a process that takes the place of another, the rank of that one
  int host = 0;
  const Hosts* hosts = nullptr;
  std::unique_ptr<RankProcess> process{};  // on this host
  pid_t pid = -1;                          // on its host
  std::optional<Ending> ending;
  bool told_to_end = false;
  bool settled = false;  // its ending has been dealt with: it ends the job no more
};

// All processes of a job that were ever started, in this order. They are kept until the job ends (keeper.h).
class Members {
 public:
  template <typename... Arguments>
  void start(int rank, const Arguments&... arguments) {
    all_.push_back(std::make_unique<Member>(rank, arguments...));
  }
  [[nodiscard]] auto begin() const { return all_.begin(); }
  [[nodiscard]] auto end() const { return all_.end(); }
  // The last process of a rank; null for none.
  [[nodiscard]] Member* of(int rank) const;

  // Appends three files of each: of its end, and of its output and errors where those are taken.
  void add_to(std::vector<pollfd>& files, bool output, bool error) const;
  // After poll() on those files: notes who has ended.
  void take_endings(std::span<const pollfd> files);

  void send(int signal) const;
  [[nodiscard]] bool all_ended() const;
  // Whether every one has ended and its output is closed.
  [[nodiscard]] bool all_silent() const;
  [[nodiscard]] std::vector<int> running() const;  // their ranks
  // As the records have them: the last process of each rank.
  [[nodiscard]] std::vector<SeenRank> seen() const;

 private:
  std::vector<std::unique_ptr<Member>> all_;
};

}  // namespace dear::launch
