// Files of records: what is written is read, and what is damaged is refused with one sentence.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/archive/crc32.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/base/vocabulary/error.h"

namespace dear::archive::zip_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Zip : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "dear-zip-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name = "file") const { return (folder_ / name).string(); }
  [[nodiscard]] std::string content() const { return os::read_file(path()); }
  void write(const std::string& content) const { std::ofstream(path(), std::ios::binary) << content; }

  void write_some() const {
    ZipWriter writer(path());
    writer.add("data.pkl", std::string_view("a pickle"));
    writer.add("data/0", std::string(1000, 'x'));
    writer.add("data/1", std::string_view());
    writer.finish();
  }
  // Opens and verifies; the message of the refusal, or "".
  [[nodiscard]] std::string refusal() const {
    try {
      ZipReader(path()).verify();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  fs::path folder_;
};

TEST(Crc32, IsThatOfZip) {
  const auto of = [](std::string_view text) { return crc32(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of("123456789"), 0xCBF43926U);
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
  const std::string_view whole = "The quick brown fox jumps over the lazy dog";
  const auto bytes = std::as_bytes(std::span(whole));
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
    EXPECT_EQ(crc32(bytes.subspan(cut), crc32(bytes.first(cut))), 0x414FA339U);
}

TEST_F(Zip, GivesBackWhatWasWritten) {
  write_some();
  const ZipReader reader(path());
  EXPECT_TRUE(reader.sealed());
  EXPECT_EQ(reader.read_text("data.pkl"), "a pickle");
  EXPECT_EQ(reader.read_text("data/0"), std::string(1000, 'x'));
  EXPECT_EQ(reader.read_text("data/1"), "");
  EXPECT_EQ(reader.extent_of("data/0").begin % 64, 0U);
  reader.verify();
  std::string part(3, ' ');
  reader.read_part("data.pkl", 2, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "pic");
  EXPECT_THAT([&] { reader.read_part("data.pkl", 6, std::as_writable_bytes(std::span(part))); },
              ThrowsMessage<ConfigError>(HasSubstr("cut short")));
  EXPECT_THAT([&] { static_cast<void>(reader.extent_of("data/2")); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(path()), HasSubstr("data/2"))));
}

TEST_F(Zip, AFileThatIsCutWhileItIsReadIsAnError) {
  write_some();
  const ZipReader reader(path());
  fs::resize_file(path(), 100);
  EXPECT_THAT([&] { static_cast<void>(reader.read_text("data/0")); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(path()), HasSubstr("cut short while it was read"))));
  EXPECT_THROW(reader.verify(), ConfigError);
}

TEST_F(Zip, IsNotThereUntilItIsWhole) {
  {
    ZipWriter writer(path());
    writer.add("data/0", std::string(1000, 'x'));
    EXPECT_FALSE(fs::exists(path()));
  }
  EXPECT_TRUE(fs::is_empty(fs::path(path()).parent_path()));
}

// Every byte of every record, of its name and of the directory counts; the rest are headers that nobody
// reads.
TEST_F(Zip, FindsEachByteOfARecordThatChanged) {
  write_some();
  const std::string good = content();
  for (const std::string& part : {std::string("a pickle"), std::string(1000, 'x'), std::string("dear 1 ")}) {
    const std::size_t begin = good.find(part);
    ASSERT_NE(begin, std::string::npos);
    for (std::size_t i = 0; i < part.size(); i += 7) {
      std::string bad = good;
      bad[begin + i] ^= 0x10;
      write(bad);
      EXPECT_THAT(refusal(), HasSubstr(path())) << begin + i;
    }
  }
  const std::size_t directory = good.find("PK\x01\x02");
  for (std::size_t i = directory; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x41;
    write(bad);
    static_cast<void>(refusal());  // whatever it says, it says it
  }
}

TEST_F(Zip, FindsWhereAFileWasCut) {
  write_some();
  const std::string good = content();
  for (std::size_t size = 0; size < good.size(); size += size + 300 < good.size() ? 37 : 1) {
    write(good.substr(0, size));
    ASSERT_THAT(refusal(), HasSubstr(path())) << size;
  }
}

TEST_F(Zip, RefusesWhatIsNone) {
  EXPECT_THAT(refusal(), HasSubstr("cannot open"));
  write(std::string(100, 'n'));
  EXPECT_THAT(refusal(), HasSubstr("no such file"));
  write(std::string(100, '\0'));
  EXPECT_THAT(refusal(), HasSubstr("no such file"));
  EXPECT_THAT([&] { ZipReader reader(fs::path(path()).parent_path().string()); },
              ThrowsMessage<ConfigError>(HasSubstr("folder")));
  EXPECT_THAT([] { ZipReader reader(std::string("a\0b", 3)); }, ThrowsMessage<ConfigError>(HasSubstr("NUL")));
}

TEST_F(Zip, RefusesSizesBeyondTheFile) {
  write_some();
  const std::string good = content();
  const std::size_t directory = good.find("PK\x01\x02");
  for (const std::size_t field : {std::size_t{24}, std::size_t{42}}) {
    for (const char* number : {"\xff\xff\xff\x7f", "\xff\xff\xff\xff"}) {
      std::string bad = good;
      bad.replace(directory + field, 4, number, 4);
      write(bad);
      EXPECT_THAT(refusal(), HasSubstr(path()));
    }
  }
}

// Two records in the directory, of the same bytes.
TEST_F(Zip, RefusesRecordsThatShareBytes) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (; bytes > 0; --bytes, value >>= 8U) text += static_cast<char>(value & 0xFFU);
    return text;
  };
  const std::string data(10'000, 'x');
  const std::string fields = number(45, 2) + number(0, 8) + number(crc32(std::as_bytes(std::span(data))), 4) +
                             number(data.size(), 4) + number(data.size(), 4) + number(3, 2) + number(0, 2);
  std::string file = "PK\x03\x04" + fields + "a/0" + data;
  const std::size_t directory = file.size();
  for (const char* const name : {"a/0", "a/1"})
    file += "PK\x01\x02" + number(45, 2) + fields + number(0, 14) + name;
  file += "PK\x05\x06" + number(0, 4) + number(2, 2) + number(2, 2) + number(file.size() - directory, 4) +
          number(directory, 4) + number(0, 2);
  write(file);
  EXPECT_THAT(refusal(), HasSubstr("its directory is damaged"));
}

TEST_F(Zip, WithMoreRecordsThanSixteenBitsCount) {
  constexpr int kRecords = 66'000;
  {
    ZipWriter writer(path());
    for (int i = 0; i < kRecords; ++i) writer.add("data/" + std::to_string(i), std::to_string(i));
    writer.finish();
  }
  const ZipReader reader(path());
  EXPECT_EQ(reader.read_text("data/65999"), "65999");
  reader.verify();
}

TEST_F(Zip, SaysThatTheFolderIsNotThere) {
  EXPECT_THAT([&] { ZipWriter writer(path("no/file")); }, ThrowsMessage<ConfigError>(HasSubstr("no/file")));
}

}  // namespace
}  // namespace dear::archive::zip_test
