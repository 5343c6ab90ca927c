#include "dear/base/charts/picture_file.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/charts/svg.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::charts::picture_file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// A folder of its own, and the search path of programs as it was.
class PictureFile : public ::testing::Test {
 protected:
  PictureFile() { std::filesystem::create_directories(folder_); }
  ~PictureFile() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string in_folder(const std::string& name) const { return (folder_ / name).string(); }
  // Makes a converter of this script the only program that is found.
  void convert_by(const std::string& script) const {
    os::write_file_atomically(in_folder("rsvg-convert"), "#!/bin/sh\n" + script);
    std::filesystem::permissions(in_folder("rsvg-convert"), std::filesystem::perms::owner_all);
    ::setenv("PATH", folder_.c_str(), 1);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("dear-pictures-" + std::to_string(::getpid()));
  const std::string path_ = std::getenv("PATH");
  const std::string svg_ = std::move(Svg(50, 20, "a title").text(2, 12, "words")).finish();
};

TEST_F(PictureFile, TheEndingTellsTheFormat) {
  for (const char* const name : {"a.svg", "b.SVG"}) {
    write_picture(in_folder(name), svg_);
    EXPECT_EQ(os::read_file(in_folder(name)), svg_);
  }
  write_picture(in_folder("a.pdf"), svg_);
  EXPECT_THAT(os::read_file(in_folder("a.pdf")), StartsWith("%PDF-"));
  write_picture(in_folder("a.png"), svg_);
  const std::string png = os::read_file(in_folder("a.png"));
  EXPECT_THAT(png, StartsWith("\x89PNG"));
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\0\x64\0\0\0\x28", 8));  // 100 pixels by 40
}

TEST_F(PictureFile, OtherEndingsAreRefused) {
  for (const char* const name : {"a.jpg", "a", "svg", ".png"}) {
    const auto names_endings =
        ThrowsMessage<ConfigError>(AllOf(HasSubstr(name), HasSubstr(".svg, .pdf or .png")));
    EXPECT_THAT([&] { check_picture_path(in_folder(name)); }, names_endings);
    EXPECT_THAT([&] { write_picture(in_folder(name), svg_); }, names_endings);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  check_picture_path("/dev/null");  // no file that a viewer would open
  write_picture("/dev/null", svg_);
}

TEST_F(PictureFile, AMissingConverterIsNamed) {
  check_picture_path(in_folder("a.png"));
  ::setenv("PATH", folder_.c_str(), 1);
  for (const char* const name : {"a.png", "a.pdf"}) {
    const auto names_package = ThrowsMessage<ConfigError>(
        AllOf(HasSubstr(name), HasSubstr("install librsvg2-bin"), HasSubstr(".svg")));
    EXPECT_THAT([&] { check_picture_path(in_folder(name)); }, names_package);
    EXPECT_THAT([&] { write_picture(in_folder(name), svg_); }, names_package);
  }
  check_picture_path(in_folder("a.svg"));
}

TEST_F(PictureFile, AConverterThatFailsLeavesTheOldFile) {
  const std::string file = in_folder("a.pdf");
  os::write_file_atomically(file, "old");
  const auto fails_for = [&](const char* reason) {
    EXPECT_THAT([&] { write_picture(file, svg_); },
                ThrowsMessage<Error>(AllOf(HasSubstr(file), HasSubstr(reason))));
    EXPECT_EQ(os::read_file(file), "old");
  };
  convert_by("echo no font >&2; exit 3");
  fails_for("no font");
  convert_by("exit 3");
  fails_for("code 3");
  convert_by("kill -9 $$");
  fails_for("signal 9");
  convert_by("echo half a picture");
  fails_for("wrote no picture");
}

}  // namespace
}  // namespace dear::charts::picture_file_test
