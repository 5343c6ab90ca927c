#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string_view>

namespace dear::studies {

// Who wants to know how far a study is: called with the name of a part of it, such as "training", and how
// many of its pieces are done. Several threads may call at a time.
using Progress = std::function<void(std::string_view part, std::size_t done, std::size_t pieces)>;

// A part of a study, whose pieces are alike: counts them, and tells. Several threads may count.
class Pieces {
 public:
  // `progress` may be empty, and outlives this.
  Pieces(const Progress& progress, std::string_view name, std::size_t pieces)
      : progress_(progress), name_(name), all_(pieces) {}
  void done_one() {
    const std::size_t done = ++done_;
    if (progress_) progress_(name_, done, all_);
  }

 private:
  const Progress& progress_;
  std::string_view name_;
  std::size_t all_;
  std::atomic<std::size_t> done_ = 0;
};

}  // namespace dear::studies
