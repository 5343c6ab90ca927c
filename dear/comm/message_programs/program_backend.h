#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "dear/comm/channels/channels.h"
#include "dear/comm/channels/shared_channels.h"
#include "dear/comm/group/backend.h"
#include "dear/comm/message_programs/choice.h"

// Makes backends whose collectives are programs of `algorithm`, executed on memory over any channels.
namespace dear::message_programs {

struct ProgramOptions {
  // Sums in the order of ranks, half precision rounded once: bit for bit what shared memory gives, whatever
  // the channels and the choice. Otherwise the order is that of the algorithm chosen, the same in every run.
  bool reproducible = false;
  // How each collective for which there are several algorithms travels, the same on all ranks. Where this is
  // empty, or a choice without a name, the alpha-beta model of `link` decides; where an order of addition is
  // asked for that an algorithm does not have, its sums are "direct" instead.
  Choose choose{};
  Link link{.alpha_seconds = 2e-6, .beta_seconds_per_byte = 2e-10};
  // On these channels an agreed message never meets a receive of another length: so receives are posted
  // before it is known that the peers ask for the same.
  bool lengths_apart = false;
  // See channels::MessageGraphOptions.
  std::int64_t most_ahead_bytes = std::numeric_limits<std::int64_t>::max();
};

// A backend of all ranks of the channels; any memory serves as its buffers. Allocating is a collective that
// moves nothing. What peers ask for is compared by whoever exchanges messages; the first failure ends the
// channels on all ranks. Of a Timing only `end` knows of the peers. A reduce-scatter by an algorithm of the
// table but the ring works on a copy, which takes as much memory again as the largest such vector.
std::unique_ptr<Backend> make_program_backend(std::unique_ptr<channels::Channels> channels,
                                              ProgramOptions options = {});
// A backend for some ranks of channels that others use as well: see SharedChannels::open().
std::unique_ptr<Backend> make_program_backend(std::shared_ptr<channels::SharedChannels> channels,
                                              std::vector<int> members, channels::Tag tag,
                                              ProgramOptions options = {});
// The tag of the messages of a part of a group. ConfigError where a job has made too many parts.
channels::Tag tag_of(const Subgroup& subgroup);

}  // namespace dear::message_programs
