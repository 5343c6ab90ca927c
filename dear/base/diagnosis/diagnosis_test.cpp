#include "dear/base/diagnosis/diagnosis.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/collective.h"
#include "dear/base/vocabulary/error.h"

namespace dear::diagnose {
namespace {

using recorder::Event;
using recorder::Kind;
using recorder::Record;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using Cause = Diagnosis::Cause;

constexpr std::int64_t kMillisecond = 1'000'000;

// A record in milliseconds.
class Writer {
 public:
  Writer(int rank, int ranks) : record_{.rank = rank, .ranks = ranks, .pid = 1000 + rank} {
    record_.realtime_minus_monotonic =
        1'700'000'000'000'000'000 - 17 * kMillisecond * rank;  // clocks of hosts
  }
  Writer& collective(std::int64_t number, std::int64_t begin, std::int64_t end = -1,
                     std::int64_t bytes = 4096) {
    add(begin, Kind::begun, number, bytes);
    if (end >= 0) add(end, Kind::ended, number, bytes);
    return *this;
  }
  Writer& add(std::int64_t time, Kind kind, std::int64_t number = 0, std::int64_t first = 0) {
    record_.events.push_back({.nanoseconds = kMillisecond * (time + 17 * record_.rank),
                              .number = number,
                              .first = first,
                              .second = -1,
                              .kind = kind,
                              .collective = static_cast<std::uint8_t>(Collective::all_gather)});
    return *this;
  }
  Writer& steps(std::int64_t count, double step, double exposed) {
    record_.steps = count;
    record_.step_nanoseconds = static_cast<std::int64_t>(1e9 * step) * count;
    record_.exposed_nanoseconds = static_cast<std::int64_t>(1e9 * exposed) * count;
    return *this;
  }
  Writer& fails(std::int64_t time, const std::string& why, bool own) {
    record_.failure =
        Record::Failure{.nanoseconds = kMillisecond * (time + 17 * record_.rank), .text = why, .own = own};
    return *this;
  }
  operator RankSeen() const {
    RankSeen seen;
    seen.record = record_;
    return seen;
  }

 private:
  Record record_;
};

JobRecords job_of(std::vector<RankSeen> seen) {
  JobRecords job;
  job.ranks = static_cast<int>(seen.size());
  job.seen = std::move(seen);
  return job;
}

RankSeen ended(RankSeen seen, int code, int signal, bool told = false) {
  seen.ended = true;
  seen.code = code;
  seen.signal = signal;
  seen.told_to_end = told;
  return seen;
}

TEST(Diagnosis, NamesWhoDidNotComeAndHowLongOthersWaited) {
  const JobRecords job = job_of({Writer(0, 3).collective(0, 10, 40).collective(1, 50, 60).collective(2, 70),
                                 Writer(1, 3).collective(0, 30, 40).collective(1, 45, 60),
                                 Writer(2, 3).collective(0, 25, 40).collective(1, 50, 60).collective(2, 71)});
  const Diagnosis found = diagnose(job);
  EXPECT_EQ(found.cause, Cause::late);
  EXPECT_THAT(found.culprits, ElementsAre(1));
  EXPECT_THAT(found.what, HasSubstr("rank 1 computes"));
  EXPECT_NEAR(*found.ranks[0].waited_seconds, 0.020 + 0.001, 1e-9);
  EXPECT_NEAR(*found.ranks[1].waited_seconds, 0.005, 1e-9);
  EXPECT_THAT(found.ranks[0].doing, HasSubstr("collective 2 of group 0, all-gather of 4096 bytes"));
  EXPECT_THAT(to_text(job, found), HasSubstr("rank 1 computes"));
}

TEST(Diagnosis, BelievesTheFirstCauseAndNotItsConsequences) {
  JobRecords job = job_of({Writer(0, 3).fails(90, "rank 1 failed: ValueError: poison", false),
                           Writer(1, 3).fails(80, "rank 1 failed: ValueError: poison", true),
                           Writer(2, 3).fails(85, "rank 0 lost its connection", false)});
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  EXPECT_EQ(diagnose(job).cause, Cause::failed);
  EXPECT_THAT(diagnose(job).what, HasSubstr("ValueError: poison"));
  job.seen[1].record.reset();  // its record is missing, and the launcher knows
  job.verdict = JobRecords::Verdict{.rank = 1, .cause = "ValueError: poison (a.py:3)"};
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  EXPECT_THAT(diagnose(job).what, HasSubstr("a.py:3"));
}

TEST(Diagnosis, TellsThoseWhoWereKilledFromThoseWhomTheLauncherEnded) {
  JobRecords job = job_of({ended(Writer(0, 3).fails(90, "rank 2 died", false), 1, 0),
                           ended(Writer(1, 3).collective(0, 5), 0, SIGTERM, true),
                           ended(Writer(2, 3).collective(0, 5), 0, SIGKILL)});
  EXPECT_EQ(diagnose(job).cause, Cause::killed);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(2));
  EXPECT_THAT(diagnose(job).what, HasSubstr("9 (SIGKILL)"));
  job.seen[2].record.reset();
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(2));
  job.seen[2] = ended(Writer(2, 3).collective(0, 5), 3, 0);
  EXPECT_EQ(diagnose(job).cause, Cause::exited);
  job.seen[2] = ended(Writer(2, 3).collective(0, 1, 2), 0, 0);
  EXPECT_EQ(diagnose(job).cause, Cause::left);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(2));
}

TEST(Diagnosis, BlamesNobodyForAnExitThatOthersExplain) {
  const std::string late = "rank 1 (pid 1001) did not come within 3 s while others wait in collective 4";
  JobRecords job = job_of({ended(Writer(0, 3).collective(4, 5).fails(90, late, false), 1, 0),
                           ended(Writer(1, 3).collective(3, 1, 2), 0, SIGTERM, true),
                           ended(Writer(2, 3).collective(4, 5).fails(90, late, false), 1, 0)});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(diagnose(job).cause, Cause::late);
    EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
    job.seen[2].record.reset();
  }
  job.seen[0] = ended(
      Writer(0, 3).fails(90, "collective 4: rank 1 asks for a barrier, rank 0 for an all-gather", false), 1,
      0);
  EXPECT_NE(diagnose(job).culprits, std::vector<int>{2});
  // The one that is late is given the verdict, too.
  job.seen[0] = ended(Writer(0, 3).collective(4, 5).fails(90, late, false), 1, 0);
  job.seen[1] = ended(Writer(1, 3).collective(3, 1, 2).fails(90, late, false), 0, SIGTERM, true);
  EXPECT_EQ(diagnose(job).cause, Cause::late);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  // A rank whose record is missing is the one that others name.
  job.seen[0] = ended(Writer(0, 3).collective(4, 5).fails(90, "rank 2 (pid 1002) died", false), 1, 0);
  EXPECT_EQ(diagnose(job).cause, Cause::exited);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(2));
}

TEST(Diagnosis, FindsTheMinorityInWhatRanksSayOfEachOther) {
  const std::string differ =
      "collective 143: ranks 1, 2 ask for reduce-scatter of 2352 fp32, average (label 2), rank 0 for an "
      "allocation "
      "of 192 bytes: every rank must issue the same collectives in the same order";
  JobRecords job =
      job_of({Writer(0, 3).fails(90, differ, false), Writer(1, 3).collective(89, 5).fails(90, differ, false),
              Writer(2, 3).collective(89, 5).fails(90, differ, false)});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(diagnose(job).cause, Cause::mismatch);
    EXPECT_THAT(diagnose(job).culprits, ElementsAre(0));
    EXPECT_EQ(diagnose(job).what, differ);
    job.seen[0].record.reset();
  }
}

TEST(Diagnosis, AddsRanksThatTheSentenceDoesNotName) {
  const std::string differ =
      "collective 143: rank 2 asks for an allocation of 192 bytes, rank 0 for reduce-scatter of 2352 fp32, "
      "average (label 2): every rank must issue the same collectives in the same order";
  const auto sums = [&](int rank) {
    return ended(Writer(rank, 4).collective(89, 5, -1, 9408).fails(90, differ, false), 1, 0);
  };
  const JobRecords all =
      job_of({sums(0), sums(1), ended(Writer(2, 4).collective(89, 5, -1, 192).fails(90, differ, false), 1, 0),
              sums(3)});
  for (int hidden = -1; hidden < 4; ++hidden) {
    JobRecords job = all;
    if (hidden >= 0) job.seen[static_cast<std::size_t>(hidden)].record.reset();
    EXPECT_EQ(diagnose(job).cause, Cause::mismatch) << hidden;
    EXPECT_THAT(diagnose(job).culprits, ElementsAre(2)) << hidden;
    EXPECT_EQ(diagnose(job).what, differ);
  }
}

TEST(Diagnosis, BelievesOthersWhereARankThatLeftHasNoRecord) {
  JobRecords job =
      job_of({Writer(0, 2).collective(4, 5).fails(90, "rank 1 left the group while others wait", false),
              ended(Writer(1, 2), 0, 0)});
  job.seen[1].ended = false;
  job.seen[1].record.reset();
  EXPECT_EQ(diagnose(job).cause, Cause::left);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
}

TEST(Diagnosis, BelievesOthersWhereARankWasEndedOnItsWayOut) {
  const JobRecords job = job_of(
      {ended(Writer(0, 2).collective(4, 5).fails(90, "rank 1 left the group while others wait", false), 1, 0),
       ended(Writer(1, 2).collective(3, 1, 2), 0, SIGTERM, true)});
  EXPECT_EQ(diagnose(job).cause, Cause::left);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
}

TEST(Diagnosis, KnowsTheEndOfATrainingWithinAStep) {
  for (const char* const sides : {"rank 2 asks for the end of its DataParallel between a backward pass and "
                                  "step(), rank 0 for all-gather "
                                  "of 2352 fp32 (label 0)",
                                  "ranks 0, 1 ask for all-gather of 2352 fp32 (label 0), rank 2 for the end "
                                  "of its DataParallel between "
                                  "a backward pass and step()"}) {
    const std::string differ = fmt::format(
        "collective 140: {}: every rank must issue the same collectives in the same order", sides);
    JobRecords job = job_of({Writer(0, 3).collective(89, 2).fails(90, differ, false),
                             Writer(1, 3).collective(89, 2).fails(90, differ, false),
                             Writer(2, 3).fails(90, differ, false)});
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(diagnose(job).cause, Cause::left) << sides;
      EXPECT_THAT(diagnose(job).culprits, ElementsAre(2)) << sides;
      job.seen[2].record.reset();
    }
  }
}

TEST(Diagnosis, ComparesCollectives) {
  const JobRecords job = job_of({Writer(0, 3).collective(0, 1, 2).collective(1, 3, -1, 4096),
                                 Writer(1, 3).collective(0, 1, 2).collective(1, 3, -1, 4096),
                                 Writer(2, 3).collective(0, 1, 2).collective(1, 3, -1, 8192)});
  const Diagnosis found = diagnose(job);
  EXPECT_EQ(found.cause, Cause::mismatch);
  EXPECT_THAT(found.culprits, ElementsAre(2));
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->number, 1);
  EXPECT_THAT(found.difference->by_rank[2], HasSubstr("8192"));
}

TEST(Diagnosis, LooksAtProcessesAndFiles) {
  JobRecords job = job_of({Writer(0, 2).collective(0, 1), Writer(1, 2).add(1, Kind::files)});
  EXPECT_EQ(diagnose(job).cause, Cause::files);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  job.seen[1].state = 'T';
  EXPECT_EQ(diagnose(job).cause, Cause::stopped);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  job = job_of({Writer(0, 2).collective(4, 1), Writer(1, 2).collective(3, 1)});
  EXPECT_EQ(diagnose(job).cause, Cause::late);
  EXPECT_THAT(diagnose(job).culprits, ElementsAre(1));
  job = job_of({Writer(0, 2).collective(4, 1), Writer(1, 2).collective(4, 1)});
  EXPECT_EQ(diagnose(job).cause, Cause::waiting);
  job = job_of({Writer(0, 2).collective(4, 1, 2), Writer(1, 2).collective(4, 1, 2)});
  EXPECT_EQ(diagnose(job).cause, Cause::none);
  EXPECT_THAT(diagnose(job).culprits, IsEmpty());
}

TEST(Diagnosis, FindsTheSlowestAndTheFirstNan) {
  RankSeen slow = Writer(1, 3).steps(10, 0.100, 0.010);
  Event nan{.nanoseconds = 5, .number = 7, .kind = Kind::not_finite};
  std::copy_n("b.weight", 8, nan.text.begin());
  slow.record->events.push_back(nan);
  const JobRecords job =
      job_of({Writer(0, 3).steps(10, 0.100, 0.040), slow, Writer(2, 3).steps(10, 0.100, 0.040)});
  const Diagnosis found = diagnose(job);
  EXPECT_EQ(found.slowest, 1);
  EXPECT_NEAR(found.slowest_share, 0.5, 1e-9);
  EXPECT_EQ(found.first_not_finite, "rank 1, step 7: b.weight");
  const auto json = nlohmann::json::parse(to_json(job, found));
  EXPECT_EQ(json["slowest"]["rank"], 1);
  EXPECT_EQ(json["cause"], "none");
}

TEST(JobRecords, AreRefusedWhereThereAreNone) {
  const std::string folder = ::testing::TempDir() + "no-records";
  std::filesystem::remove_all(folder);
  EXPECT_THAT([&] { read_folder(folder); }, ThrowsMessage<ConfigError>(HasSubstr("No such file")));
  std::filesystem::create_directories(folder);
  EXPECT_THAT([&] { read_folder(folder); }, ThrowsMessage<ConfigError>(HasSubstr("no record of a job")));
  std::ofstream(folder + "/rank-0.record") << "damaged";
  EXPECT_THAT([&] { read_folder(folder); }, ThrowsMessage<ConfigError>(HasSubstr("no flight record")));
  std::ofstream(folder + "/job.json")
      << R"({"format": "dear-job-record", "version": 1, "ranks": 2, "members": [
      {"rank": 0, "pid": 5, "ended": true, "code": 3, "signal": 0, "told_to_end": false},
      {"rank": 1, "pid": 6, "ended": false}]})";
  const JobRecords job = read_folder(folder);
  EXPECT_EQ(job.unread.size(), 1);
  EXPECT_EQ(diagnose(job).cause, Cause::exited);
  for (const char* wrong :
       {"{", "[]", R"({"format": "dear-job-record", "version": 1, "ranks": 100000000,
      "members": []})",
        R"({"format": "dear-job-record", "version": 1, "ranks": 1, "members": [{"rank": -1}]})"}) {
    std::ofstream(folder + "/job.json") << wrong;
    EXPECT_THAT([&] { read_folder(folder); }, ThrowsMessage<ConfigError>(HasSubstr("no record of a job")))
        << wrong;
  }
  EXPECT_THAT([] { read_live(1 << 30); }, ThrowsMessage<ConfigError>(HasSubstr("process 1073741824")));
}

}  // namespace
}  // namespace dear::diagnose
