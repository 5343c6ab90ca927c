#pragma once

#include <cstdint>
#include <vector>

#include "dear/comm/channels/channels.h"

// One suite for every kind of channels. Every rank calls the same check, wherever it runs; what is wrong is a
// GoogleTest failure on the rank that sees it.
namespace dear::channels::testing {

// Bytes that tell of their sender, receiver, tag and number.
std::vector<std::byte> message_of(int from, int to, Tag tag, int number, std::int64_t bytes);

// All pairs, lengths from nothing to some megabytes.
void check_lengths(Channels& channels);
// Many on their way between all pairs, in both directions; receives of several tags in another order than
// the sends.
void check_order_and_tags(Channels& channels);
// Sends long before the receives, and the other way round.
void check_early_and_late(Channels& channels);

// All of these.
void check_channels(Channels& channels);

// On 2 ranks, last: a message of another length than expected ends the channels on both.
void check_wrong_length(Channels& channels);

}  // namespace dear::channels::testing
