#include "store/file_store.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/faulty_file_system.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::store {
namespace {

using fakes::FaultyFileSystem;

/// The file system of an NFS client on which other machines work: the first calls of a kind fail with an error.
class SharedFileSystem final : public base::FileSystem {
 public:
  enum class Call { open, read, write, status, rename, make_folder, close };

  SharedFileSystem(Call call, int error, int times) : call_(call), error_(error), times_(times) {}

  int open(int folder, const char* name, int flags, mode_t mode) const override {
    return fails(Call::open) ? -1 : FileSystem::open(folder, name, flags, mode);
  }
  ssize_t read(int file, void* bytes, std::size_t count) const override {
    return fails(Call::read) ? -1 : FileSystem::read(file, bytes, count);
  }
  ssize_t write(int file, const void* bytes, std::size_t count) const override {
    return fails(Call::write) ? -1 : FileSystem::write(file, bytes, count);
  }
  int status(int file, struct stat* status) const override {
    return fails(Call::status) ? -1 : FileSystem::status(file, status);
  }
  int status(int folder, const char* name, struct stat* status) const override {
    return fails(Call::status) ? -1 : FileSystem::status(folder, name, status);
  }
  int rename(int folder, const char* from, const char* to) const override {
    return fails(Call::rename) ? -1 : FileSystem::rename(folder, from, to);
  }
  int make_folder(int folder, const char* name, mode_t mode) const override {
    return fails(Call::make_folder) ? -1 : FileSystem::make_folder(folder, name, mode);
  }
  int close(int file) const override {
    const bool fails_now = fails(Call::close);
    const int reason = errno;
    const int result = FileSystem::close(file);
    if (!fails_now) return result;
    errno = reason;
    return -1;
  }

 private:
  bool fails(Call call) const {
    if (call != call_ || failed_ >= times_) return false;
    ++failed_;
    errno = error_;
    return true;
  }

  const Call call_;
  const int error_;
  const int times_;
  mutable int failed_ = 0;
};

class FileStoreTest : public testing::Test {
 protected:
  using Call = SharedFileSystem::Call;

  std::filesystem::path root() const { return folder_.path() / "shared"; }
  std::filesystem::path file(const std::string& path) const { return root() / path; }

  static std::unique_ptr<ObjectStore> store_in(const std::filesystem::path& root) {
    return make_file_store(root).value();
  }
  std::unique_ptr<ObjectStore> store_on(const base::FileSystem& system) const {
    const base::ScopedFileSystem in_place_of_the_system(system);
    return store_in(root());
  }

  /// "ok", or the error's code.
  static std::string keep(ObjectStore& store, const std::string& path, const std::string& text,
                          const CallLimit& limit = {}) {
    const auto kept = store.put(path, fakes::bytes_of(text), limit);
    return kept ? "ok" : std::string(to_string(kept.error().code()));
  }
  /// The object as text; "nothing", or the error's code.
  static std::string fetch(ObjectStore& store, const std::string& path, const CallLimit& limit = {}) {
    const auto object = store.get(path, limit);
    if (!object) return std::string(to_string(object.error().code()));
    return *object ? fakes::text_of(**object) : "nothing";
  }

  /// The paths of all files under the root.
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& item : std::filesystem::recursive_directory_iterator(root()))
      if (!item.is_directory()) all.push_back(item.path().lexically_relative(root()));
    return all;
  }

  fakes::TemporaryFolder folder_;
};

TEST_F(FileStoreTest, ReturnsWhatWasPut) {
  const auto store = store_in(root());
  EXPECT_EQ(fetch(*store, "3/ab/cd/ef"), "nothing") << "the root does not exist yet";
  EXPECT_EQ(keep(*store, "3/ab/cd/ef", std::string("a\0b", 3)), "ok");
  EXPECT_EQ(fetch(*store, "3/ab/cd/ef"), std::string("a\0b", 3));
  EXPECT_EQ(fetch(*store, "3/ab/cd/00"), "nothing");
  EXPECT_EQ(keep(*store, "3/ab/cd/ef", "new"), "ok");
  EXPECT_EQ(fetch(*store_in(root()), "3/ab/cd/ef"), "new");
  EXPECT_EQ(keep(*store, "empty", ""), "ok");
  EXPECT_EQ(fetch(*store, "empty"), "");
  EXPECT_EQ(fakes::read_file(file("3/ab/cd/ef")), "new");
  EXPECT_EQ(files().size(), 2U) << "no temporary file is left";
}

TEST_F(FileStoreTest, CreatesNothingToRead) {
  const auto store = store_in(root());
  EXPECT_EQ(fetch(*store, "a"), "nothing");
  EXPECT_FALSE(store->has("a", {}).value());
  EXPECT_TRUE(store->remove("a", {}).ok());
  EXPECT_TRUE(store->list("", {})->empty());
  EXPECT_FALSE(std::filesystem::exists(root()));
}

TEST_F(FileStoreTest, NeedsAnAbsolutePath) {
  EXPECT_EQ(make_file_store("relative").error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(make_file_store("").error().code(), ErrorCode::invalid_request);
}

TEST_F(FileStoreTest, ListsAndRemovesObjects) {
  const auto store = store_in(root());
  for (const char* path : {"3/a/x", "3/a/y", "3/b/x", "identity.json"}) EXPECT_EQ(keep(*store, path, path), "ok");
  fakes::write_file(file("3/a/.tmp-0123"), "left by a writer");
  fakes::write_file(file("3/a/.nfs0123"), "left by an NFS client");
  const auto names = [&store](const std::string& folder) {
    auto all = store->list(folder, {}).value();
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(names("3/a"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(names("3"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(""), (std::vector<std::string>{"3", "identity.json"}));
  EXPECT_TRUE(names("4").empty());
  EXPECT_TRUE(store->has("3/a/x", {}).value());
  EXPECT_FALSE(store->has("3/a", {}).value()) << "a folder is no object";
  EXPECT_TRUE(store->remove("3/a/x", {}).ok());
  EXPECT_FALSE(store->has("3/a/x", {}).value());
}

TEST_F(FileStoreTest, GivesFilesAndFoldersThePermissionsOfTheUmask) {
  const std::string modes = fakes::in_child([&] {
    umask(0002);
    if (!store_in(root())->put("3/a", fakes::bytes_of("x"), {})) return std::string("failed");
    std::string all;
    for (const auto& path : {root(), file("3"), file("3/a")}) {
      struct stat status {};
      if (lstat(path.c_str(), &status) != 0) return std::string("missing");
      all += fmt::format("{:o} ", status.st_mode & 07777U);
    }
    return all;
  });
  EXPECT_EQ(modes, "775 775 664 ");
}

TEST_F(FileStoreTest, RefusesLongFiles) {
  const auto store = store_in(root());
  fakes::write_file(file("long"), "x");
  std::filesystem::resize_file(file("long"), max_object_bytes + 1);
  EXPECT_EQ(fetch(*store, "long"), "unsupported");
  const std::byte first{};
  EXPECT_EQ(store->put("long", std::span(&first, max_object_bytes + 1), {}).error().code(), ErrorCode::unsupported);
}

TEST_F(FileStoreTest, RefusesWhatIsNoRegularFile) {
  const auto store = store_in(root());
  fakes::write_file(file("target"), "x");
  std::filesystem::create_symlink(file("target"), file("link"));
  std::filesystem::create_directory(file("folder"));
  ASSERT_EQ(mkfifo(file("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "folder", "fifo"}) {
    EXPECT_EQ(fetch(*store, name), "io") << name;
    EXPECT_FALSE(store->has(name, {}).value()) << name;
  }
  EXPECT_EQ(fetch(*store, "target/below"), "io");
  EXPECT_EQ(keep(*store, "target/below", "x"), "io");
  EXPECT_EQ(keep(*store, "link", "y"), "ok") << "an object replaces the link";
  EXPECT_EQ(fetch(*store, "link"), "y");
  EXPECT_EQ(fetch(*store, "target"), "x");
}

TEST_F(FileStoreTest, FollowsNoLinksBelowTheRoot) {
  const auto store = store_in(root());
  fakes::write_file(folder_.path() / "outside" / "a", "x");
  ASSERT_EQ(keep(*store, "3/b", "y"), "ok");
  std::filesystem::create_symlink(folder_.path() / "outside", file("link"));
  std::filesystem::create_symlink(folder_.path() / "outside", file("3/link"));
  for (const std::string link : {"link", "3/link"}) {
    EXPECT_EQ(fetch(*store, link + "/a"), "io");
    EXPECT_EQ(keep(*store, link + "/b", "y"), "io");
    EXPECT_EQ(keep(*store, link + "/below/b", "y"), "io");
    EXPECT_FALSE(store->has(link + "/a", {}).ok());
    EXPECT_FALSE(store->remove(link + "/a", {}).ok());
    const auto names = store->list(link, {});
    ASSERT_FALSE(names.ok());
    EXPECT_NE(names.error().message().find(file(link).string() + ": it is a symbolic link"), std::string::npos)
        << names.error().message();
  }
  EXPECT_EQ(fakes::names_in(folder_.path() / "outside"), std::vector<std::string>{"a"});
}

TEST_F(FileStoreTest, TakesALinkForItsRoot) {
  std::filesystem::create_directory(folder_.path() / "disk");
  std::filesystem::create_directory_symlink(folder_.path() / "disk", root());
  const auto store = store_in(root());
  EXPECT_EQ(keep(*store, "3/a", "x"), "ok");
  EXPECT_EQ(fetch(*store, "3/a"), "x");
  EXPECT_EQ(fakes::read_file(folder_.path() / "disk" / "3" / "a"), "x");
}

TEST_F(FileStoreTest, ReadsFilesInFoldersThatCannotBeListed) {
  fakes::write_file(file("3/a"), "x");
  const std::string outcome = fakes::in_ordinary_child(folder_.path(), [&] {
    for (const auto& path : {root(), file("3")}) std::filesystem::permissions(path, std::filesystem::perms(0311));
    const auto store = store_in(root());
    const auto listed = store->list("3", {});
    const std::string seen = fetch(*store, "3/a") + " " + keep(*store, "3/b", "y") + " " +
                             (listed ? "listed" : std::string(to_string(listed.error().code())));
    for (const auto& path : {root(), file("3")}) std::filesystem::permissions(path, std::filesystem::perms(0755));
    return seen;
  });
  EXPECT_EQ(outcome, "x ok denied");
}

TEST_F(FileStoreTest, TakesMemoryOnlyForBytesThatArrive) {
  /// Files are shorter than their status says.
  class Claiming final : public base::FileSystem {
   public:
    using FileSystem::status;
    int status(int file, struct stat* status) const override {
      const int result = FileSystem::status(file, status);
      if (result == 0 && S_ISREG(status->st_mode)) status->st_size = max_object_bytes;
      return result;
    }
  };
  ASSERT_EQ(keep(*store_in(root()), "a", "x"), "ok");
  const std::string outcome = fakes::in_child([&] {
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss;
    };
    const Claiming system;
    const long before = peak();
    const std::string object = fetch(*store_on(system), "a");
    return object + (peak() - before < 64 * 1024 ? " in little memory" : " in much memory");
  });
  EXPECT_EQ(outcome, "x in little memory");
}

/// A store in a folder that was private when it was opened.
class PrivateFileStore : public FileStoreTest {
 protected:
  PrivateFileStore() { keep(*store_, "3/ab/cd", "x"); }

  /// The codes of all calls for 3/ab/cd.
  std::vector<std::string> codes() const {
    const auto code = [](const auto& result) {
      return result ? std::string("ok") : std::string(to_string(result.error().code()));
    };
    return {code(store_->get("3/ab/cd", {})), code(store_->put("3/ab/ef", fakes::bytes_of("y"), {})),
            code(store_->has("3/ab/cd", {})), code(store_->remove("3/ab/ef", {})), code(store_->list("3/ab", {}))};
  }

  const std::unique_ptr<ObjectStore> store_ = make_file_store(root(), FolderAccess::private_only).value();
  const std::vector<std::string> all_ok_{5, "ok"};
  const std::vector<std::string> none_{5, "untrusted"};
};

TEST_F(PrivateFileStore, FailsAsSoonAsOthersCanWriteToAFolder) {
  for (const auto& folder : {root(), file("3"), file("3/ab")}) {
    EXPECT_EQ(codes(), all_ok_);
    for (const unsigned mode : {0775U, 0757U}) {
      std::filesystem::permissions(folder, std::filesystem::perms(mode));
      EXPECT_EQ(codes(), none_) << folder;
    }
    const auto got = store_->get("3/ab/cd", {});
    ASSERT_FALSE(got.ok());
    EXPECT_NE(got.error().message().find(fmt::format("'chmod go-w {}', or add verify=required", folder.string())),
              std::string::npos)
        << got.error().message();
    std::filesystem::permissions(folder, std::filesystem::perms(0755));
  }
}

TEST_F(PrivateFileStore, FailsIfAFolderBelongsToAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a folder to another user";
  for (const auto& folder : {root(), file("3"), file("3/ab")}) {
    ASSERT_EQ(chown(folder.c_str(), fakes::other_user, fakes::other_user), 0);
    EXPECT_EQ(codes(), none_) << folder;
    ASSERT_EQ(chown(folder.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(codes(), all_ok_);
}

TEST_F(PrivateFileStore, ReadsNoFileThatOthersCanWriteTo) {
  for (const unsigned mode : {0664U, 0646U}) {
    std::filesystem::permissions(file("3/ab/cd"), std::filesystem::perms(mode));
    EXPECT_EQ(codes(), (std::vector<std::string>{"untrusted", "ok", "untrusted", "ok", "ok"})) << mode;
  }
  EXPECT_EQ(keep(*store_, "3/ab/cd", "new"), "ok") << "a new file replaces it";
  EXPECT_EQ(fetch(*store_, "3/ab/cd"), "new");
}

TEST_F(PrivateFileStore, ReadsNoFileOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(file("3/ab/cd").c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_EQ(fetch(*store_, "3/ab/cd"), "untrusted");
}

TEST_F(PrivateFileStore, ChecksAFolderThatIsMovedToItsPlace) {
  std::filesystem::rename(root(), folder_.path() / "before");
  EXPECT_EQ(fetch(*store_, "3/ab/cd"), "nothing");
  fakes::write_file(file("3/ab/cd"), "planted");
  std::filesystem::permissions(root(), std::filesystem::perms(0777));
  EXPECT_EQ(codes(), none_);
  EXPECT_EQ(fakes::names_in(file("3/ab")), std::vector<std::string>{"cd"});
}

TEST_F(PrivateFileStore, CreatesWhatOthersCannotWriteTo) {
  const std::string modes = fakes::in_child([&] {
    std::string all;
    for (const mode_t mask : {0002U, 0027U}) {
      std::filesystem::remove_all(root());
      umask(mask);
      if (!store_->put("3/a", fakes::bytes_of("x"), {})) return std::string("failed");
      for (const auto& path : {root(), file("3"), file("3/a")}) {
        struct stat status {};
        if (lstat(path.c_str(), &status) != 0) return std::string("missing");
        all += fmt::format("{:o} ", status.st_mode & 07777U);
      }
    }
    return all;
  });
  EXPECT_EQ(modes, "755 755 644 750 750 640 ");
}

TEST_F(PrivateFileStore, FailsIfAnyCallOfTheFileSystemFails) {
  bool failed = true;
  for (std::uint64_t at = 0; failed; ++at) {
    const FaultyFileSystem system({.at = at, .error = EIO});
    const base::ScopedFileSystem in_place_of_the_system(system);
    const std::string got = fetch(*make_file_store(root(), FolderAccess::private_only).value(), "3/ab/cd");
    failed = system.went_wrong();
    EXPECT_EQ(got, failed ? "io" : "x") << "call " << at;
  }
}

TEST_F(FileStoreTest, IsDeniedToWriteIntoAFolderOfOthers) {
  std::filesystem::create_directory(root());
  fakes::write_file(file("a"), "x");
  const std::string outcome = fakes::in_ordinary_child(folder_.path(), [&] {
    std::filesystem::permissions(root(), std::filesystem::perms(0555));
    const auto store = store_in(root());
    return keep(*store, "b", "y") + " " + keep(*store, "3/b", "y") + " " + fetch(*store, "a");
  });
  EXPECT_EQ(outcome, "denied denied x");
}

TEST_F(FileStoreTest, RepeatsACallWhoseHandleBecameStale) {
  for (const Call call : {Call::open, Call::read, Call::status}) {
    const SharedFileSystem system(call, ESTALE, 2);
    ASSERT_EQ(keep(*store_in(root()), "3/a", "x"), "ok");
    EXPECT_EQ(fetch(*store_on(system), "3/a"), "x") << static_cast<int>(call);
  }
  const SharedFileSystem status(Call::status, ESTALE, 2);
  EXPECT_TRUE(store_on(status)->has("3/a", {}).value());
  for (const Call call : {Call::open, Call::write, Call::rename, Call::make_folder, Call::close}) {
    const SharedFileSystem system(call, ESTALE, 1);
    EXPECT_EQ(keep(*store_on(system), "3/b/" + std::to_string(static_cast<int>(call)), "y"), "ok");
    std::filesystem::remove_all(file("3/b"));
  }
  EXPECT_EQ(files(), std::vector<std::string>{"3/a"}) << "no temporary file is left";
}

TEST_F(FileStoreTest, GivesUpIfTheHandleStaysStale) {
  ASSERT_EQ(keep(*store_in(root()), "3/a", "x"), "ok");
  const SharedFileSystem stale(Call::read, ESTALE, 1000);
  EXPECT_EQ(fetch(*store_on(stale), "3/a"), "io");
  const SharedFileSystem stale_writes(Call::write, ESTALE, 1000);
  EXPECT_EQ(keep(*store_on(stale_writes), "3/b", "x"), "io");
  EXPECT_EQ(files(), std::vector<std::string>{"3/a"});
}

TEST_F(FileStoreTest, TakesAFolderThatAnotherMachineCreatesAtTheSameTime) {
  std::filesystem::create_directories(file("3/ab"));
  // The client has an old view of the folder: it is missing for open(), and exists for mkdir().
  const SharedFileSystem late(Call::open, ENOENT, 1);
  EXPECT_EQ(keep(*store_on(late), "3/ab/cd", "x"), "ok");
  EXPECT_EQ(fetch(*store_in(root()), "3/ab/cd"), "x");
}

TEST_F(FileStoreTest, MissesWhatItCannotSeeYet) {
  ASSERT_EQ(keep(*store_in(root()), "3/a", "x"), "ok");
  const SharedFileSystem late(Call::open, ENOENT, 1);
  const auto store = store_on(late);
  EXPECT_EQ(fetch(*store, "3/a"), "nothing");
  EXPECT_EQ(fetch(*store, "3/a"), "x");
}

TEST_F(FileStoreTest, ReportsWhatTheServerRefuses) {
  const SharedFileSystem full(Call::close, EDQUOT, 2);
  const auto put = store_on(full)->put("a", fakes::bytes_of("x"), {});
  ASSERT_FALSE(put.ok()) << "NFS reports lost bytes when the file is closed";
  EXPECT_NE(put.error().message().find(file("a").string()), std::string::npos) << put.error().message();
  EXPECT_TRUE(files().empty());
  const SharedFileSystem read_only(Call::open, EROFS, 1000);
  EXPECT_EQ(keep(*store_on(read_only), "a", "x"), "denied");
}

TEST_F(FileStoreTest, LeavesTheOldObjectAndNoTemporaryFileIfAnyCallFails) {
  ASSERT_EQ(keep(*store_in(root()), "3/a", "old"), "ok");
  bool failed = true;
  for (std::uint64_t at = 0; failed; ++at) {
    const FaultyFileSystem system({.at = at, .error = EIO});
    const std::string outcome = keep(*store_on(system), "3/a", "new");
    failed = system.went_wrong();
    EXPECT_EQ(outcome, failed ? "io" : "ok") << "call " << at;
    EXPECT_EQ(fetch(*store_in(root()), "3/a"), failed ? "old" : "new") << "call " << at;
    EXPECT_EQ(files(), std::vector<std::string>{"3/a"}) << "call " << at;
  }
  const std::string large(3'000'000, 'x');
  for (std::uint64_t at = 0; at < 10; ++at) {
    const FaultyFileSystem system({.at = at, .fault = FaultyFileSystem::Fault::is_short, .from_then_on = true});
    EXPECT_EQ(keep(*store_on(system), "3/a", large), "ok") << "call " << at;
    EXPECT_TRUE(fetch(*store_on(system), "3/a") == large) << "call " << at;
  }
}

TEST_F(FileStoreTest, ReturnsWhatIsLeftOfATruncatedFile) {
  /// Truncates a file before its second part is read.
  class Truncating final : public base::FileSystem {
   public:
    explicit Truncating(std::filesystem::path path) : path_(std::move(path)) {}
    ssize_t read(int file, void* bytes, std::size_t count) const override {
      if (reads_++ == 1) std::filesystem::resize_file(path_, 10);
      return FileSystem::read(file, bytes, count);
    }

   private:
    const std::filesystem::path path_;
    mutable int reads_ = 0;
  };
  ASSERT_EQ(keep(*store_in(root()), "a", std::string(3'000'000, 'x')), "ok");
  const Truncating system(file("a"));
  EXPECT_EQ(fetch(*store_on(system), "a"), std::string(std::size_t{1} << 20, 'x'));
}

TEST_F(FileStoreTest, EndsByItsLimit) {
  const auto store = store_in(root());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  const CallLimit past{.deadline = std::chrono::steady_clock::now()};
  EXPECT_EQ(fetch(*store, "a", past), "timed_out");
  EXPECT_EQ(keep(*store, "a", "y", past), "timed_out");
  const int event = eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(fetch(*store, "a", {.cancelled = event}), "x");
  EXPECT_EQ(eventfd_write(event, 1), 0);
  EXPECT_EQ(fetch(*store, "a", {.cancelled = event}), "cancelled");
  EXPECT_EQ(store->has("a", {.cancelled = event}).error().code(), ErrorCode::cancelled);
  close(event);
  EXPECT_EQ(fetch(*store, "a"), "x");
}

TEST_F(FileStoreTest, ReadersSeeWholeObjectsWhileManyThreadsWrite) {
  const auto store = store_in(root());
  std::atomic<int> wrong = 0;
  constexpr int threads = 8;
  std::vector<std::thread> all;
  all.reserve(threads);
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      for (int round = 0; round < 30; ++round) {
        const std::string text(50'000, static_cast<char>('a' + thread));
        if (keep(*store, fakes::numbered("3/x/object", round), text) != "ok") ++wrong;
        const std::string got = fetch(*store, fakes::numbered("3/x/object", round));
        if (got.size() != text.size() || got.find_first_not_of(got[0]) != std::string::npos) ++wrong;
      }
    });
  for (auto& thread : all) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files().size(), 30U);
}

TEST_F(FileStoreTest, TrustsAFolderThatOthersCannotWriteTo) {
  EXPECT_FALSE(is_trusted_folder(root())) << "somebody else can create it";
  std::filesystem::create_directory(root());
  std::filesystem::permissions(root(), std::filesystem::perms(0755));
  EXPECT_TRUE(is_trusted_folder(root()));
  for (const unsigned mode : {0775U, 0757U, 0777U}) {
    std::filesystem::permissions(root(), std::filesystem::perms(mode));
    EXPECT_FALSE(is_trusted_folder(root())) << mode;
  }
  fakes::write_file(folder_.path() / "file", "x");
  EXPECT_FALSE(is_trusted_folder(folder_.path() / "file"));
  if (!fakes::is_root()) return;
  std::filesystem::permissions(root(), std::filesystem::perms(0755));
  ASSERT_EQ(chown(root().c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_FALSE(is_trusted_folder(root())) << "it belongs to another user";
}

}  // namespace
}  // namespace kiln::store
