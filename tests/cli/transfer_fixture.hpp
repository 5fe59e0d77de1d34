#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include <sys/stat.h>

#include "base/sha256.hpp"
#include "cli_fixture.hpp"
#include "fakes/files.hpp"
#include "store/file_store.hpp"
#include "store/object_store.hpp"
#include "store/sealed_entry.hpp"
#include "store/shared_store.hpp"

namespace kiln::cli {

/// The command as a process that runs while the test goes on.
class RunningCommand {
 public:
  /// Standard output and error go to files of `folder`.
  RunningCommand(const fs::path& folder, const Words& words, Environment environment)
      : out_(folder / "running-stdout"), error_(folder / "running-stderr") {
    environment.try_emplace("HOME", folder.string());
    environment.try_emplace("XDG_CONFIG_DIRS", (folder / "etc").string());
    const Image image(words, environment);
    process_ = fork();
    if (process_ != 0) return;
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(error_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    image.become();
  }
  ~RunningCommand() {
    send(SIGKILL);
    static_cast<void>(wait());
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  void send(int signal) const {
    if (process_ > 0) ::kill(process_, signal);
  }
  bool has_ended() {
    if (process_ > 0 && waitpid(process_, &status_, WNOHANG) == process_) process_ = -1;
    return process_ < 0;
  }
  /// Its status is 128 plus the signal that ended it.
  Outcome wait() {
    if (process_ > 0) waitpid(process_, &status_, 0);
    process_ = -1;
    return {WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_), contents(out_),
            contents(error_)};
  }

 private:
  fs::path out_;
  fs::path error_;
  pid_t process_ = -1;
  int status_ = 0;
};

/// A cache directory with programs to push, and an empty one to pull them into.
class Transfers : public Cli {
 protected:
  fs::path restored() const { return home_.path() / "restored"; }
  fs::path backup() const { return home_.path() / "backup"; }
  /// A folder that only this user can write to.
  std::string backup_url(const std::string& options = "") const {
    return "file://" + backup().string() + (options.empty() ? "" : "?" + options);
  }

  void SetUp() override {
    fs::create_directory(backup());
    fs::permissions(backup(), fs::perms::owner_all);
  }

  static Key key_of(int number) {
    const std::string name = fakes::numbered("program", number);
    return {base::sha256(name), name};
  }
  static std::string path_of(const Identity& identity, int number) {
    return store::entry_path(identity.digest().hex(), key_of(number).digest);
  }

  static store::Entry entry(const Identity& identity, int number, std::size_t bytes) {
    Binary binary{identity.formats.at(0), std::vector<std::byte>(bytes)};
    // Bytes that do not compress.
    auto state = static_cast<std::uint32_t>(number);
    for (auto& byte : binary.bytes) byte = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24U);
    return {.parts = {{std::string(store::binary_part), std::move(binary)}},
            .compile_time = number * 1ms,
            .created = std::chrono::system_clock::now(),
            .facts = nlohmann::json{{"name", key_of(number).name}, {"options", {"-Dsecret"}}}.dump()};
  }

  /// Stores the programs `first` to `last`; program i took i milliseconds to compile.
  void store_programs(const Identity& identity, int first, int last, std::size_t bytes = 2000) const {
    auto disk = store::DiskStore::open(cache(), identity, quiet).value();
    for (int i = first; i <= last; ++i) {
      const auto made = entry(identity, i, bytes + static_cast<std::size_t>(i % 50) * 100);
      const store::EntryLabel label{key_of(i).digest, identity.digest(), identity.target_digest()};
      const auto sealed = store::seal_entry(label, made);
      disk->put({label.identity, key_of(i)}, sealed, store::meta_of(label, made, sealed.size())).value();
    }
    disk->save_notes().value();
  }

  /// The entry files below a cache directory, by their paths in it.
  static std::map<std::string, std::string> entries_in(const fs::path& root) {
    std::map<std::string, std::string> entries;
    if (!fs::exists(root)) return entries;
    for (const auto& item : fs::recursive_directory_iterator(root))
      if (item.path().extension() == ".bin") entries[fs::relative(item.path(), root)] = contents(item.path());
    return entries;
  }
  static std::size_t count_files(const fs::path& root, const std::string& suffix) {
    std::size_t count = 0;
    std::error_code ignored;
    for (const auto& item : fs::recursive_directory_iterator(root, ignored))
      count += item.path().filename().string().ends_with(suffix) ? 1U : 0U;
    return count;
  }

  Outcome push(const std::string& url, Words options = {}, const Environment& environment = {}) const {
    return command_.run(words_of("push", cache(), url, std::move(options)), environment);
  }
  Outcome pull(const std::string& url, Words options = {}, const Environment& environment = {}) const {
    return command_.run(words_of("pull", restored(), url, std::move(options)), environment);
  }
  static Words words_of(const std::string& command, const fs::path& directory, const std::string& url,
                        Words options) {
    options.insert(options.begin(), {command, url, "--dir", directory.string()});
    return options;
  }
};

}  // namespace kiln::cli
