#include "dear/base/recorder/record.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/recorder/check.h"
#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::recorder {
namespace {

template <std::size_t N>
std::string until_zero(const std::array<char, N>& text) {
  return printable(std::string(text.begin(), std::find(text.begin(), text.end(), '\0')));
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"none", "begun", "ended",      "failed",
                                         "step", "files", "files done", "not finite"};
  const auto number = static_cast<std::size_t>(kind);
  return number < std::size(kNames) ? kNames[number] : "unknown";
}

std::string_view name_of_collective(std::uint8_t number) {
  if (number == kAllocation) return "allocation";
  if (number == kSharedAllocation) return "allocation for all to share";
  return dear::name_of(static_cast<Collective>(number));
}

std::string text_of(const Event& event) { return until_zero(event.text); }

std::optional<Record> copy_of(const Layout& layout) {
  if (layout.magic != Layout::kMagic) return std::nullopt;
  Record record{.rank = layout.rank,
                .ranks = layout.ranks,
                .pid = layout.pid,
                .stacks_signal = layout.stacks,
                .host = until_zero(layout.host),
                .realtime_minus_monotonic = layout.realtime_minus_monotonic,
                .events_ever = layout.events,
                .first_step = layout.first_step,
                .steps = layout.steps,
                .step_nanoseconds = layout.step_nanoseconds,
                .exposed_nanoseconds = layout.exposed_nanoseconds,
                .failure = std::nullopt,
                .events = {}};
  if (layout.failure_state.load(std::memory_order_acquire) == 2)
    record.failure = Record::Failure{.nanoseconds = layout.failed_at,
                                     .text = until_zero(layout.failure),
                                     .own = layout.failure_is_own == 1};
  const std::uint64_t first = record.events_ever > kEvents ? record.events_ever - kEvents : 0;
  for (std::uint64_t place = first; place < record.events_ever; ++place) {
    const Event event = read(layout.ring[place % kEvents]);
    if (event.check == check_of(event) && event.sequence == static_cast<std::uint32_t>(place) &&
        event.kind != Kind::none)
      record.events.push_back(event);
  }
  // Threads that write at once may take their places in another order than the time.
  std::stable_sort(record.events.begin(), record.events.end(),
                   [](const Event& one, const Event& other) { return one.nanoseconds < other.nanoseconds; });
  return record;
}

Record read_record(const std::string& path) {
  const std::string bytes = os::read_file(path);
  std::optional<Record> record;
  if (bytes.size() == sizeof(Layout)) {
    const auto layout = std::make_unique<Layout>();
    std::memcpy(static_cast<void*>(layout.get()), bytes.data(), sizeof(Layout));
    record = copy_of(*layout);
  }
  if (!record)
    throw ConfigError(
        fmt::format("{} is no flight record of this version, or no rank has opened it: give those "
                    "that a job wrote, see DEAR_RECORD",
                    path));
  if (record->rank < 0 || record->rank >= record->ranks)
    throw ConfigError(fmt::format("{}: a rank {} of {} cannot be: the record is damaged", path, record->rank,
                                  record->ranks));
  return *record;
}

}  // namespace dear::recorder
