#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dear::readers_test {

// A Reader is a kind of file that DeAR reads: a good one, and what reads it.
struct Reader {
  std::string name;
  bool json = true;
  std::string good;
  // Reads a file of this content and does with it what a command does before it answers. ConfigError.
  std::function<void(const std::string& content)> use;
  // The arguments of `dear` that read it, FILE standing for its path; empty where no command does so at once.
  std::vector<std::string> command{};
};

// All of them. Those that read files and not text write what they read into `folder`.
std::vector<Reader> readers(const std::string& folder);

}  // namespace dear::readers_test
