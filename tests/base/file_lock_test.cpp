#include "base/file.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

using namespace std::chrono_literals;

// Long enough for any machine; no test waits for its end.
constexpr auto long_time = 60s;

class FileLockOn : public testing::Test {
 protected:
  /// The file, opened once more.
  FileHandle open() const { return Folder::open(place_.path(), false).value().open_lock_file(".lock").value(); }

  /// A process that holds the lock on `byte` until it is killed.
  fakes::Child holder(std::uint64_t byte) const {
    return fakes::Child([this, byte](const fakes::Child::Report& report) {
      const FileHandle file = open();
      const auto lock = FileLock::acquire(file, byte, 0ms);
      report(lock ? "held" : "not held");
      for (;;) pause();
    });
  }

  fakes::TemporaryFolder place_;
  FileHandle first_ = open();
  FileHandle second_ = open();
};

TEST_F(FileLockOn, AFileExcludesAnotherOpeningInTheSameProcess) {
  const auto held = FileLock::acquire(first_, 0, 0ms);
  ASSERT_TRUE(held);
  EXPECT_FALSE(FileLock::acquire(second_, 0, 0ms));
  EXPECT_FALSE(FileLock::acquire(second_, 0, 20ms));
}

TEST_F(FileLockOn, AFileExcludesAnotherProcess) {
  fakes::Child other = holder(7);
  ASSERT_EQ(other.report(), "held");
  EXPECT_FALSE(FileLock::acquire(first_, 7, 0ms));
}

TEST_F(FileLockOn, AFileIsDroppedWithTheProcessThatDies) {
  fakes::Child other = holder(7);
  ASSERT_EQ(other.report(), "held");
  ASSERT_FALSE(FileLock::acquire(first_, 7, 0ms));
  other.kill();
  EXPECT_TRUE(FileLock::acquire(first_, 7, 0ms));
}

TEST_F(FileLockOn, AFileIsHadByAWaiterWhenTheHolderDies) {
  fakes::Child other = holder(7);
  ASSERT_EQ(other.report(), "held");
  std::atomic<bool> had = false;
  std::thread waiter([&] { had = FileLock::acquire(first_, 7, long_time).has_value(); });
  other.kill();
  waiter.join();
  EXPECT_TRUE(had);
}

TEST_F(FileLockOn, AFileIsHadByAWaiterWhenItIsReleased) {
  auto held = FileLock::acquire(first_, 7, 0ms);
  ASSERT_TRUE(held);
  std::atomic<bool> had = false;
  std::thread waiter([&] { had = FileLock::acquire(second_, 7, long_time).has_value(); });
  held.reset();
  waiter.join();
  EXPECT_TRUE(had);
}

TEST_F(FileLockOn, OneByteDoesNotExcludeAnother) {
  const auto zero = FileLock::acquire(first_, 0, 0ms);
  ASSERT_TRUE(zero);
  for (const std::uint64_t byte :
       {std::uint64_t{2}, std::uint64_t{1000}, std::uint64_t{1} << 40, std::uint64_t{1} << 62})
    EXPECT_TRUE(FileLock::acquire(second_, byte, 0ms)) << byte;
}

TEST_F(FileLockOn, OneByteDoesNotExcludeTheNext) {
  const auto even = FileLock::acquire(first_, 6, 0ms);
  ASSERT_TRUE(even);
  EXPECT_TRUE(FileLock::acquire(second_, 7, 0ms));
}

TEST_F(FileLockOn, ByteNumbersUpToTheLastCanBeHeld) {
  for (const std::uint64_t byte : {~std::uint64_t{0}, ~std::uint64_t{0} - 1, ~std::uint64_t{0} >> 1}) {
    const auto held = FileLock::acquire(first_, byte, 0ms);
    EXPECT_TRUE(held) << byte;
    EXPECT_FALSE(FileLock::acquire(second_, byte, 0ms)) << byte;
  }
}

TEST_F(FileLockOn, AFileGoesWithItsOwner) {
  {
    auto held = FileLock::acquire(first_, 3, 0ms);
    ASSERT_TRUE(held);
    const FileLock moved = std::move(*held);
    held.reset();
    EXPECT_FALSE(FileLock::acquire(second_, 3, 0ms));
  }
  EXPECT_TRUE(FileLock::acquire(second_, 3, 0ms));
}

TEST_F(FileLockOn, AFileIsExchangedByAssignment) {
  auto two = FileLock::acquire(first_, 2, 0ms);
  {
    auto four = FileLock::acquire(first_, 4, 0ms);
    ASSERT_TRUE(two && four);
    *two = std::move(*four);
  }
  EXPECT_TRUE(FileLock::acquire(second_, 2, 0ms));
  EXPECT_FALSE(FileLock::acquire(second_, 4, 0ms));
}

TEST_F(FileLockOn, AFileSurvivesTheClosingOfItsOtherOpenings) {
  const auto held = FileLock::acquire(first_, 0, 0ms);
  ASSERT_TRUE(held);
  { const FileHandle third = open(); }
  EXPECT_FALSE(FileLock::acquire(second_, 0, 0ms));
}

TEST_F(FileLockOn, AFileThatIsNotOpenIsRefusedAtOnce) {
  EXPECT_FALSE(FileLock::acquire(FileHandle(), 0, long_time));
}

TEST_F(FileLockOn, AFileThatIsFreeIsHadWithAllTheTimeInTheWorld) {
  // In a process of its own, which a sanitizer may end.
  EXPECT_EQ(fakes::in_child([this]() -> std::string {
              return FileLock::acquire(first_, 0, std::chrono::milliseconds::max()) ? "had" : "not had";
            }),
            "had");
}

}  // namespace
}  // namespace kiln::base
