#include "dear/base/os/module.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"

// It is declared as in the module: which of the two do its own functions call?
extern "C" __attribute__((visibility("default"), used)) int dear_example_common() { return 2; }

namespace dear::os::module_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Function>
std::string config_error_of(const Function& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Module, FunctionsOfAModuleCanBeCalled) {
  const Module module = Module::open("dear_example_module");
  EXPECT_EQ(module.function<int(int)>("dear_example_double")(21), 42);
}

TEST(Module, ErrorsCrossItsBorder) {
  const Module module = Module::open("dear_example_module");
  EXPECT_THROW(module.function<void()>("dear_example_throw")(), TimeoutError);
}

// A test of its own for each way of loading: what is loaded stays.
int common_of(const Module& module) { return module.function<int()>("dear_example_call_common")(); }

TEST(Module, FindsSymbolsOfTheProgramFirst) { EXPECT_EQ(common_of(Module::open("dear_example_module")), 2); }

TEST(Module, CanBeKeptApartFromTheProgram) {
  const auto open = [] { return Module::open_apart("dear_example_apart_module", "dear_example_common"); };
  if (!dear::testing::kSanitizer) {
    EXPECT_EQ(common_of(open()), 1);
    return;
  }
  EXPECT_THAT(config_error_of(open), HasSubstr("a build with sanitizers"));
  EXPECT_EQ(common_of(Module::open_apart("dear_example_apart_module", "dear_no_such_function")), 2);
}

TEST(Module, SaysWhereItLookedForOneThatIsMissing) {
  EXPECT_FALSE(Module::exists("dear_no_such_module"));
  const std::string message = config_error_of([] { Module::open("dear_no_such_module"); });
  EXPECT_THAT(message, HasSubstr("libdear_no_such_module.so"));
  for (const std::string& directory : Module::directories()) EXPECT_THAT(message, HasSubstr(directory));
}

TEST(Module, IsLookedForBesideTheProgram) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_THAT(Module::directories(), Contains((program.parent_path() / "modules").string()));
}

// For the test below, which runs it elsewhere.
TEST(Module, DISABLED_PrintsItsDirectories) {
  for (const std::string& directory : Module::directories())
    std::printf("looks into %s\n", directory.c_str());
}

// The folder of a build may be anybody's on the machine where the program is installed.
TEST(Module, IsNotLookedForInTheBuildFolderByAProgramThatLiesElsewhere) {
  const std::string here = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string folder = ::testing::TempDir() + "dear_module_test_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder + "/bin");
  const std::string copy = folder + "/bin/copy";
  std::filesystem::copy_file(here, copy, std::filesystem::copy_options::overwrite_existing);
  const auto looked_into = [](const std::string& program) {
    const std::string command =
        program + " --gtest_also_run_disabled_tests --gtest_filter=Module.DISABLED_PrintsItsDirectories";
    std::string output;
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
    EXPECT_EQ(::pclose(pipe), 0) << output;
    return output;
  };
  const std::string module = Module::open("dear_example_module").path();
  const std::string build = "looks into " + module.substr(0, module.rfind('/')) + "\n";
  EXPECT_THAT(looked_into(here), HasSubstr(build));
  const std::string elsewhere = looked_into(copy);
  EXPECT_THAT(elsewhere, AllOf(HasSubstr("looks into " + folder), Not(HasSubstr(build))));
  std::filesystem::remove_all(folder);
}

TEST(Module, NamesAFunctionThatIsMissing) {
  EXPECT_TRUE(Module::exists("dear_example_module"));
  const Module module = Module::open("dear_example_module");
  EXPECT_THAT(config_error_of([&] { static_cast<void>(module.symbol("dear_nothing")); }),
              AllOf(HasSubstr("dear_nothing"), HasSubstr(module.path())));
}

TEST(Module, SaysWhyOneCannotBeLoaded) {
  EXPECT_THAT(config_error_of([] { Module::open("dear_broken_module"); }),
              AllOf(HasSubstr("cannot load the module"), HasSubstr("libdear_broken_module.so")));
}

}  // namespace
}  // namespace dear::os::module_test
