#include "base/file_system.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

bool is_closed(int descriptor) { return fcntl(descriptor, F_GETFD) < 0 && errno == EBADF; }

TEST(FileSystem, GivesNoFileTheNumberOfAClosedStandardStream) {
  const fakes::TemporaryFolder place;
  const std::string told = fakes::in_child([&]() -> std::string {
    for (int closed = 0; closed <= 2; ++closed) {
      close(closed);
      const FileSystem& system = FileSystem::system();
      std::vector<FileHandle> files;
      for (int i = 0; i < 4; ++i) {
        const std::string name = place.path() / ("file" + std::to_string(i));
        files.emplace_back(system.open(AT_FDCWD, name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        if (files.back().get() <= 2) return "it opened " + std::to_string(files.back().get());
        if ((fcntl(files.back().get(), F_GETFD) & FD_CLOEXEC) == 0) return "a program it runs has the file open";
      }
      std::vector<std::string> names;
      const FileHandle folder(system.open(AT_FDCWD, place.path().c_str(), O_RDONLY | O_DIRECTORY, 0));
      if (system.list(folder.get(), &names) != 0 || names.size() != 4) return "it does not list the folder";
      if (!is_closed(closed)) return "the stream is open";
    }
    for (int stream = 0; stream <= 2; ++stream)
      if (open("/dev/null", O_RDWR) != stream) return "it still holds a stream's number";
    const FileHandle file(FileSystem::system().open(AT_FDCWD, "/dev/null", O_RDONLY, 0));
    return file.get() > 2 ? "done" : "it opened a stream";
  });
  EXPECT_EQ(told, "done");
}

TEST(FileSystem, TellsWhyAFileIsNotOpenedWhileStandardStreamsAreClosed) {
  const fakes::TemporaryFolder place;
  const std::string told = fakes::in_child([&]() -> std::string {
    close(STDERR_FILENO);
    for (int i = 0; i < 3; ++i) {
      const std::string name = place.path() / "missing";
      if (FileSystem::system().open(AT_FDCWD, name.c_str(), O_RDONLY, 0) != -1 || errno != ENOENT)
        return "it failed";
      const FileHandle folder(FileSystem::system().open(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY, 0));
      if (!folder) return "the folder is not opened";
    }
    return "done";
  });
  EXPECT_EQ(told, "done");
}

TEST(FileSystem, KeepsWhatIsWrittenToAClosedStreamOutOfFilesOfManyThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer calls writing to a closed stream a race";
#endif
  const fakes::TemporaryFolder place;
  const std::string told = fakes::in_child([&]() -> std::string {
    for (int stream = 0; stream <= 2; ++stream) close(stream);
    // UBSan's run-time library opens pipes, which get the numbers of the closed streams.
    signal(SIGPIPE, SIG_IGN);
    auto folder = Folder::open(place.path(), false).value();
    std::atomic<bool> ends{false};
    std::atomic<int> wrong{0};
    std::thread logging([&ends] {
      while (!ends)
        for (int stream = 0; stream <= 2; ++stream) static_cast<void>(!write(stream, "log text", 8));
    });
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number)
      threads.emplace_back([&, number] {
        const std::string name = "file" + std::to_string(number);
        for (int i = 0; i < 200; ++i) {
          const std::string text = "contents " + std::to_string(i);
          folder.replace(name, fakes::bytes_of(text)).value();
          if (fakes::text_of(folder.read(name, 1000).value()->bytes) != text) ++wrong;
        }
      });
    for (auto& thread : threads) thread.join();
    ends = true;
    logging.join();
    return wrong == 0 ? "done" : std::to_string(wrong) + " files are damaged";
  });
  EXPECT_EQ(told, "done");
}

}  // namespace
}  // namespace kiln::base
