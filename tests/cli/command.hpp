#pragma once

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace kiln::cli {

/// A folder that is gone with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kiln-cli-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// What came of running the command.
struct Outcome {
  int status = -1;
  std::string out = {};
  std::string error = {};

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

using Environment = std::map<std::string, std::string>;

/// The words and the environment of a process to be, made before the fork: a child of many threads may do little.
class Image {
 public:
  Image(const std::vector<std::string>& arguments, const Environment& environment) {
    words_ = {KILN_COMMAND};
    words_.insert(words_.end(), arguments.begin(), arguments.end());
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      const std::string name = text.substr(0, text.find('='));
      const bool ours = name.starts_with("KILN_") || name == "NO_COLOR" || name == "XDG_CACHE_HOME" ||
                        name == "XDG_CONFIG_HOME" || name == "XDG_CONFIG_DIRS";
      if (!ours && !environment.contains(name)) variables_.push_back(text);
    }
    for (const auto& [name, value] : environment) {
      std::string variable = name;
      variable += "=";
      variable += value;
      variables_.push_back(std::move(variable));
    }
    for (auto& word : words_) arguments_.push_back(word.data());
    for (auto& variable : variables_) environment_.push_back(variable.data());
    arguments_.push_back(nullptr);
    environment_.push_back(nullptr);
  }

  [[noreturn]] void become() const {
    execve(KILN_COMMAND, arguments_.data(), environment_.data());
    _exit(127);
  }

 private:
  std::vector<std::string> words_;
  std::vector<std::string> variables_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
};

/// Runs the real command, with a folder of its own to be at home in.
class Command {
 public:
  explicit Command(std::filesystem::path home) : home_(std::move(home)) {}

  /// With nothing on standard input, and neither output a terminal.
  Outcome run(const std::vector<std::string>& arguments, const Environment& environment = {}) const {
    return run_into(home_ / "stdout", arguments, environment);
  }

  /// The same, with standard output in a file of one's own, such as /dev/full.
  Outcome run_into(const std::filesystem::path& out, const std::vector<std::string>& arguments,
                   const Environment& environment = {}) const {
    const auto error = home_ / "stderr";
    const Image image(arguments, at_home(environment));
    const pid_t child = fork();
    if (child == 0) {
      redirect("/dev/null", O_RDONLY, STDIN_FILENO);
      redirect(out, O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
      redirect(error, O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
      image.become();
    }
    const int status = wait_for(child);
    return {status, std::filesystem::is_regular_file(out) ? contents(out) : "", contents(error)};
  }

  /// The command while it runs.
  class Running {
   public:
    Running(const Command& command, const std::vector<std::string>& arguments, const Environment& environment)
        : home_(command.home_) {
      const Image image(arguments, command.at_home(environment));
      child_ = fork();
      if (child_ != 0) return;
      redirect("/dev/null", O_RDONLY, STDIN_FILENO);
      redirect(home_ / "stdout", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
      redirect(home_ / "stderr", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
      image.become();
    }

    void send(int signal) const { kill(child_, signal); }
    bool has_ended() const {
      siginfo_t info{};
      return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
    }
    Outcome wait() const {
      const int status = wait_for(child_);
      return {status, contents(home_ / "stdout"), contents(home_ / "stderr")};
    }

   private:
    std::filesystem::path home_;
    pid_t child_ = -1;
  };

  /// With standard input and both outputs closed.
  int run_without_streams(const std::vector<std::string>& arguments) const {
    const Image image(arguments, at_home({}));
    const pid_t child = fork();
    if (child == 0) {
      for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) close(stream);
      image.become();
    }
    return wait_for(child);
  }

  /// On a terminal where somebody types `input`; `out` is all that appeared there.
  Outcome run_on_terminal(const std::vector<std::string>& arguments, const std::string& input = "",
                          const Environment& environment = {}, unsigned columns = 200) const {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 50;
    int terminal = -1;
    const Image image(arguments, at_home(environment));
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) image.become();
    if (::write(terminal, input.data(), input.size()) != static_cast<ssize_t>(input.size()))
      throw std::runtime_error("cannot type on the terminal");
    Outcome outcome;
    char buffer[4096];
    // A terminal whose last user is gone reads as an error, not as an end.
    for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;)
      outcome.out.append(buffer, static_cast<std::size_t>(got));
    close(terminal);
    outcome.status = wait_for(child);
    return outcome;
  }

 private:
  static void redirect(const std::filesystem::path& path, int flags, int descriptor) {
    dup2(open(path.c_str(), flags, 0600), descriptor);
  }

  Environment at_home(Environment environment) const {
    environment.try_emplace("HOME", home_.string());
    environment.try_emplace("XDG_CONFIG_DIRS", (home_ / "etc").string());
    environment.try_emplace("TERM", "xterm");
    return environment;
  }

  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::filesystem::path home_;
};

}  // namespace kiln::cli
