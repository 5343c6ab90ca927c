#include "dear/base/archive/shard_set.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/os/retried.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::archive {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

struct Name {
  std::string word;
  int rank = 0, ranks = 0;
};

std::optional<Name> name_of(const std::string& file) {
  static const std::regex kForm("([0-9a-f]{8})-([0-9]{5})-of-([0-9]{5})\\.pt");
  std::smatch match;
  if (!std::regex_match(file, match, kForm)) return std::nullopt;
  return Name{.word = match[1], .rank = std::stoi(match[2]), .ranks = std::stoi(match[3])};
}

struct Files {
  std::map<std::string, std::map<int, std::string>> by_word;  // and rank
  std::map<std::string, int> ranks;
  bool others = false;  // beside shards, and files that are being written
};

Files look_into(const std::string& folder, std::error_code& error) {
  Files files;
  for (const fs::directory_entry& entry : os::entries_of(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (const std::optional<Name> name = name_of(file)) {
      files.by_word[name->word][name->rank] = file;
      files.ranks[name->word] = name->ranks;
    } else {
      files.others = files.others || !file.starts_with('.');
    }
  }
  return files;
}

[[noreturn]] void refuse(const std::string& file) {
  throw ConfigError(fmt::format("cannot read '{}' as a checkpoint: its pieces are damaged", file));
}

ShardSet::Block read_record(const ZipReader& file, const TensorRecord& record) {
  const std::string name = "data/" + record.key;
  const std::size_t bytes = file.extent_of(name).size;
  ShardSet::Memory memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  file.read(name, {memory.get(), bytes});
  return {std::move(memory), static_cast<std::int64_t>(bytes)};
}

}  // namespace

std::string shard_name(const std::string& word, int rank, int ranks) {
  return fmt::format("{}-{:05}-of-{:05}.pt", word, rank, ranks);
}

std::vector<std::vector<std::string>> shards_in(const std::string& folder) {
  std::error_code error;
  const auto [found, ranks, others] = look_into(folder, error);
  if (error)
    throw ConfigError(fmt::format("cannot look into the checkpoint '{}': {}", folder, error.message()));
  if (found.empty()) throw ConfigError(fmt::format("the checkpoint '{}' has no shards", folder));
  std::multimap<fs::file_time_type, std::vector<std::string>, std::greater<>> whole;
  std::string missing;
  for (const auto& [word, files] : found) {
    int rank = 0;
    std::vector<std::string> names;
    for (; files.contains(rank); ++rank) names.push_back(files.at(rank));
    if (rank == ranks.at(word) && files.size() == names.size())
      whole.emplace(fs::last_write_time(fs::path(folder) / names.front(), error), std::move(names));
    else
      missing = fmt::format("the checkpoint '{}' is not whole: the shard {} is not there", folder,
                            shard_name(word, rank, ranks.at(word)));
  }
  if (whole.empty()) throw ConfigError(missing);
  std::vector<std::vector<std::string>> newest_first;
  for (auto& one : whole) newest_first.push_back(std::move(one.second));
  return newest_first;
}

bool is_cut_short(const std::string& folder) {
  std::error_code error;
  const Files files = look_into(folder, error);
  return !error && !files.others &&
         std::none_of(files.by_word.begin(), files.by_word.end(),
                      [&](const auto& one) { return std::ssize(one.second) == files.ranks.at(one.first); });
}

void remove_other_shards(const std::string& folder, const std::string& file) {
  const std::string word = name_of(file).value().word;
  std::error_code error;
  for (const fs::directory_entry& entry : os::entries_of(folder, error)) {
    const std::optional<Name> name = name_of(entry.path().filename().string());
    if (name && name->word != word) fs::remove(entry.path(), error);
  }
}

ShardSet::ShardSet(const std::vector<std::string>& paths, int rank, int ranks)
    : rank_(static_cast<std::size_t>(rank)) {
  const std::vector<ZipReader> files(paths.begin(), paths.end());
  manifest_ = files.at(0).read_text(kManifest);
  for (std::size_t shard = 0; shard < files.size(); ++shard) add_pieces(files[shard], shard);
  for (auto& [key, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::int64_t end = 0;
    for (const Piece& piece : pieces)
      if (std::exchange(end, piece.end) != piece.begin)
        throw ConfigError(fmt::format("the checkpoint of '{}' is not whole: of '{}' it lacks elements at {}",
                                      paths[0], printable(key), piece.begin));
  }
  read(files, ranks);
}

void ShardSet::add_pieces(const ZipReader& file, std::size_t shard) {
  Value value = unpickle(file.read_text("data.pkl"), file.path());
  for (const auto& [key, list] : value.at<Value::Dict>("pieces", file.path())) {
    const auto* name = key.get<std::string>();
    const auto* all = list.get<Value::List>();
    if (name == nullptr || all == nullptr) refuse(file.path());
    for (const Value& one : *all) {
      const auto* pair = one.get<Value::List>();
      const auto* begin = pair != nullptr && pair->size() == 2 ? (*pair)[0].get<std::int64_t>() : nullptr;
      const auto* record = begin != nullptr ? (*pair)[1].get<TensorRecord>() : nullptr;
      const std::int64_t count = record != nullptr && record->sizes.size() == 1 ? record->sizes[0] : 0;
      if (count < 1 || count > kMostElements || *begin < 0 || *begin > kMostElements) refuse(file.path());
      pieces_[*name].push_back(
          {.begin = *begin,
           .end = *begin + count,
           .record = *record,
           .shard = shard,
           .bytes = static_cast<std::int64_t>(file.extent_of("data/" + record->key).size)});
    }
  }
  std::erase_if(*value.get<Value::Dict>(),
                [](const Value::Entry& entry) { return entry.key == Value("pieces"); });
  of_ranks_.push_back(std::move(value));
}

// In the order in which they lie in the files.
void ShardSet::read(const std::vector<ZipReader>& files, int ranks) {
  struct Job {
    std::size_t shard;
    std::uint64_t place;
    Piece* piece;
    bool small;
  };
  std::vector<Job> jobs;
  double total = 0, before = 0;
  for (auto& [key, pieces] : pieces_) {
    std::int64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes;
    for (Piece& piece : pieces)
      jobs.push_back({piece.shard, files[piece.shard].extent_of("data/" + piece.record.key).begin, &piece,
                      bytes <= kSmall});
    total += static_cast<double>(bytes);
  }
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
    return std::pair(a.shard, a.place) < std::pair(b.shard, b.place);
  });
  const bool as_saved = saved_ranks() == ranks;
  const Job* last = nullptr;
  for (const Job& job : jobs) {
    const auto reader =
        as_saved ? job.shard : static_cast<std::size_t>(before * ranks / std::max(total, 1.0));
    before += static_cast<double>(job.piece->bytes);
    if (reader != rank_ && !job.small) continue;
    // A file may name a record as often as it likes.
    const bool again =
        last != nullptr && last->shard == job.shard && last->piece->record.key == job.piece->record.key;
    job.piece->memory = again ? last->piece->memory : read_record(files[job.shard], job.piece->record).memory;
    last = &job;
  }
  if (!as_saved) return;
  for (const TensorRecord& record : records_in(own()))
    if (!own_memory_.contains(record.key)) own_memory_[record.key] = read_record(files[rank_], record);
}

const std::vector<ShardSet::Piece>& ShardSet::pieces_of(const std::string& key) const {
  static const std::vector<Piece> kNone;
  const auto found = pieces_.find(key);
  return found == pieces_.end() ? kNone : found->second;
}

}  // namespace dear::archive
