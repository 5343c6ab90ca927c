#include "dear/systems/train_command/corpus.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::train_command {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_data(const fs::path& path, int error_number) {
  throw ConfigError(with_errno(fmt::format("--data: cannot read '{}'", path.string()), error_number) +
                    " (name a text file, or a folder with text files)");
}

// The regular files of a folder by name, each once: std::set orders paths of one folder by the bytes of their
// names.
std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::set<fs::path> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.insert(entry->path());
  }
  if (error) {
    refuse_data(folder, error.value());
  }
  std::vector<fs::path> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const fs::path& name : names) {
    struct stat status{};
    // A link that leads nowhere is no file of the folder.
    if (stat(name.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        seen.emplace(status.st_dev, status.st_ino).second) {
      files.push_back(name);
    }
  }
  return files;
}

// A bijection of 64 bits that scatters consecutive numbers: SplitMix (Steele, Lea, Flood 2014,
// doi:10.1145/2660193.2660195).
std::uint64_t split_mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

Corpus read_corpus(const std::string& path, std::int64_t least_characters) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    refuse_data(path, errno);
  }
  std::vector<fs::path> files;
  if (S_ISDIR(status.st_mode)) {
    files = files_of_folder(path);
    if (files.empty()) {
      throw ConfigError(fmt::format(
          "--data: the folder {} has no regular files; name a folder with text files or a file", path));
    }
  } else if (S_ISREG(status.st_mode)) {
    files.emplace_back(path);
  } else {
    throw ConfigError(fmt::format("--data: {} is neither a regular file nor a folder", path));
  }
  std::string text;
  for (const fs::path& file : files) {
    text += os::read_file(file.string());
    if (static_cast<std::int64_t>(text.size()) > os::kMostFileBytes) {
      throw ConfigError(fmt::format("--data: {} has more than {} bytes of text in all; name less of it", path,
                                    os::kMostFileBytes));
    }
  }
  if (static_cast<std::int64_t>(text.size()) < least_characters) {
    throw ConfigError(
        fmt::format("--data: {} has {} characters, but at least {} are needed for this --context; "
                    "name more text or a shorter context",
                    path, text.size(), least_characters));
  }
  return make_corpus(std::move(text));
}

Corpus make_corpus(std::string text) {
  std::array<bool, 256> occurs{};
  for (const char c : text) {
    occurs[static_cast<unsigned char>(c)] = true;
  }
  Corpus corpus;
  std::array<std::uint8_t, 256> number_of{};
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (occurs[byte]) {
      number_of[byte] = static_cast<std::uint8_t>(corpus.vocabulary.size());
      corpus.vocabulary.push_back(static_cast<char>(byte));
    }
  }
  corpus.numbers.reserve(text.size());
  for (const char c : text) {
    corpus.numbers.push_back(number_of[static_cast<unsigned char>(c)]);
  }
  corpus.text = std::move(text);
  return corpus;
}

std::vector<std::int64_t> sample_positions(const BatchSlice& slice, std::int64_t range) {
  const std::uint64_t stream = split_mix(split_mix(slice.seed) ^ static_cast<std::uint64_t>(slice.step));
  std::vector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(slice.count));
  for (std::int64_t i = slice.first; i < slice.first + slice.count; ++i) {
    const std::uint64_t draw = split_mix(stream ^ static_cast<std::uint64_t>(i));
    // The bias of the remainder is below range / 2^64.
    positions.push_back(static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(range)));
  }
  return positions;
}

std::string printable(const std::string& text) {
  std::string result;
  for (std::string_view rest = text; !rest.empty();) {
    const Character next = first_character(rest);
    result += next.printable || next.bytes == "\n" || next.bytes == "\t" ? next.bytes : "?";
    rest.remove_prefix(next.bytes.size());
  }
  return result;
}

}  // namespace dear::train_command
