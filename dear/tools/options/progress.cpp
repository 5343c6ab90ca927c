#include "dear/tools/options/progress.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/tools/options/numbers.h"

namespace dear::cli {
namespace {

constexpr double kRedrawSeconds = 0.2;
constexpr std::int64_t kLines = 10;
constexpr std::int64_t kBarWidth = 20;

constexpr double kLineSeconds = 1, kLongestSilence = 60;

}  // namespace

Progress::Progress(std::ostream& out, Options options) : out_(out), options_(std::move(options)) {}

bool Progress::line_due(std::int64_t done) const {
  std::int64_t power = 1;
  while (power < done) power *= 10;
  return power == done || done * kLines / options_.steps != (done - 1) * kLines / options_.steps;
}

void Progress::update(std::string_view label, std::int64_t done, double loss, double seconds) {
  loss = without_sign_of_nan(loss);
  if (done_ < 0 || done <= done_) begun_at_ = done - 1;
  done_ = done;
  const bool last = done == options_.steps;
  const bool due =
      options_.terminal ? drawn_seconds_ < 0 || seconds - drawn_seconds_ >= kRedrawSeconds : line_due(done);
  if (!due && !last) {
    return;
  }
  drawn_seconds_ = seconds;
  const double steps_per_second = seconds > 0 ? static_cast<double>(done - begun_at_) / seconds : 0;
  const auto characters = std::llround(steps_per_second * static_cast<double>(options_.characters_per_step));
  const std::string speed =
      options_.characters_per_step > 0 ? fmt::format(", {} characters/s", with_separators(characters)) : "";
  const double left =
      steps_per_second > 0 ? static_cast<double>(options_.steps - done) / steps_per_second : 0;
  const std::string time =
      last ? fmt::format("took {}", clock_time(seconds)) : fmt::format("{} left", clock_time(left));
  if (options_.terminal) {
    const auto filled = static_cast<std::size_t>(done * kBarWidth / options_.steps);
    const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
    // The escape sequence at the end erases what is left of a longer line.
    out_ << fmt::format("\r{} [{}] {}/{} loss {:.3f}{}, {}\x1b[K", label, bar, done, options_.steps, loss,
                        speed, time)
         << (last ? "\n" : "");
  } else {
    out_ << fmt::format("{}: step {} of {}, loss {:.3f}{}, {}\n", label, done, options_.steps, loss, speed,
                        time);
  }
  out_.flush();
}

StudyProgress::StudyProgress(std::ostream& out, bool terminal, std::function<double()> clock)
    : out_(out),
      terminal_(terminal),
      clock_(std::move(clock)),
      begun_seconds_(clock_()),
      drawn_seconds_(begun_seconds_) {}

void StudyProgress::update(std::string_view part, std::size_t done, std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  const double now = clock_();
  if (part != part_) {
    begun_seconds_ = part_.empty() ? begun_seconds_ : drawn_seconds_;
    part_ = part;
    done_ = 0;
  }
  if (done <= done_) return;  // another thread was faster
  const std::size_t lines = static_cast<std::size_t>(kLines);
  const bool tenth = done * lines / pieces != std::exchange(done_, done) * lines / pieces;
  const bool last = done == pieces;
  const double silent = now - drawn_seconds_;
  const bool due =
      terminal_ ? silent >= kRedrawSeconds : silent >= kLongestSilence || (tenth && silent >= kLineSeconds);
  if (!due && !last) return;
  drawn_seconds_ = now;
  const double taken = now - begun_seconds_;
  const double left = taken / static_cast<double>(done) * static_cast<double>(pieces - done);
  const std::string time =
      last ? fmt::format("took {}", clock_time(taken)) : fmt::format("{} left", clock_time(left));
  out_ << fmt::format("{}{}: {} of {}, {}{}", terminal_ ? "\r" : "", part, done, pieces, time,
                      terminal_ ? "\x1b[K" : "\n")
       << (terminal_ && last ? "\n" : "");
  out_.flush();
}

}  // namespace dear::cli
