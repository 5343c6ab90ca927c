#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace dear::cli {

// The innermost command that the arguments name.
const CLI::App& chosen(const CLI::App& app);

// Makes an empty value an error, and a whole number of more than 64 bits, of every option of this command and
// those within it.
void refuse_values_that_are_none(CLI::App& app);

// One sentence for a word that the command does not know, with the option or command that was meant.
std::string unknown_word(const std::string& word, const CLI::App& command);

// One sentence for a wrong call of the command: which option or word is wrong, what was expected, and the
// name that was meant where one is alike.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& command);

}  // namespace dear::cli
