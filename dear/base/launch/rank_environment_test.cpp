#include "dear/base/launch/rank_environment.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch::rank_environment_test {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const Job kJob{.ranks = 4,
               .local_ranks = 4,
               .master_port = {.port = 4711},
               .run_id = "dear-1-2",
               .cores = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};

TEST(RankEnvironment, SetsTheVariablesOfTorchrun) {
  EXPECT_THAT(rank_environment(kJob, 3, {}, {}),
              UnorderedElementsAre(
                  "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0",
                  "GROUP_WORLD_SIZE=1", "NODE_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711",
                  "TORCHELASTIC_RUN_ID=dear-1-2", "TORCHELASTIC_RESTART_COUNT=0", "OMP_NUM_THREADS=2"));
}

TEST(RankEnvironment, NamesTheSecretAndDoesNotHoldIt) {
  const os::FileDescriptor secret = make_secret(random_secret());
  Job job = kJob;
  job.secret_file = secret_file(secret);
  EXPECT_THAT(rank_environment(job, 0, {}, {}), Contains("DEAR_SECRET_FILE=" + job.secret_file));
  const os::FileDescriptor opened(::open(job.secret_file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  ASSERT_EQ(::fstat(opened.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  std::string bytes(100, '\0');
  ASSERT_EQ(::read(opened.get(), bytes.data(), bytes.size()), 32);
  std::string others(100, '\0');
  ASSERT_EQ(::pread(make_secret(random_secret()).get(), others.data(), others.size(), 0), 32);
  EXPECT_NE(bytes, others);
}

TEST(RankEnvironment, KeepsWhatIsInheritedUnlessItNamesAnotherJob) {
  const auto entries = rank_environment(kJob, 0, {"HOME=/root", "RANK=7", "MASTER_PORT=1", "EMPTY="}, {});
  EXPECT_THAT(entries, Contains("HOME=/root"));
  EXPECT_THAT(entries, Contains("EMPTY="));
  EXPECT_THAT(entries, Contains("RANK=0"));
  EXPECT_THAT(entries, Not(Contains("RANK=7")));
  EXPECT_THAT(entries, Not(Contains("MASTER_PORT=1")));
}

TEST(RankEnvironment, LetsTheUserAndThenTheCallerChooseThreads) {
  EXPECT_THAT(rank_environment(kJob, 0, {"OMP_NUM_THREADS=9"}, {}), Contains("OMP_NUM_THREADS=9"));
  const auto entries = rank_environment(kJob, 0, {"OMP_NUM_THREADS=9"}, {{"OMP_NUM_THREADS", "3"}});
  EXPECT_THAT(entries, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(entries, Not(Contains("OMP_NUM_THREADS=9")));
}

TEST(RankEnvironment, GivesARankAtLeastOneThread) {
  EXPECT_THAT(
      rank_environment(
          {.ranks = 64, .local_ranks = 64, .master_port = {.port = 1}, .run_id = "r", .cores = {0, 1}}, 0, {},
          {}),
      Contains("OMP_NUM_THREADS=1"));
}

TEST(RankEnvironment, CountsRanksOfThisHost) {
  Job job = kJob;
  job.ranks = 6;
  job.first_rank = 2;
  job.host = 1;
  job.hosts = 2;
  job.master_address = "10.0.0.1";
  const auto entries = rank_environment(job, 5, {}, {});
  for (const char* const entry :
       {"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
        "MASTER_ADDR=10.0.0.1", "OMP_NUM_THREADS=2"})
    EXPECT_THAT(entries, Contains(entry));
}

TEST(DescribeJob, HasANameOfItsOwn) {
  const Job job = describe_job(2);
  EXPECT_NE(job.run_id, describe_job(2).run_id);
  EXPECT_FALSE(job.cores.empty());
}

// Nobody else gets the port between the launcher and rank 0.
TEST(DescribeJob, HoldsItsPortForWhoListensThere) {
  const Job job = describe_job(2);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(job.master_port.port);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  const os::FileDescriptor stranger(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_NE(::bind(stranger.get(), generic, sizeof address), 0);
  const os::FileDescriptor rank_0(::socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  ASSERT_EQ(::setsockopt(rank_0.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  EXPECT_EQ(::bind(rank_0.get(), generic, sizeof address), 0);
  EXPECT_EQ(::listen(rank_0.get(), 1), 0);
}

}  // namespace
}  // namespace dear::launch::rank_environment_test
