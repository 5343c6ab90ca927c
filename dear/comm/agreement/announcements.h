#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dear/comm/agreement/call.h"
#include "dear/comm/group/group.h"

namespace dear::agreement {

inline constexpr std::int64_t kUnsaid = -1;

struct Announcement {
  Call call = Call::nothing;       // that a rank makes next
  std::uint32_t model = 0;         // of those that are announced together
  std::int64_t samples = kUnsaid;  // of `backward_pass`: those of this step on this rank
  double argument = 0;             // of the changes of gradients
  double norm_type = 0;            // of `clip_by_norm`
  double rate =
      0;  // of `backward_pass`: samples a second that this rank computed in its last step; 0: unsaid
  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// All ranks say, again and again, what they do next: a small all-gather on a group of its own, so that it may
// be issued at any time, whatever else is on its way. Who says something need not wait for the others. For
// one thread.
class Announcements {
 public:
  // `text_bytes`: the longest text that pass_on() takes. Every rank makes it together.
  Announcements(const Group& group, std::int64_t text_bytes);

  using Number = std::int64_t;
  // Waits only for what was said kSlots announcements ago.
  Number send(const Announcement& mine);
  // Returns the announcements of every rank, by rank, of one of the last kSlots rounds, or of one that is
  // kept; waits for them.
  [[nodiscard]] std::vector<Announcement> receive(Number number);
  // That round can be heard however much is said, until it is forgotten.
  void keep(Number number) { kept_[number]; }
  void forget(Number number) { kept_.erase(number); }

  // Sends the text of rank `from` to all ranks, which call it together. ConfigError on `from` for a text that
  // is too long.
  void pass_on(int from, const std::string& text);
  // The text that was passed on last; waits for it.
  [[nodiscard]] std::string passed_on();
  [[nodiscard]] std::int64_t text_bytes() const { return text_bytes_; }

  [[nodiscard]] int rank() const { return group_.rank(); }
  [[nodiscard]] int size() const { return group_.size(); }

 private:
  static constexpr std::int64_t kSlots = 32;
  [[nodiscard]] std::byte* sent_by(std::int64_t slot, int rank) const;

  Group group_;
  std::int64_t text_bytes_;
  Buffer said_, text_;
  std::vector<Pending> sending_;
  Pending passing_;
  std::map<Number, std::vector<Announcement>> kept_;  // empty while a slot has it
  Number next_ = 0;
};

}  // namespace dear::agreement
