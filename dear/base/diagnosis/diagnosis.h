#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/diagnosis/job_records.h"

namespace dear::diagnose {

// A Diagnosis says why a job ended, or where it stands, as its records have it.
struct Diagnosis {
  enum class Cause : std::uint8_t {
    none,      // nothing is wrong
    failed,    // an exception, or another error of its own
    killed,    // by a signal that the launcher did not send
    exited,    // with a code other than 0, and said nothing
    left,      // ended well while others waited for it
    mismatch,  // ranks came to different collectives
    stopped,   // its process is stopped (state T), or waits for a disk (state D)
    files,     // it reads or writes a checkpoint while others wait
    late,      // it computes while others wait in a collective
    waiting    // all ranks wait in the same collective: the network, or a rank without a record
  };
  Cause cause = Cause::none;
  std::vector<int> culprits;  // ranks, ascending
  std::string what;           // a sentence on them, with their own words where they said some

  struct Difference {  // the first collective that is not the same on all ranks
    std::int64_t number = 0;
    std::vector<std::string> by_rank;  // "" where it is not known
  };
  std::optional<Difference> difference;
  struct OfRank {
    std::string doing;                      // "in collective 41, all-gather of 4096 bytes, for 3.2 s"
    std::optional<double> waited_seconds;   // in all collectives of the records, until the last rank came
    std::optional<double> compute_seconds;  // a step, without exposed communication
    std::optional<double> step_seconds;
    std::int64_t steps = 0;
  };
  std::vector<OfRank> ranks;
  std::optional<int> slowest;    // computes longest
  double slowest_share = 0;      // how much longer than the median rank: 0.2 is 20 %
  std::string first_not_finite;  // "rank 1, step 17: encoder.weight"
  std::vector<std::string> notes;
};

Diagnosis diagnose(const JobRecords& job);
std::string to_text(const JobRecords& job, const Diagnosis& diagnosis);
std::string to_json(const JobRecords& job, const Diagnosis& diagnosis);
std::string_view name_of(Diagnosis::Cause cause);

}  // namespace dear::diagnose
