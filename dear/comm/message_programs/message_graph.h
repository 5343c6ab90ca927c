#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/platform/algorithm/program.h"

// One rank's part of a collective, worked out once and executed many times.
namespace dear::message_programs {

// The place of bytes: in the vector, or in the output of an all-to-all or all-to-all-v.
struct MemoryRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool in_output = false;
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;
};

struct MessageGraphOptions {
  int rank = 0;
  std::int64_t element_bytes = 1;          // messages are cut between elements
  std::int64_t segment_bytes = 64 * 1024;  // and into chunks of about this size, so that rounds overlap
  // The first message of each pair of ranks has heads: so many bytes of the caller's, told to the peer ahead
  // of everything else, and room for a small payload, whatever the payload's length. 0: no heads.
  std::int64_t head_bytes = 0;
  // Whether what follows a head is received only after it. Where ranks disagree it may have any length, so
  // this is for channels on which a message meets a receive of another length.
  bool heads_first = true;
  // Without heads: whether both ends know what travels all the same.
  bool agreed = false;
  // The bytes for which receives are posted ahead; at least one message is.
  std::int64_t most_ahead_bytes = std::numeric_limits<std::int64_t>::max();
  // What is added up only to be sent on, in one chunk and once, is added up in staging memory and the vector
  // keeps this rank's contribution. That takes staging memory for what two rounds receive.
  bool adds_in_passing = false;
};

// [Note: message graphs] The work is a graph. A node is a message on its way out or in, or something done to
// memory; it begins when all nodes it waits for are finished: those that write what it reads, and those that
// read or write what it writes. So a segment that has been received and added travels on at once, whatever
// the other segments of its round do.
//
// Between two ranks messages are matched by their order alone. Both sides cut alike: a message of a program
// is the bytes of its blocks one after another, whatever ranges they lie in, cut into segments; a message
// without bytes does not travel (but as a head). Sends to one peer go out in the order of rounds, receives
// are posted in that order over all peers. As nothing waits for a later round, nothing waits for ever: the
// earliest message that is not through can always be sent and received, however little room there is.
struct MessageGraph {
  struct Node {
    enum class Kind : std::uint8_t {
      send,     // chunks to the peer; when it is finished they may be written again
      receive,  // from the peer to the one chunk
      stage,    // from the peer to staging memory, which its reader frees
      combine,  // the sum of what stands at the chunks and of what was staged takes the chunks' place
      scatter   // what was staged to the chunks
    };
    Kind kind = Kind::send;
    bool head = false;  // of send and stage: a first message
    // Of a combine: the sum stays where its one stage is. Of a send: it takes such a sum, not its chunk.
    bool in_passing = false;
    int peer = 0;  // place in `peers`
    int first_chunk = 0;
    int chunks = 0;
    std::int64_t bytes = 0;  // of all chunks
    int waits_for = 0;       // nodes
    int first_dependent = 0;
    int dependents = 0;
    int first_source = 0;
    int sources = 0;  // of combine and scatter; of a send in passing the one stage
  };

  static constexpr int kOwn = -1;

  std::vector<int> peers;  // ranks
  std::vector<Node> nodes;
  std::vector<MemoryRange> chunks;
  std::vector<int> dependents;          // nodes, by node
  std::vector<int> sources;             // stages of combines and scatters, kOwn for the chunks themselves
  std::vector<std::vector<int>> sends;  // by peer, in order
  std::vector<int> receives;            // receives and stages, in order
  std::vector<std::pair<MemoryRange, MemoryRange>> copies;  // from, to; before everything else
  std::int64_t head_bytes = 0;
  bool agreed = false;  // all messages but heads
  std::int64_t most_ahead_bytes = 0;
  std::int64_t most_staged = 0;  // bytes of a stage that is no head
  std::int64_t most_packed = 0;  // bytes of a send of several chunks that is no head
  int slots = 0;                 // of staging memory: enough for the sources of any combine, and more
  int slots_in_passing = 0;      // of these, for sums on their way

  // Whether the graph writes nothing else of the vector.
  [[nodiscard]] bool writes_only(const Range& range) const;
  // The bytes of the payload of all these messages.
  [[nodiscard]] std::int64_t bytes_of(const std::vector<int>& messages) const {
    std::int64_t bytes = 0;
    for (const int number : messages) bytes += nodes[static_cast<std::size_t>(number)].bytes;
    return bytes;
  }
};

// Room in a head for the payload of a message, if all of it fits and is one segment.
inline constexpr std::int64_t kHeadRoom = 192;

// Makes a graph of one part after another, each on the results of the ones before. ConfigError for what does
// not fit together.
class MessageGraphBuilder {
 public:
  explicit MessageGraphBuilder(const MessageGraphOptions& options);
  ~MessageGraphBuilder();

  // blocks[b] is block b of the program; where there is an output, those from
  // program.blocks on lie in it.
  MessageGraphBuilder& add(const algorithm::Program& program, const std::vector<Range>& blocks);
  // Rank r sends every other rank its own contribution to that one's block, and adds up what it gets for
  // block r, in the order of ranks and all at once; writes nothing but block r. As many bytes as in a ring.
  // The place it sends from: the vector, or the output, which then has a copy, so that blocks that others
  // have added up may come in before it is sent.
  enum class SentFrom : std::uint8_t { vector, output };
  MessageGraphBuilder& add_direct_reduce_scatter(const std::vector<Range>& blocks,
                                                 SentFrom sent_from = SentFrom::vector);

  MessageGraph finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dear::message_programs
