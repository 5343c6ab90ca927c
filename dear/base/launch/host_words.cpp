#include "dear/base/launch/host_words.h"

#include <string>

#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::launch {
namespace {

constexpr std::size_t kLongestName = 256;
constexpr int kMostPorts = 65'535;

std::string text(std::int64_t number) { return std::to_string(number); }

// The numbers in words, as long as each is what it may be.
class Numbers {
 public:
  explicit Numbers(const Words& words) : words_(words) {}
  int take(std::size_t at, long least, long most) {
    const auto found = number_in(words_, at);
    right_ = right_ && found && *found >= least && *found <= most;
    return right_ ? static_cast<int>(*found) : 0;
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  const Words& words_;
  bool right_ = true;
};

}  // namespace

Words words_of(const Introduction& host) {
  return {"host", host.name, text(host.hosts), text(host.ranks), host.address, text(host.port)};
}

std::optional<Introduction> introduction_in(const Words& words) {
  if (words.size() != 6 || words[0] != "host") return std::nullopt;
  Numbers numbers(words);
  Introduction host{.name = printable(words[1].substr(0, kLongestName)),
                    .hosts = numbers.take(2, 1, kMostRanks),
                    .ranks = numbers.take(3, 1, kMostRanks),
                    .address = printable(words[4].substr(0, kLongestName)),
                    .port = numbers.take(5, 1, kMostPorts)};
  if (!numbers.right()) return std::nullopt;
  return host;
}

Words words_of(const HostJob& start) {
  const Job& job = start.job;
  return {"job",
          job.run_id,
          job.master_address,
          text(job.master_port.port),
          text(job.ranks),
          text(job.first_rank),
          text(job.local_ranks),
          text(job.host),
          text(job.hosts),
          text(job.restarts),
          start.elastic ? "elastic" : "",
          text(start.all_ranks)};
}

std::optional<HostJob> job_in(const Words& words) {
  if (words.size() != 12 || words[0] != "job") return std::nullopt;
  Numbers numbers(words);
  HostJob start{.job = {.ranks = numbers.take(4, 1, kMostRanks),
                        .first_rank = numbers.take(5, 0, kMostRanks),
                        .local_ranks = numbers.take(6, 0, kMostRanks),
                        .host = numbers.take(7, 0, kMostRanks),
                        .hosts = numbers.take(8, 1, kMostRanks),
                        .master_address = words[2],
                        .master_port = {.port = numbers.take(3, 1, kMostPorts)},
                        .run_id = words[1],
                        .restarts = numbers.take(9, 0, 1'000'000'000)},
                .elastic = words[10] == "elastic",
                .all_ranks = numbers.take(11, 1, kMostRanks)};
  const Job& job = start.job;
  if (!numbers.right() || job.first_rank + job.local_ranks > job.ranks || job.ranks > start.all_ranks)
    return std::nullopt;
  return start;
}

Words words_of(const RankEnd& end) {
  return {"ended", text(end.rank), text(end.ending.code), text(end.ending.signal), text(end.step)};
}

std::optional<RankEnd> end_in(const Words& words) {
  if (words.size() != 5 || words[0] != "ended") return std::nullopt;
  Numbers numbers(words);
  RankEnd end{.rank = numbers.take(1, 0, kMostRanks),
              .ending = {.code = numbers.take(2, 0, 255), .signal = numbers.take(3, 0, 64)}};
  const auto step = number_in(words, 4);
  if (!numbers.right() || !step || *step < 0) return std::nullopt;
  end.step = *step;
  return end;
}

}  // namespace dear::launch
