#include "dear/platform/algorithm/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::algorithm {
namespace {

std::vector<Range> mapped(const std::vector<Range>& inner, const std::vector<std::vector<Range>>& blocks) {
  std::vector<Range> outer;
  for (const Range& range : inner) {
    for (int block = range.begin; block < range.end; ++block) {
      for (const Range& piece : blocks.at(static_cast<std::size_t>(block))) {
        if (!outer.empty() && outer.back().end == piece.begin) {
          outer.back().end = piece.end;
        } else {
          outer.push_back(piece);
        }
      }
    }
  }
  return outer;
}

}  // namespace

std::vector<Part>& Program::add_round() { return rounds.emplace_back(static_cast<std::size_t>(ranks)); }

void Program::send(int round, int from, int to, std::vector<Range> sent) {
  std::vector<Part>& parts = rounds.at(static_cast<std::size_t>(round));
  parts.at(static_cast<std::size_t>(to)).receives.push_back({.peer = from, .blocks = sent});
  parts.at(static_cast<std::size_t>(from)).sends.push_back({.peer = to, .blocks = std::move(sent)});
}

void Program::send_to_be_added(int round, int from, int to, std::vector<Range> sent) {
  std::vector<Part>& parts = rounds.at(static_cast<std::size_t>(round));
  parts.at(static_cast<std::size_t>(to)).reduces.push_back({.peer = from, .blocks = sent});
  parts.at(static_cast<std::size_t>(from)).sends.push_back({.peer = to, .blocks = std::move(sent)});
}

Program empty_program(std::string name, Collective collective, int ranks, int blocks) {
  return {.name = std::move(name),
          .collective = collective,
          .ranks = ranks,
          .blocks = blocks,
          .root = 0,
          .copies = {},
          .rounds = {}};
}

std::vector<Range> around(int begin, int count, int blocks) {
  const int first = ((begin % blocks) + blocks) % blocks;
  const int before_the_end = std::min(count, blocks - first);
  std::vector<Range> ranges = {{.begin = first, .end = first + before_the_end}};
  if (count > before_the_end) {
    ranges.push_back({.begin = 0, .end = count - before_the_end});
  }
  return ranges;
}

Program reversed(const Program& forward, std::string name) {
  Program back = forward;
  back.name = std::move(name);
  if (forward.collective == Collective::all_gather) {
    back.collective = Collective::reduce_scatter;
  } else if (forward.collective == Collective::broadcast) {
    back.collective = Collective::reduce;
  } else {
    throw ConfigError(fmt::format("a {} cannot be reversed: give an all-gather or a broadcast",
                                  name_of(forward.collective)));
  }
  std::reverse(back.rounds.begin(), back.rounds.end());
  for (std::vector<Part>& round : back.rounds) {
    for (Part& part : round) {
      part = {.sends = std::move(part.receives), .receives = {}, .reduces = std::move(part.sends)};
    }
  }
  return back;
}

Program concatenated(const Program& first, const Program& second, std::string name) {
  const bool by_shards =
      first.collective == Collective::reduce_scatter && second.collective == Collective::all_gather;
  const bool by_root = first.collective == Collective::reduce && second.collective == Collective::broadcast &&
                       first.root == second.root;
  if (first.ranks != second.ranks || first.blocks != second.blocks || (!by_shards && !by_root)) {
    throw ConfigError(
        fmt::format("'{}' and '{}' do not make an all-reduce: give a reduce-scatter and an "
                    "all-gather, or a reduce and a broadcast, of the same ranks, blocks and root",
                    first.name, second.name));
  }
  Program both = first;
  both.name = std::move(name);
  both.collective = Collective::all_reduce;
  both.root = 0;
  both.rounds.insert(both.rounds.end(), second.rounds.begin(), second.rounds.end());
  return both;
}

void embed(const Program& inner, const std::vector<int>& ranks, const std::vector<std::vector<Range>>& blocks,
           int round, Program& outer) {
  const auto placed = [&](const std::vector<BlockMessage>& messages, std::vector<BlockMessage>& into) {
    for (const BlockMessage& message : messages) {
      into.push_back({.peer = ranks.at(static_cast<std::size_t>(message.peer)),
                      .blocks = mapped(message.blocks, blocks)});
    }
  };
  for (const std::vector<Part>& parts : inner.rounds) {
    while (static_cast<int>(outer.rounds.size()) <= round) {
      outer.add_round();
    }
    for (int rank = 0; rank < inner.ranks; ++rank) {
      const Part& part = parts[static_cast<std::size_t>(rank)];
      Part& place = outer.rounds[static_cast<std::size_t>(round)].at(
          static_cast<std::size_t>(ranks.at(static_cast<std::size_t>(rank))));
      placed(part.sends, place.sends);
      placed(part.receives, place.receives);
      placed(part.reduces, place.reduces);
    }
    ++round;
  }
}

}  // namespace dear::algorithm
