// Writes mutants of the files that commands read:  write_mutants FOLDER COUNT
// A line for each on standard output: its path, and the arguments of `dear` that read it, tabs between them.

#include "tests/readers/mutator.h"
#include "tests/readers/readers.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

int main(int argc, char** argv) {
  using namespace dear::readers_test;
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  std::vector<Reader> all = readers(folder);
  std::erase_if(all, [](const Reader& reader) { return reader.command.empty(); });
  Mutator mutator(5);
  for (std::size_t m = 0; m < std::strtoull(argv[2], nullptr, 10); ++m) {
    const Reader& reader = all[m % all.size()];
    const std::string path = folder + "/mutant-" + std::to_string(m) + ".json";
    std::ofstream(path, std::ios::binary) << mutator.mutant_of(reader.good, reader.json);
    std::cout << path;
    for (const std::string& argument : reader.command)
      std::cout << '\t' << (argument == "FILE" ? path : argument);
    std::cout << '\n';
  }
}
