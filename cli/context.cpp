#include "context.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "store/store_url.hpp"

namespace kiln::cli {

std::filesystem::path Context::directory() const {
  auto directory = directory_option.empty() ? default_directory() : std::filesystem::path(directory_option);
  if (directory.empty())
    throw Failure(
        Error(ErrorCode::io,
              "no cache directory is known: KILN_CACHE_DIR, XDG_CACHE_HOME and HOME are not set; give one "
              "with --dir"));
  return directory;
}

store::CommandLine Context::command_line() const {
  store::CommandLine options;
  if (!directory_option.empty()) options.directory = directory_option;
  if (!shared_option.empty()) options.stores = shared_option;
  return options;
}

std::optional<std::vector<SharedStore>> Context::stores() const {
  if (shared_option.empty()) return std::nullopt;
  std::vector<SharedStore> stores;
  for (const std::string& url : shared_option) {
    if (url == store::no_stores) continue;
    if (const auto parsed = store::parse_store_url(url); !parsed)
      throw UsageError("--shared: " + parsed.error().message());
    stores.emplace_back(url);
  }
  return stores;
}

std::shared_ptr<Device> Context::open_device() const { return kiln::open_device(device, log()).value(); }

Log Context::log() const {
  if (verbose)
    return Log(LogLevel::debug, [](const LogRecord& record) {
      fmt::print(stderr, "kiln: [{}] {}\n", record.thread, printable_lines(record.message));
    });
  const Log standard;
  auto level = LogLevel::off;
  for (const LogLevel next : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug})
    if (standard.enabled(next)) level = next;
  // Messages quote paths and messages of drivers.
  return Log(level, [standard](const LogRecord& record) {
    standard.write(record.level, printable_lines(record.message));
  });
}

void Context::add_device_option(CLI::App& command) {
  command
      .add_option(
          "--device", device,
          "The device: a name that `kiln devices` lists, such as opencl:1; an API: opengl, opencl, vulkan, cuda or "
          "hip; or an API and a UUID, such as cuda:GPU-2c7a5a3e [the best device]")
      ->type_name("NAME");
}

void Context::add_common_options(CLI::App& command) {
  const std::map<std::string, Color> colors = {
      {"auto", Color::automatic}, {"always", Color::always}, {"never", Color::never}};
  const auto set_color = [this, colors](const std::string& word) { color = colors.at(word); };
  command.add_option("--dir", directory_option, "Use this cache directory")
      ->type_name("DIR")
      ->group("Common options");
  command
      .add_option("--shared", shared_option,
                  "Use this shared store instead of the configured ones, or none; repeatable, fastest first")
      ->allow_extra_args(false)
      ->type_name("URL")
      ->group("Common options");
  command.add_flag("--json", json, "Print JSON instead of text")->group("Common options");
  command.add_option_function<std::string>("--color", set_color, "Use colours: auto, always or never [auto]")
      ->check(CLI::IsMember({"auto", "always", "never"}).description(""))
      ->type_name("WHEN")
      ->group("Common options");
  command.add_flag("-v,--verbose", verbose, "Log to standard error")->group("Common options");
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw Failure(Error(ErrorCode::io, fmt::format("cannot write the output: {}", std::strerror(errno))));
}

void finish_output() {
  // fflush() does not report an earlier error again; ferror() does.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Failure(Error(ErrorCode::io, "cannot write the output; the disk may be full"));
}

void print_json(const Json& value) {
  print(printable_json(value.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n");
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

void complain(std::string_view message) {
  // Keeps the order of output and messages if both go to one terminal.
  std::fflush(stdout);
  fmt::print(stderr, "kiln: {}\n", printable_lines(message));
}

void remark(const Context& context, std::string_view message) {
  if (context.json) return;
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", printable(message));
}

}  // namespace kiln::cli
