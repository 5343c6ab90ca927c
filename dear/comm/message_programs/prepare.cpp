#include "dear/comm/message_programs/prepare.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/shard.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::message_programs {
namespace {

using algorithm::Program;

// The bytes that a direct reduce-scatter may have staged from all peers together: about a cache.
constexpr std::int64_t kMostStaged = 512 * kKiB;
constexpr std::int64_t kLeastSegment = 4 * kKiB;

std::vector<Range> shards(const Recipe& recipe, int blocks) {
  const std::int64_t element = size_of(recipe.dtype);
  std::vector<Range> ranges;
  const ShardShares shares{recipe.shares};
  for (int block = 0; block < blocks; ++block) {
    const Range shard =
        shard_of(recipe.count, recipe.dtype, blocks, block, recipe.shares.empty() ? nullptr : &shares);
    ranges.push_back({.begin = shard.begin * element, .end = shard.end * element});
  }
  return ranges;
}

// One of `bytes` for each rank, `stride` apart; in an all-to-all without padding.
std::vector<Range> blocks_apart(int ranks, std::int64_t bytes, std::int64_t stride) {
  std::vector<Range> ranges;
  for (int rank = 0; rank < ranks; ++rank) {
    ranges.push_back({.begin = rank * stride, .end = rank * stride + bytes});
  }
  return ranges;
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

// Block r from rank r to the root.
Program shards_to(int root, int ranks) {
  Program program = algorithm::empty_program("shards to the root", Collective::reduce, ranks, ranks);
  program.root = root;
  program.add_round();
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != root) program.send(0, rank, root, {{.begin = rank, .end = rank + 1}});
  return program;
}

// Segments in a line follow each other by themselves; each of two trees carries a half.
int blocks_of(const std::string& algorithm) { return algorithm == "double-tree" ? 2 : 1; }

}  // namespace

Prepared prepare(const Recipe& recipe, const AlgorithmChoice& choice, int ranks,
                 MessageGraphOptions options) {
  const std::int64_t element = size_of(recipe.dtype);
  const std::int64_t bytes = recipe.count * element;
  options.element_bytes = element;
  options.segment_bytes = choice.segment_bytes;
  const auto table = [&](const std::string& name, Collective collective) {
    return make_program(
        algorithm::find_algorithm(name), collective,
        {.ranks = ranks, .root = has_root(collective) ? recipe.root : 0, .blocks = blocks_of(name)});
  };
  const bool adds = reduces(recipe.collective);

  if (recipe.collective == Collective::barrier) {
    const Program program = table(choice.algorithm, Collective::all_gather);
    options.element_bytes = 1;
    return {
        .where = Prepared::Where::beside,
        .stride = 1,
        .choice = choice,
        .executor = Executor(MessageGraphBuilder(options).add(program, blocks_apart(ranks, 1, 1)).finish())};
  }
  if (adds && choice.algorithm == "gather") {
    const std::int64_t stride = os::whole_cache_lines(bytes);
    const Program program = table("bruck", Collective::all_gather);
    return {.where = Prepared::Where::beside,
            .adds_in_one_pass = true,
            .stride = stride,
            .choice = choice,
            .executor = Executor(
                MessageGraphBuilder(options).add(program, blocks_apart(ranks, bytes, stride)).finish())};
  }
  if (adds && choice.algorithm == "direct") {
    options.segment_bytes =
        std::min(options.segment_bytes, std::max(kLeastSegment, kMostStaged / std::max(1, ranks - 1)));
    const std::vector<Range> blocks = shards(recipe, ranks);
    MessageGraphBuilder builder(options);
    // With unequal shards both directions of a link are to work at a time: a receive that waited for memory
    // to be sent would be told to its sender behind all that is sent to it.
    const bool from_copy = !recipe.shares.empty() && recipe.collective == Collective::all_reduce;
    using SentFrom = MessageGraphBuilder::SentFrom;
    builder.add_direct_reduce_scatter(blocks, from_copy ? SentFrom::output : SentFrom::vector);
    if (recipe.collective == Collective::all_reduce) {
      const bool gathers =
          !choice.then.empty() && has(algorithm::find_algorithm(choice.then), Collective::all_gather);
      builder.add(table(gathers ? choice.then : "ring", Collective::all_gather), blocks);
    } else if (recipe.collective == Collective::reduce) {
      builder.add(shards_to(recipe.root, ranks), blocks);
    }
    return {.where = from_copy ? Prepared::Where::from_copy : Prepared::Where::in_place,
            .adds_in_one_pass = true,
            .choice = choice,
            .executor = Executor(builder.finish())};
  }
  const Program program = table(choice.algorithm, recipe.collective);
  std::vector<Range> blocks;
  if (recipe.collective == Collective::all_to_all) {
    blocks = blocks_apart(ranks, bytes / ranks, bytes / ranks);
    blocks.insert(blocks.end(), blocks.begin(), blocks.begin() + ranks);
  } else {
    blocks = shards(recipe, program.blocks);
  }
  const bool scatters = recipe.collective == Collective::reduce_scatter && ranks > 1;
  options.adds_in_passing = scatters || recipe.collective == Collective::reduce;
  MessageGraph graph = MessageGraphBuilder(options).add(program, blocks).finish();
  const bool copied = scatters && !graph.writes_only(blocks[static_cast<std::size_t>(options.rank)]);
  return {.where = copied ? Prepared::Where::on_copy : Prepared::Where::in_place,
          .choice = choice,
          .executor = Executor(std::move(graph))};
}

MessageGraph graph_of_rows(const algorithm::Program& exchange, const comm::ChunkPlaces& places,
                           const std::int64_t* sent, const std::int64_t* received,
                           MessageGraphOptions options) {
  std::vector<Range> blocks;
  for (const std::int64_t* const counts : {sent, received}) {
    for (int rank = 0; rank < places.ranks; ++rank) {
      for (int chunk = 0; chunk < places.chunks; ++chunk) {
        const std::int64_t begin = places.begin_of(rank, chunk);
        blocks.push_back(
            {.begin = begin, .end = begin + counts[rank * places.chunks + chunk] * places.row_bytes});
      }
    }
  }
  options.agreed = true;
  return MessageGraphBuilder(options).add(exchange, blocks).finish();
}

}  // namespace dear::message_programs
