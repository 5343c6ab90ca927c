#pragma once

#include <stdexcept>
#include <string>

// The tree of errors. Every message is one sentence that names the rank (where one is known), the thing and
// the remedy. All derive from dear::Error, so one handler catches everything that DeAR itself reports.
namespace dear {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// An option, file, environment variable or model that cannot be used as given.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A schedule that is ill-formed, or a use of a schedule that its rules forbid.
class ScheduleError : public Error {
 public:
  using Error::Error;
};

// Ranks disagree about a model, a schedule, or the collective that they take part in.
class MismatchError : public Error {
 public:
  using Error::Error;
};

// A peer died or left, or the operating system refused a resource of the transport.
class TransportError : public Error {
 public:
  using Error::Error;
};

// A peer did not arrive before the deadline.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

// "cannot open FILE: No such file or directory", where the second half is the text of `error_number` (an
// errno).
std::string with_errno(const std::string& what, int error_number);

}  // namespace dear
