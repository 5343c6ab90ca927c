#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dear/base/recorder/record.h"

// Writes the flight record of this process. DEAR_RECORD says where: a folder, in which the file is
// rank-R.record, or such a file. Without it nothing is recorded, and a call costs a load and a branch. From
// any thread; nothing here throws but open(), and nothing is recorded in a child that was forked.
namespace dear::recorder {

// Opens the record of this rank, once in a process; later calls do nothing. ConfigError naming the path where
// that cannot be written.
void open(int rank, int ranks);
[[nodiscard]] bool is_open();
// This process goes on with other ranks: forgets events and a failure, and counts groups from 0 again, as
// those of the others do. Its groups have ended.
void begin_again(int rank, int ranks);
// A number for a group of this process.
std::uint16_t next_group();

struct Note {
  Kind kind = Kind::none;
  std::int64_t number = 0, first = 0, second = 0;
  std::uint8_t collective = 0;
  std::uint16_t group = 0;
  std::string_view text{};
};
void note(const Note& what);
// A step has ended that took so many seconds, of which it waited `exposed` for others.
void note_step(std::int64_t number, double seconds, double exposed);
// The training goes on from a checkpoint of this step.
void note_first_step(std::int64_t step);
// So many steps of the whole training are done, of which some may have been given up and repeated here.
void note_progress(std::int64_t steps);
// Something is not finite in this step: a sentence that names a tensor in quotation marks.
void note_not_finite(std::int64_t step, std::string_view what);
// Why this rank fails; the first counts. `own`: it is no consequence of another rank's failure.
void note_failure(std::string_view why, bool own);
// Python's stacks are written when this signal comes. Also before open().
void note_stacks(int signal);

// Where this process is, for those that ask while it runs. It is kept without a record, too. A collective is
// the last one of any group that this process came to.
struct Standing {
  std::int64_t steps = 0;  // that have ended
  std::int64_t collective = -1;
  std::uint8_t kind = 0;  // a Collective, or an allocation
  bool in_collective = false;
  bool at_files = false;  // of a checkpoint
};
Standing standing();
void come_to_collective(std::int64_t number, std::uint8_t kind);
void leave_collective();

// This rank reads or writes files of a checkpoint as long as this lives.
class Files {
 public:
  explicit Files(std::string_view path);
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files();
};

}  // namespace dear::recorder
