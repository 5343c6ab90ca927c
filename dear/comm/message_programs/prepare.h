#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/comm/group/chunk_rows.h"
#include "dear/comm/message_programs/choice.h"
#include "dear/comm/message_programs/executor.h"

namespace dear::message_programs {

// What makes one collective's graph differ from another's.
struct Recipe {
  Collective collective = Collective::barrier;
  std::int64_t count = 0;
  DType dtype = DType::u8;
  int root = 0;
  bool exact = false;                  // see CollectiveCall
  std::vector<std::int64_t> shares{};  // ShardShares::ends; empty for equal shards
  friend auto operator<=>(const Recipe&, const Recipe&) = default;
};

// A collective as one rank executes it.
struct Prepared {
  enum class Where : std::uint8_t {
    in_place,   // on the vector itself
    from_copy,  // what is sent to be added up lies in a copy, which takes the output's place
    on_copy,    // on a copy: sums on their way would overwrite what is to stay
    beside      // rank r's contribution, of `stride` bytes with its padding, is gathered at r * stride
  };
  Where where = Where::in_place;
  bool adds_in_one_pass = false;  // so an average divides there, too
  std::int64_t stride = 0;
  AlgorithmChoice choice;
  Executor executor;
};

// `options` say which rank it is for, and how its messages follow each other; the recipe and the choice
// decide the rest of them. ConfigError for an algorithm that there is not.
Prepared prepare(const Recipe& recipe, const AlgorithmChoice& choice, int ranks, MessageGraphOptions options);

// This rank's messages of rows in an all-to-all-v, once it knows what it sends and what comes: [rank][chunk],
// as in ChunkRows. `exchange` is an all-to-all of as many ranks and chunks.
MessageGraph graph_of_rows(const algorithm::Program& exchange, const comm::ChunkPlaces& places,
                           const std::int64_t* sent, const std::int64_t* received,
                           MessageGraphOptions options);

}  // namespace dear::message_programs
