#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <kiln/device.hpp>
#include <kiln/log.hpp>
#include <kiln/store.hpp>

#include "store/settings.hpp"
#include "terminal.hpp"

namespace kiln::cli {

/// JSON as the command prints it: fields keep the order in which they were added.
using Json = nlohmann::ordered_json;

/// The exit statuses of the command.
namespace exit_status {
inline constexpr int ok = 0;
/// The command failed, or did not find what the user asked for.
inline constexpr int failed = 1;
/// The command line is invalid.
inline constexpr int usage = 2;
/// The user pressed Ctrl-C, as shells count it.
inline constexpr int interrupted = 130;
}  // namespace exit_status

/// Thrown by a subcommand whose options contradict each other; exits with exit_status::usage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The options that all subcommands share, and the exit status. Each subcommand's callback keeps a reference to the
/// Context, reads the options, and sets `status`. main() turns kiln::Failure and UsageError into a message and an
/// exit status.
struct Context {
  /// The value of --dir; empty for the default directory.
  std::string directory_option = {};
  /// The values of --shared; empty if it is not given.
  std::vector<std::string> shared_option = {};
  /// The value of --device, as open_device() takes it.
  std::string device = {};
  bool json = false;
  bool verbose = false;
  Color color = Color::automatic;
  int status = exit_status::ok;

  /// The cache directory, which may not exist. Throws Failure if --dir is not given and there is no default.
  std::filesystem::path directory() const;
  /// The shared stores of --shared, for CacheOptions::stores; nothing if it is not given. Throws UsageError for a
  /// URL that is not valid.
  std::optional<std::vector<SharedStore>> stores() const;
  /// --dir and --shared as settings.
  store::CommandLine command_line() const;
  /// Opens the device of --device; throws Failure.
  std::shared_ptr<Device> open_device() const;
  Log log() const;
  Terminal terminal() const { return Terminal::detect(color); }

  /// Adds --device to a subcommand that opens a device.
  void add_device_option(CLI::App& command);
  /// Adds --dir, --shared, --json, --color and --verbose.
  void add_common_options(CLI::App& command);
};

/// Writes to standard output; throws Failure if that fails, as on a full disk.
void print(std::string_view text);
/// Flushes standard output; throws Failure if part of the output was not written.
void finish_output();
/// Writes one JSON value and a line end to standard output.
void print_json(const Json& value);
/// The text as JSON; null if it is empty.
Json or_null(const std::string& text);
/// Writes "kiln: MESSAGE" to standard error, with the message made printable.
void complain(std::string_view message);
/// Writes one line of advice to standard error, made printable. Writes nothing with --json.
void remark(const Context& context, std::string_view message);

}  // namespace kiln::cli
