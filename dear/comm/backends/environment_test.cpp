#include "dear/comm/backends/environment.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::environment_test {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  });
}

std::string complaint(const Variables& variables) {
  try {
    read(variables);
    return "none";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "run1"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                         {"PMIX_NAMESPACE", "prterun-7@1"}};
const Variables kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "9"},
                       {"SLURM_STEP_NUM_TASKS", "11"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}};

TEST(Environment, WithoutALauncherIsAWorldOfOne) {
  const LaunchEnvironment found = read({{"PATH", "/bin"}, {"RANK", ""}});
  EXPECT_EQ(found.launcher, "none");
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.size, 1);
  EXPECT_EQ(found.local_size, 1);
}

TEST(Environment, UnderstandsTorchrun) {
  const LaunchEnvironment found = read(kTorchrun);
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 4);
  EXPECT_EQ(found.rendezvous, "torchrun node7:29500 run1");
  EXPECT_NE(read(with(kTorchrun, {{"MASTER_PORT", "29501"}})).rendezvous, found.rendezvous);
  EXPECT_NE(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "run2"}})).rendezvous, found.rendezvous);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "0"}})).rendezvous, found.rendezvous);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).rendezvous,
            "torchrun node7:29500 run1 restart 2");
}

TEST(Environment, TakesTheMeetingAddressWithAnyLauncher) {
  const LaunchEnvironment torchrun = read(kTorchrun);
  EXPECT_EQ(torchrun.master_address, "node7");
  EXPECT_EQ(torchrun.master_port, 29500);
  const LaunchEnvironment mpi = read(
      with(kOpenMpi, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4711"}, {"GLOO_SOCKET_IFNAME", "eth1"}}));
  EXPECT_EQ(mpi.master_address, "node1");
  EXPECT_EQ(mpi.master_port, 4711);
  EXPECT_EQ(mpi.network_interface, "eth1");
  EXPECT_EQ(read(kOpenMpi).master_address, "");
  EXPECT_EQ(read(kOpenMpi).master_port, 0);
}

TEST(Environment, MeetsOnTheFirstHostOfAStepOfSlurm) {
  for (const auto& [list, first] :
       std::map<std::string, std::string>{{"gpu[03-07,9],cpu1", "gpu03"},
                                          {"gpu[5,7]", "gpu5"},
                                          {"rack[1-2]node[04-05].lan,x", "rack1node04.lan"},
                                          {"cpu1,gpu[1-2]", "cpu1"},
                                          {"cpu1", "cpu1"}}) {
    const LaunchEnvironment found = read(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}));
    EXPECT_EQ(found.master_address, first) << list;
    EXPECT_EQ(found.master_port, 20'000 + 7 * 77) << list;
  }
  const LaunchEnvironment said = read(
      with(kSlurm, {{"SLURM_STEP_NODELIST", "cpu[1-2]"}, {"MASTER_ADDR", "cpu7"}, {"MASTER_PORT", "4711"}}));
  EXPECT_EQ(said.master_address, "cpu7");
  EXPECT_EQ(said.master_port, 4711);
  EXPECT_EQ(read(kSlurm).master_address, "");
}

TEST(Environment, LeavesThePortAtWhichTheAgentOfTorchrunListens) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).master_port, 29501);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port, 29500);
}

TEST(Environment, KnowsTheJobOnAllHostsWhereTheLauncherSaysIt) {
  EXPECT_EQ(read(kTorchrun).job, "run1");
  EXPECT_EQ(read(kSlurm).job, "77.0");
  EXPECT_EQ(read(kOpenMpi).job, "");
  EXPECT_EQ(read(kMpich).job, "");
}

TEST(Environment, ARestartAndARendezvousAreJobsOfTheirOwn) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).job, "");
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "0"}})).job, "run1");
  const Variables again = with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(read(with(again, {{"LOCAL_WORLD_SIZE", again.at("WORLD_SIZE")}, {"LOCAL_RANK", "5"}})).job,
            "run1 restart 2");
  EXPECT_EQ(read(again).job, "run1");  // agents of several hosts count apart
  EXPECT_EQ(read(again).restarts, 0);
  EXPECT_EQ(read(with(kOpenMpi, {{"DEAR_RENDEZVOUS", "x"}})).job, " given x");
}

TEST(Environment, KnowsWhereRanksThatComeAndGoCommit) {
  EXPECT_EQ(read(kTorchrun).elastic_folder, "");
  EXPECT_EQ(read(with(kTorchrun, {{"DEAR_ELASTIC_FOLDER", "/x"}})).elastic_folder, "/x");
}

TEST(Environment, ReadsASecretThatIsThisUsersAlone) {
  EXPECT_EQ(read_secret(read(kTorchrun).secret_file), "");
  EXPECT_EQ(read(with(kTorchrun, {{"DEAR_SECRET_FILE", "/x"}})).secret_file, "/x");
  const std::string path = ::testing::TempDir() + "dear_secret_" + std::to_string(::getpid());
  const auto write = [&](const std::string& text, int mode) {
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), static_cast<mode_t>(mode)), 0);
  };
  const auto refusal = [](const std::string& file) {
    try {
      return read_secret(file);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  write("a secret of 24 bytes ...", 0600);
  EXPECT_EQ(read_secret(path), "a secret of 24 bytes ...");
  for (const int mode : {0640, 0604, 0660}) {
    write("a secret of 24 bytes ...", mode);
    EXPECT_THAT(refusal(path), HasSubstr("chmod 600"));
  }
  write("short", 0600);
  EXPECT_THAT(refusal(path), HasSubstr("16 to 4096"));
  write(std::string(5000, 'x'), 0600);
  EXPECT_THAT(refusal(path), HasSubstr("too many"));
  std::remove(path.c_str());
  EXPECT_THAT(refusal(path), HasSubstr("cannot open"));
  EXPECT_THAT(refusal("/tmp"), HasSubstr("DEAR_SECRET_FILE"));
}

TEST(Environment, KnowsItsOwnLauncherByTheRunId) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "dear-1-2"}})).launcher, "dear launch");
}

TEST(Environment, TakesAGivenRendezvousAndRanksSetByHand) {
  const LaunchEnvironment found = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"DEAR_RENDEZVOUS", "job 5"}});
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.rendezvous, "given job 5");
  EXPECT_EQ(read(with(kMpich, {{"DEAR_RENDEZVOUS", "mine"}})).rendezvous, "given mine");
}

TEST(Environment, UnderstandsOpenMpi) {
  const LaunchEnvironment found = read(kOpenMpi);
  EXPECT_EQ(found.launcher, "Open MPI");
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.local_size, 3);
  EXPECT_EQ(found.rendezvous, "openmpi prterun-7@1");
  Variables older = kOpenMpi;
  older.erase("PMIX_NAMESPACE");
  older["OMPI_MCA_ess_base_jobid"] = "1234";
  EXPECT_EQ(read(older).rendezvous, "openmpi 1234");
}

TEST(Environment, UnderstandsMpich) {
  const LaunchEnvironment found = read(kMpich);
  EXPECT_EQ(found.launcher, "MPICH");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_THAT(found.rendezvous, ::testing::MatchesRegex("mpich parent [0-9]+ started at [0-9]+"));
  EXPECT_EQ(read(kMpich).rendezvous, found.rendezvous);
}

TEST(Environment, UnderstandsSlurm) {
  const LaunchEnvironment found = read(kSlurm);
  EXPECT_EQ(found.launcher, "Slurm");
  EXPECT_EQ(found.rank, 9);
  EXPECT_EQ(found.size, 11);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 3);
  EXPECT_EQ(found.rendezvous, "slurm 77.0");
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_NODEID", "1"}})).local_size, 4);
  // A script that sets RANK and WORLD_SIZE itself, and nothing of which ranks are local.
  const Variables by_hand =
      with(kSlurm, {{"RANK", "9"}, {"WORLD_SIZE", "11"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "4711"}});
  EXPECT_EQ(read(by_hand).local_size, 3);
  EXPECT_EQ(read(by_hand).local_rank, 1);
  EXPECT_EQ(read(with(by_hand, {{"WORLD_SIZE", "12"}})).local_size, 12);  // not the ranks of this step
  EXPECT_EQ(read(with(by_hand, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})).local_size, 1);
  EXPECT_EQ(read(with(without(kTorchrun, "LOCAL_RANK"), {{"LOCAL_WORLD_SIZE", "1"}})).local_rank, 0);
}

TEST(Environment, TakesSlurmsVariablesOnlyUnderSrun) {
  Variables script{
      {"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(read(script).launcher, "none");
  // srun that speaks PMI to its tasks is still srun.
  EXPECT_EQ(read(with(kSlurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}})).launcher, "Slurm");
}

TEST(Environment, TakesTheFirstLauncherThatMatches) {
  Variables all = with(with(kSlurm, kMpich), kOpenMpi);
  EXPECT_EQ(read(all).launcher, "Open MPI");
  EXPECT_EQ(read(with(all, kTorchrun)).launcher, "torchrun");
}

struct Wrong {
  const char* name;
  Variables variables;
  const char* says;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongEnvironment : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongEnvironment, IsNamed) {
  EXPECT_THAT(complaint(GetParam().variables), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WrongEnvironment,
    ::testing::Values(
        Wrong{"NoSize", without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE is not set"},
        Wrong{"NoRank", {{"WORLD_SIZE", "2"}}, "RANK is not set"},
        Wrong{"NoPort", without(kTorchrun, "MASTER_PORT"), "MASTER_PORT is not set"},
        Wrong{"NotANumber", with(kTorchrun, {{"RANK", "five"}}), "RANK is \"five\""},
        Wrong{"Trailing", with(kTorchrun, {{"RANK", "5x"}}), "RANK is \"5x\""},
        Wrong{"Negative", with(kTorchrun, {{"RANK", "-1"}}), "RANK is \"-1\""},
        Wrong{"TooLarge", with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE is \"99999999999\""},
        Wrong{"RankBeyondSize", with(kTorchrun, {{"RANK", "8"}}), "RANK is 8 and WORLD_SIZE is 8"},
        Wrong{"NoRanks", with(kTorchrun, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE is 0"},
        Wrong{"LocalUnknown", without(kTorchrun, "LOCAL_RANK"),
              "LOCAL_WORLD_SIZE is 4 of 8, and LOCAL_RANK is not set"},
        Wrong{"LocalBeyond", with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK is 4"},
        Wrong{"LocalSizeBeyond", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE is 9"},
        Wrong{"BadPort", with(kTorchrun, {{"MASTER_PORT", "http"}}), "MASTER_PORT is \"http\""},
        Wrong{"OpenMpiNoSize", without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"},
        Wrong{"OpenMpiNoRank", without(kOpenMpi, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
        Wrong{"MpichNoSize", without(kMpich, "PMI_SIZE"), "PMI_SIZE is not set"},
        Wrong{"SlurmNoRank", without(kSlurm, "SLURM_PROCID"), "SLURM_PROCID is not set"},
        Wrong{"SlurmNoNode", without(kSlurm, "SLURM_NODEID"), "SLURM_NODEID is not set"},
        Wrong{"SlurmNoTasks", without(kSlurm, "SLURM_STEP_TASKS_PER_NODE"),
              "SLURM_STEP_TASKS_PER_NODE is not set"},
        Wrong{"SlurmBadTasks", with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x"}}),
              "SLURM_STEP_TASKS_PER_NODE is"},
        Wrong{"SlurmNodeBeyond", with(kSlurm, {{"SLURM_NODEID", "3"}}), "SLURM_NODEID be one of them"},
        Wrong{"SlurmLocalBeyond", with(kSlurm, {{"SLURM_LOCALID", "3"}}), "SLURM_LOCALID is 3"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dear::environment_test
