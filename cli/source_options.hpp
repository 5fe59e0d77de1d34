#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/device.hpp>
#include <kiln/request.hpp>

#include "context.hpp"

namespace kiln::cli {

/// The options of commands that take source files: how to make requests of them, and for which device.
struct SourceOptions {
  std::optional<std::string> name = {};
  std::vector<std::string> defines = {};
  std::vector<std::string> includes = {};
  std::vector<std::string> options = {};
  std::vector<std::string> entries = {};
  std::string language = {};
  /// As in "sm_90" or "gfx906"; empty for a device of this machine.
  std::string architecture = {};

  /// Adds the options to a subcommand, with --device.
  void add_to(CLI::App& command, Context& context);
  /// Without --arch and --device.
  void add_request_options(CLI::App& command);
};

/// The backend for requests: a device of this machine, or a compiler for a GPU that need not be present.
struct Target {
  std::shared_ptr<Backend> backend;
  /// The language of its source files.
  Language language;
};

/// The language of a file, by --language or else by its suffix; nothing if the device decides. Throws UsageError.
std::optional<Language> language_of_file(const SourceOptions& options, const std::string& file);

/// The APIs whose devices take a language, in the order in which they are tried.
std::vector<std::string> apis_of(Language language);

/// Opens the compiler of --arch or the device of --device. Without either, opens the first device that takes the
/// language. Throws Failure and UsageError.
Target open_target(const Context& context, const SourceOptions& options, std::optional<Language> language);

/// The request for a file, in `language` unless language_of_file() says another one. Throws Failure if the file
/// cannot be read, or if the request is invalid.
Request request_for(const SourceOptions& options, const std::string& file, Language language);

}  // namespace kiln::cli
