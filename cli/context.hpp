#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <kiln/device.hpp>
#include <kiln/log.hpp>

#include "terminal.hpp"

namespace kiln::cli {

/// JSON as the command prints it, fields in the order they were added.
using Json = nlohmann::ordered_json;

/// What the command exits with.
namespace exit_status {
inline constexpr int ok = 0;
/// What was asked for failed or was not found.
inline constexpr int failed = 1;
/// The command line makes no sense.
inline constexpr int usage = 2;
}  // namespace exit_status

/// Thrown by a subcommand whose options contradict each other; exits with exit_status::usage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The options that all subcommands share, and what came of the one that ran. A subcommand is added to the App
/// with a callback that keeps a reference to the Context, reads it, and sets `status`; exceptions of kiln::Failure
/// and UsageError become the message and the exit status.
struct Context {
  /// The cache directory as given by --dir; empty: the default one.
  std::string directory_option = {};
  /// The device as open_device() takes it.
  std::string device = {};
  bool json = false;
  bool verbose = false;
  Color color = Color::automatic;
  int status = exit_status::ok;

  /// The cache directory; throws Failure where there is neither an option nor a default. It may not exist.
  std::filesystem::path directory() const;
  /// Opens the device that was asked for; throws Failure.
  std::shared_ptr<Device> open_device() const;
  Log log() const;
  Terminal terminal() const { return Terminal::detect(color); }

  /// Adds --device to a subcommand that opens one.
  void add_device_option(CLI::App& command);
  /// Adds --dir, --json, --color and --verbose, as every subcommand has them.
  void add_common_options(CLI::App& command);
};

/// Writes to standard output; throws Failure where that fails, as on a full disk.
void print(std::string_view text);
/// Throws Failure if something that was printed has not been written.
void finish_output();
/// Writes one JSON value and a line end to standard output.
void print_json(const Json& value);
/// The text as JSON; null for an empty one.
Json or_null(const std::string& text);
/// Writes "kiln: MESSAGE" to standard error, made printable.
void complain(std::string_view message);
/// Writes a remark of one line to standard error that no script needs, made printable; nothing with --json.
void remark(const Context& context, std::string_view message);

}  // namespace kiln::cli
