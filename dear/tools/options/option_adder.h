#pragma once

#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace dear::cli {

// Adds options with a value to a command; `type` is what the help calls the value.
class OptionAdder {
 public:
  explicit OptionAdder(CLI::App& command) : command_(command) {}

  template <typename Value>
  CLI::Option* operator()(const char* name, Value& value, const std::string& type,
                          const std::string& help) const {
    return command_.add_option(name, value, help)->type_name(type);
  }
  // The help shows the value that is there now as the default.
  template <typename Value>
  CLI::Option* with_default(const char* name, Value& value, const std::string& type,
                            const std::string& help) const {
    return (*this)(name, value, type, help)->capture_default_str();
  }
  // Takes several values after one name, with commas between them.
  template <typename Value>
  CLI::Option* list(const char* name, Value& value, const std::string& type, const std::string& help) const {
    return (*this)(name, value, type, help)->delimiter(',')->allow_extra_args(false);
  }

 private:
  CLI::App& command_;
};

}  // namespace dear::cli
