#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/comm/group/group.h"

namespace dear {

// What the all-to-alls of mixtures took on this rank so far.
struct AllToAllStatistics {
  std::int64_t count = 0;
  double seconds = 0;         // from when all ranks had come to each until its end
  double waited_seconds = 0;  // of these, or for other ranks to come: the program waited
  std::int64_t sent_bytes = 0;
};

// The ranks that hold the experts of a model's mixtures, with the all-to-alls of these. They go over a group
// of their own, so that they do not queue behind reductions of gradients. One thread calls, and every rank
// makes the same calls in the same order. Errors are those of the group, which ends with the first one.
class ExpertGroup {
 public:
  // Every rank makes it together.
  explicit ExpertGroup(const Group& group);
  ~ExpertGroup();  // ends the group here and on the peers while an exception unwinds
  ExpertGroup(const ExpertGroup&) = delete;
  ExpertGroup& operator=(const ExpertGroup&) = delete;

  [[nodiscard]] int rank() const { return group_.rank(); }
  [[nodiscard]] int size() const { return group_.size(); }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] const AllToAllStatistics& statistics() const { return statistics_; }

  // From now on spans of all-to-alls and of waits for them are kept, for a trace of the rank.
  void record() { records_ = true; }
  void begin_iteration(std::int64_t iteration) { iteration_ = iteration; }
  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }

  // Memory of an all-to-all: [rank][chunk][room][width]; alike on all ranks.
  struct Shape {
    std::int64_t chunks = 1, room = 0, width = 1;
    DType dtype = DType::f32;
    [[nodiscard]] std::int64_t row_bytes() const { return width * size_of(dtype); }
    auto operator<=>(const Shape&) const = default;
  };
  // One all-to-all from launch() to done().
  class UnderWay {
   public:
    // What this rank sends, written by `fill` of launch(); after wait() what it got.
    [[nodiscard]] std::byte* sent() const { return buffers_.first.data(); }
    [[nodiscard]] std::byte* taken() const { return buffers_.second.data(); }
    [[nodiscard]] const std::vector<std::int64_t>& received() const {
      return counts_->received;
    }  // [rank][chunk]

   private:
    friend class ExpertGroup;
    struct Counts {  // which the collective reads and writes, also where nobody waits for it any more
      std::vector<std::int64_t> sends, received;
      MovedBytes moved;
    };
    std::string what_;
    Shape shape_;
    std::pair<Buffer, Buffer> buffers_;
    std::shared_ptr<Counts> counts_;
    Pending pending_;
    bool waited_ = false;
  };
  // Starts one, of rows that `fill` writes; sends[rank][chunk] of them travel.
  [[nodiscard]] std::shared_ptr<UnderWay> launch(std::string what, const Shape& shape,
                                                 std::vector<std::int64_t> sends,
                                                 const std::function<void(std::byte* rows)>& fill);
  // Returns when it is done, at once where it was waited for. TransportError, and others of the group.
  void wait(UnderWay& under_way);
  // Gives its memory to the next one.
  void done(std::shared_ptr<UnderWay> under_way);

  // Runs `act`; where it throws, ends the group here and on the peers, with its message.
  template <typename Act>
  decltype(auto) or_abort(Act act) {
    try {
      return act();
    } catch (const std::exception& error) {
      group_.abort(error.what());
      throw;
    }
  }

 private:
  const int unwinding_ = std::uncaught_exceptions();
  Group group_;
  std::map<Shape, std::vector<std::pair<Buffer, Buffer>>> free_;
  AllToAllStatistics statistics_;
  bool records_ = false;
  std::int64_t iteration_ = -1;
  std::vector<Span> spans_;
};

}  // namespace dear
