#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/channels.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/group.h"
#include "dear/comm/group/group_lane.h"

namespace dear {

enum class Group::Making : std::uint8_t { duplicate, split, channels };

namespace {

// What a rank asks for when groups are made of this one.
struct Wish {
  std::int32_t making = 0;
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::int32_t number = 0;  // the next that this rank has for a group
  std::int32_t tags = 1;    // of channels
};

void throw_on_mismatch(const std::vector<Wish>& all) {
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Wish& one) { return one.making != all[0].making; });
  if (other != all.end()) {
    const auto says = [](const Wish& wish) {
      return wish.making == 0 ? "duplicates" : wish.making == 1 ? "splits" : "opens channels of";
    };
    throw MismatchError(fmt::format("rank {} {} the group, and rank 0 {} it: every rank must do the same",
                                    other - all.begin(), says(*other), says(all[0])));
  }
  const auto more =
      std::find_if(all.begin(), all.end(), [&](const Wish& one) { return one.tags != all[0].tags; });
  if (more != all.end())
    throw MismatchError(
        fmt::format("rank {} opens channels with {} tags, and rank 0 with {}: every rank must give the same",
                    more - all.begin(), more->tags, all[0].tags));
}

std::vector<int> members_of(const std::vector<Wish>& all, int color) {
  std::vector<int> members;
  for (std::size_t rank = 0; color >= 0 && rank < all.size(); ++rank) {
    if (all[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  return members;
}

}  // namespace

Group Group::duplicate() const { return *make(Making::duplicate, 0, 0); }
std::optional<Group> Group::split(int color, int key) const { return make(Making::split, color, key); }

// Ranks have helped to make different groups, so all take the greatest of their numbers.
Subgroup Group::agree_on(Making making, int color, int key, int tags) const {
  lane_->forbid_here();
  const std::vector<Wish> all =
      comm::all_gather_values(*this, Wish{.making = static_cast<std::int32_t>(making),
                                          .color = color,
                                          .key = key,
                                          .number = ++*lane_->groups,
                                          .tags = tags});
  throw_on_mismatch(all);
  Subgroup subgroup{.members = members_of(all, color), .color = color};
  for (const Wish& wish : all) subgroup.number = std::max(subgroup.number, wish.number);
  *lane_->groups = std::max<int>(*lane_->groups, subgroup.number + tags - 1);
  return subgroup;
}

std::optional<Group> Group::make(Making making, int color, int key) const {
  const Subgroup subgroup = agree_on(making, color, key, 1);
  const auto part = std::make_shared<std::unique_ptr<Backend>>();
  wait_for(*lane_->push(
      [subgroup, part](Backend& backend, Deadline deadline) {
        *part = backend.split(subgroup, deadline);
        return Timing{};
      },
      {}));
  if (!*part) return std::nullopt;
  return Group(lane_->lane_of_part(std::move(*part)));
}

std::unique_ptr<channels::Channels> Group::open_channels(int tags) const {
  const int number = agree_on(Making::channels, 0, 0, tags).number;
  const auto opened = std::make_shared<std::unique_ptr<channels::Channels>>();
  wait_for(*lane_->push(
      [=](Backend& backend, Deadline deadline) {
        *opened = backend.open_channels(number, tags, deadline);
        return Timing{};
      },
      {}));
  return std::move(*opened);
}

}  // namespace dear
