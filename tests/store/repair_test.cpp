#include <chrono>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

// Removing a damaged entry while other processes may be replacing it.
namespace kiln::store {
namespace {

using namespace std::chrono_literals;

class Repair : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_->put(conv_, sample_entry("conv")));
    ASSERT_TRUE(store_->put(gemm_, sample_entry("gemm")));
    fakes::write_file(entry_path(*store_, conv_), "damaged");
  }
  base::Folder folder() const { return base::Folder::open(store_->path(), false).value(); }
  StoredFile file() const { return {entry_file_name(conv_), conv_, 7, {}}; }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
  const Key gemm_ = sample_key("gemm");
};

TEST_F(Repair, RemovesADamagedEntryWithItsMetaAndNothingElse) {
  EXPECT_EQ(remove_damaged(folder(), file(), 1s).value(), Removal::removed);
  EXPECT_FALSE(std::filesystem::exists(entry_path(*store_, conv_)));
  EXPECT_FALSE(std::filesystem::exists(meta_path(*store_, conv_)));
  EXPECT_EQ(answer(*store_, gemm_), "gemm");
}

TEST_F(Repair, LeavesAnEntryThatCannotBeRead) {
  struct FailingDisk final : base::FileSystem {
    ssize_t read(int, void*, std::size_t) const override {
      errno = EIO;
      return -1;
    }
  };
  const FailingDisk disk;
  const auto failing = base::Folder::open(store_->path(), false, disk).value();
  const auto removal = remove_damaged(failing, file(), 1s);
  ASSERT_FALSE(removal);
  EXPECT_EQ(removal.error().code(), ErrorCode::io);
  EXPECT_TRUE(std::filesystem::exists(entry_path(*store_, conv_)));
}

TEST_F(Repair, RemovesASymbolicLinkInAnEntrysPlace) {
  std::filesystem::remove(entry_path(*store_, conv_));
  std::filesystem::create_symlink("/etc/hostname", entry_path(*store_, conv_));
  EXPECT_EQ(remove_damaged(folder(), file(), 1s).value(), Removal::removed);
  EXPECT_FALSE(std::filesystem::is_symlink(entry_path(*store_, conv_)));
}

TEST_F(Repair, LeavesAnEntryThatWasReplacedSinceItWasFoundDamaged) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("replaced")));
  EXPECT_EQ(remove_damaged(folder(), file(), 1s).value(), Removal::sound_by_now);
  EXPECT_EQ(answer(*store_, conv_), "replaced");
}

TEST_F(Repair, WaitsForTheProcessThatIsReplacingTheEntry) {
  {
    const auto lock = store_->lock(conv_, 0ms);
    ASSERT_TRUE(lock);
    const auto removal = remove_damaged(folder(), file(), 20ms);
    ASSERT_FALSE(removal);
    EXPECT_EQ(removal.error().code(), ErrorCode::timed_out);
    EXPECT_TRUE(std::filesystem::exists(entry_path(*store_, conv_)));
  }
  EXPECT_EQ(remove_damaged(folder(), file(), 20ms).value(), Removal::removed);
}

TEST_F(Repair, FindsAnEntryGoneThatAnotherProcessRemoved) {
  std::filesystem::remove(entry_path(*store_, conv_));
  EXPECT_EQ(remove_damaged(folder(), file(), 1s).value(), Removal::gone_by_now);
}

}  // namespace
}  // namespace kiln::store
