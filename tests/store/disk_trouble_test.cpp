#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

// What happens to entries and folders behind a store's back.
namespace kiln::store {
namespace {

class DiskTrouble : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_->put(conv_, sample_entry("conv")));
    ASSERT_TRUE(store_->put(gemm_, sample_entry("gemm")));
  }

  const std::filesystem::path& root() const { return root_.path(); }
  std::filesystem::path conv_path() const { return entry_path(*store_, conv_); }

  /// The entry of conv_ is refused, its neighbour is not, and a put() sets it right.
  void expect_refused_and_replaced(const std::string& what) {
    EXPECT_TRUE(answer(*store_, conv_).starts_with("error: ")) << what << ": " << answer(*store_, conv_);
    EXPECT_EQ(answer(*store_, gemm_), "gemm") << what;
    const auto put = store_->put(conv_, sample_entry("conv again"));
    EXPECT_TRUE(put) << what << ": " << put.error().message();
    EXPECT_EQ(answer(*store_, conv_), "conv again") << what;
    EXPECT_EQ(answer(*store_, gemm_), "gemm") << what;
  }

  fakes::TemporaryFolder root_;
  fakes::TemporaryFolder elsewhere_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
  const Key gemm_ = sample_key("gemm");
};

TEST_F(DiskTrouble, ReplacesADamagedEntryAndLeavesItsNeighbours) {
  const std::string whole = fakes::read_file(conv_path());
  for (const std::string& bytes : {std::string(), whole.substr(0, 50), whole + "x",
                                   std::string(whole).replace(0, 1, "X"), std::string(whole.size(), '\0')}) {
    fakes::write_file(conv_path(), bytes);
    EXPECT_EQ(code_of_get(*store_, conv_), ErrorCode::damaged);
    expect_refused_and_replaced("damaged bytes");
  }
}

TEST_F(DiskTrouble, RefusesAnotherKeysEntryUnderThisName) {
  std::filesystem::copy_file(entry_path(*store_, gemm_), conv_path(),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(code_of_get(*store_, conv_), ErrorCode::damaged);
  expect_refused_and_replaced("another key's entry");
}

TEST_F(DiskTrouble, RefusesAnotherIdentitysEntry) {
  const auto other = open_store(root(), sample_identity(1));
  ASSERT_TRUE(other->put(conv_, sample_entry("for another device")));
  std::filesystem::copy_file(entry_path(*other, conv_), conv_path(),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(code_of_get(*store_, conv_), ErrorCode::damaged);
  expect_refused_and_replaced("another identity's entry");
  EXPECT_EQ(answer(*other, conv_), "for another device");
}

TEST_F(DiskTrouble, DoesNotFollowASymlinkAndDoesNotWriteThroughIt) {
  const auto target = elsewhere_.path() / "target";
  std::filesystem::rename(conv_path(), target);
  const std::string before = fakes::read_file(target);
  std::filesystem::create_symlink(target, conv_path());
  expect_refused_and_replaced("a symlink to a good entry");
  EXPECT_EQ(fakes::read_file(target), before);
}

TEST_F(DiskTrouble, DoesNotWaitForAFifo) {
  std::filesystem::remove(conv_path());
  ASSERT_EQ(mkfifo(conv_path().c_str(), 0600), 0);
  expect_refused_and_replaced("a FIFO");
}

TEST_F(DiskTrouble, RefusesAnotherUsersEntry) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(conv_path().c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_EQ(code_of_get(*store_, conv_), ErrorCode::damaged);
  expect_refused_and_replaced("another user's entry");
}

TEST_F(DiskTrouble, LivesWithAFolderInAnEntrysPlace) {
  std::filesystem::remove(conv_path());
  fakes::write_file(conv_path() / "precious", "x");
  EXPECT_TRUE(answer(*store_, conv_).starts_with("error: "));
  EXPECT_FALSE(store_->put(conv_, sample_entry("x")));
  EXPECT_FALSE(store_->remove(conv_));
  EXPECT_EQ(fakes::read_file(conv_path() / "precious"), "x");
  EXPECT_EQ(answer(*store_, gemm_), "gemm");
  for (const std::string& name : fakes::names_in(store_->path())) EXPECT_FALSE(base::Folder::is_temporary(name));
}

TEST_F(DiskTrouble, LivesWithAFolderOrASymlinkInTheLockFilesPlace) {
  for (const bool is_folder : {true, false}) {
    std::filesystem::remove(store_->path() / ".lock");
    if (is_folder) {
      std::filesystem::create_directory(store_->path() / ".lock");
    } else {
      std::filesystem::create_symlink(elsewhere_.path() / "lock", store_->path() / ".lock");
    }
    const auto again = open_store(root());
    EXPECT_EQ(answer(*again, conv_), "conv");
    EXPECT_TRUE(again->put(gemm_, sample_entry("gemm")));
    EXPECT_FALSE(again->lock(conv_, std::chrono::milliseconds(0)));
  }
  EXPECT_TRUE(fakes::names_in(elsewhere_.path()).empty());
}

TEST_F(DiskTrouble, MakesItsFolderAgainWhenThatWasRemoved) {
  std::filesystem::remove_all(store_->path());
  EXPECT_EQ(answer(*store_, conv_), "nothing");
  ASSERT_TRUE(store_->put(conv_, sample_entry("again")));
  EXPECT_EQ(answer(*store_, conv_), "again");
  EXPECT_TRUE(std::filesystem::exists(store_->path() / "manifest.json"));
}

TEST_F(DiskTrouble, MakesTheWholeDirectoryAgainWhenThatWasRemoved) {
  std::filesystem::remove_all(root());
  EXPECT_TRUE(store_->lock(conv_, std::chrono::milliseconds(0)));
  ASSERT_TRUE(store_->put(conv_, sample_entry("again")));
  EXPECT_EQ(answer(*open_store(root()), conv_), "again");
}

TEST_F(DiskTrouble, HasNothingAndFailsAtNothingWhileItsFolderIsAway) {
  std::filesystem::remove_all(store_->path());
  EXPECT_EQ(answer(*store_, conv_), "nothing");
  EXPECT_TRUE(store_->touch(conv_));
  EXPECT_TRUE(store_->remove(conv_));
  const auto items = store_->list();
  ASSERT_TRUE(items) << items.error().message();
  EXPECT_TRUE(items->empty());
}

TEST_F(DiskTrouble, AFileInTheFoldersPlaceIsAClearError) {
  std::filesystem::remove_all(store_->path());
  fakes::write_file(store_->path(), "precious");
  const auto put = store_->put(conv_, sample_entry("x"));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), ErrorCode::io);
  EXPECT_NE(put.error().message().find(store_->path().string()), std::string::npos) << put.error().message();
  EXPECT_FALSE(store_->lock(conv_, std::chrono::milliseconds(0)));
  EXPECT_FALSE(DiskStore::open(root(), sample_identity(), Log(LogLevel::off, {})).ok());
  EXPECT_EQ(fakes::read_file(store_->path()), "precious");
}

TEST_F(DiskTrouble, AFileInTheDirectorysPlaceIsAClearError) {
  const auto file = elsewhere_.path() / "file";
  fakes::write_file(file, "precious");
  const auto opened = DiskStore::open(file, sample_identity(), Log(LogLevel::off, {}));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::io);
  EXPECT_NE(opened.error().message().find(file.string()), std::string::npos) << opened.error().message();
  EXPECT_EQ(fakes::read_file(file), "precious");
}

TEST_F(DiskTrouble, AnEndlessSymlinkInTheDirectorysPlaceIsAnErrorAndNothingThrown) {
  std::filesystem::remove_all(root());
  std::filesystem::create_symlink(root(), root());
  EXPECT_NO_THROW(EXPECT_FALSE(store_->put(conv_, sample_entry("x"))));
  EXPECT_NO_THROW(EXPECT_FALSE(store_->lock(conv_, std::chrono::milliseconds(0))));
}

TEST_F(DiskTrouble, ADirectoryThatMayNotBeSearchedIsAnErrorAndNothingThrown) {
  std::filesystem::remove_all(store_->path());
  const std::string answered = fakes::in_ordinary_child(root(), [this]() -> std::string {
    const auto store = open_store(root());
    if (chmod(root().c_str(), 0) != 0) return "no chmod";
    const auto put = store->put(conv_, sample_entry("x"));
    if (store->lock(conv_, std::chrono::milliseconds(0))) return "locked";
    return put ? "put" : std::string(to_string(put.error().code()));
  });
  EXPECT_EQ(answered, "io");
}

TEST_F(DiskTrouble, AFolderOfAnotherUserIsRefused) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a folder to another user";
  ASSERT_EQ(chown(store_->path().c_str(), fakes::other_user, fakes::other_user), 0);
  const auto opened = DiskStore::open(root(), sample_identity(), Log(LogLevel::off, {}));
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("another user"), std::string::npos);
}

TEST_F(DiskTrouble, AFolderThatTakesNoFilesIsStillReadFrom) {
  const std::string answered = fakes::in_ordinary_child(root(), [this]() -> std::string {
    if (chmod(store_->path().c_str(), 0500) != 0 || chmod(root().c_str(), 0500) != 0) return "no chmod";
    const auto store = open_store(root());
    const auto put = store->put(sample_key("new"), sample_entry("x"));
    return answer(*store, conv_) + ", " + (put ? "put" : std::string(to_string(put.error().code())));
  });
  EXPECT_EQ(answered, "conv, io");
  ASSERT_EQ(chmod(root().c_str(), 0700), 0);
  ASSERT_EQ(chmod(store_->path().c_str(), 0700), 0);
}

TEST_F(DiskTrouble, AFullDiskLosesNothingThatWasThere) {
  const auto before = fakes::names_in(store_->path());
  const std::string answered = fakes::in_child([this]() -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return "no limit to be had";
    const auto put = store_->put(conv_, sample_entry(incompressible(10'000)));
    return answer(*store_, conv_) + ", " + (put ? "put" : std::string(to_string(put.error().code())));
  });
  EXPECT_EQ(answered, "conv, io");
  EXPECT_EQ(fakes::names_in(store_->path()), before);
  EXPECT_EQ(answer(*store_, gemm_), "gemm");
}

TEST_F(DiskTrouble, FactsNestedWithoutEndAreNoCrash) {
  std::string facts;
  for (int i = 0; i < 200'000; ++i) facts += "{\"a\":";
  facts.append("1").append(200'000, '}');
  const std::string answered = fakes::in_child([&]() -> std::string {
    Entry entry = sample_entry("deep");
    entry.facts = facts;
    const auto put = store_->put(conv_, entry);
    return put ? answer(*store_, conv_) : put.error().message();
  });
  EXPECT_EQ(answered, "deep");
}

}  // namespace
}  // namespace kiln::store
