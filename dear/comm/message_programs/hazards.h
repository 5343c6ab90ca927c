#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace dear::message_programs {

// Which nodes must be finished before a node may touch a range of bytes. Nodes are told in the order in which
// they would run one after another.
class Hazards {
 public:
  // (before, after)
  using Edges = std::vector<std::pair<int, int>>;

  void read(std::int64_t begin, std::int64_t end, int node, Edges& edges) {
    for (auto at = cut(begin, end); at->first < end; ++at) {
      if (at->second.writer >= 0) {
        edges.emplace_back(at->second.writer, node);
      }
      at->second.readers.push_back(node);
    }
  }
  void write(std::int64_t begin, std::int64_t end, int node, Edges& edges) {
    auto at = cut(begin, end);
    const auto first = at;
    for (; at->first < end; ++at) {
      Access& access = at->second;
      // The readers already wait for the writer.
      if (access.readers.empty() && access.writer >= 0) {
        edges.emplace_back(access.writer, node);
      }
      for (const int reader : access.readers) {
        edges.emplace_back(reader, node);
      }
    }
    first->second = {.writer = node, .readers = {}};
    ranges_.erase(std::next(first), at);
  }

 private:
  struct Access {
    int writer = -1;           // the last
    std::vector<int> readers;  // since
  };

  void cut(std::int64_t at) {
    auto after = ranges_.upper_bound(at);
    const auto range = std::prev(after);
    if (range->first != at) {
      ranges_.emplace_hint(after, at, range->second);
    }
  }
  // The first range of [begin, end), after cuts at both.
  std::map<std::int64_t, Access>::iterator cut(std::int64_t begin, std::int64_t end) {
    cut(begin);
    cut(end);
    return ranges_.find(begin);
  }

  // Each entry holds from its key to the next one; the last key is never reached.
  std::map<std::int64_t, Access> ranges_ = {{std::numeric_limits<std::int64_t>::min(), {}},
                                            {std::numeric_limits<std::int64_t>::max(), {}}};
};

}  // namespace dear::message_programs
