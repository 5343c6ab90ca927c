#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dear::os {

// A part of DeAR that is loaded at run time, because it needs a library that is not on every machine (MPI,
// Gloo). It is the file lib<name>.so, which the CMake function dear_module() builds and installs. This class
// is a handle; the module stays loaded until the process ends, since objects and errors that it made may live
// as long.
//
// Program and module are built together from the same headers, so C++ objects and exceptions may cross
// between them. Functions looked up by name are extern "C".
class Module {
 public:
  // Loads the module unless it is loaded already. ConfigError that lists the directories searched, or says
  // why the file cannot be loaded.
  static Module open(const std::string& name);

  // Loads the module so that it and its libraries resolve symbols among themselves before they look at the
  // program (RTLD_DEEPBIND): for a module over a library of which the program may contain another copy.
  // `symbol` is a symbol of that library. Sanitizers do not work with RTLD_DEEPBIND, so a build with one
  // loads the module as open() does, and throws a ConfigError where the program already has the symbol.
  static Module open_apart(const std::string& name, const std::string& symbol);

  // Whether the file of the module exists. The library that it needs may still be missing.
  static bool exists(const std::string& name);

  // Directories searched for modules, in this order: lib/dear beside the shared library that DeAR is a part
  // of (the package for Python), ../lib/dear relative to the program (an installed command), modules beside
  // either (a build folder, wherever it was moved to), the folder of this build for what lies in it, the
  // installation directory where nobody but this user and root can write.
  static std::vector<std::string> directories();

  // The function of this name. ConfigError if the module has none.
  template <typename Function>
  [[nodiscard]] Function* function(const std::string& name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  [[nodiscard]] void* symbol(const std::string& name) const;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static Module load(const std::string& name, int flags);
  Module(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  void* handle_;
};

}  // namespace dear::os
