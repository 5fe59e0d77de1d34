#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

// Several stores, in one process and in several, on one folder.
namespace kiln::store {
namespace {

using namespace std::chrono_literals;

class SharedFolder : public testing::Test {
 protected:
  /// A process that holds the right to compile `key` until it is killed.
  fakes::Child holder(const Key& key) const {
    return fakes::Child([this, key](const fakes::Child::Report& report) {
      const auto store = open_store(root_.path());
      const auto lock = store->lock(key, 0ms);
      report(lock ? "held" : "not held");
      for (;;) pause();
    });
  }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> one_ = open_store(root_.path());
  std::unique_ptr<SampleStore> two_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
  const Key gemm_ = sample_key("gemm");
};

TEST_F(SharedFolder, OneStoreFindsWhatTheOtherPut) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  ASSERT_TRUE(two_->put(gemm_, sample_entry("second")));
  EXPECT_EQ(answer(*one_, gemm_), "second");
  EXPECT_EQ(answer(*two_, conv_), "first");
  EXPECT_EQ(one_->list()->size(), 2U);
}

TEST_F(SharedFolder, AStoreThatIsOlderThanTheFolderFindsWhatTheOtherPut) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  EXPECT_EQ(answer(*two_, conv_), "first");
  EXPECT_EQ(two_->list()->size(), 1U);
}

TEST_F(SharedFolder, AStoreFindsWhatTheOtherPutIntoTheFolderMadeAgain) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  ASSERT_TRUE(two_->put(gemm_, sample_entry("second")));
  std::filesystem::remove_all(one_->path());
  ASSERT_TRUE(one_->put(conv_, sample_entry("again")));
  EXPECT_EQ(answer(*two_, conv_), "again");
}

TEST_F(SharedFolder, OneStoreRemovesWhatTheOtherPut) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  two_ = open_store(root_.path());
  ASSERT_TRUE(two_->remove(conv_));
  EXPECT_EQ(answer(*one_, conv_), "nothing");
}

TEST_F(SharedFolder, OneStoreReplacesWhatTheOtherPut) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  ASSERT_TRUE(two_->put(conv_, sample_entry("second")));
  EXPECT_EQ(answer(*one_, conv_), "second");
}

TEST_F(SharedFolder, AnotherProcessFindsWhatWasPut) {
  ASSERT_TRUE(one_->put(conv_, sample_entry("first")));
  EXPECT_EQ(fakes::in_child([this] { return answer(*open_store(root_.path()), conv_); }), "first");
}

TEST_F(SharedFolder, ProcessesThatPutTheSameKeyLeaveOneWholeEntry) {
  std::vector<std::unique_ptr<fakes::Child>> writers;
  for (int w = 0; w < 4; ++w) {
    writers.push_back(std::make_unique<fakes::Child>([this, w](const fakes::Child::Report& report) {
      const auto store = open_store(root_.path());
      for (int i = 0; i < 50; ++i) {
        const std::string binary = incompressible(1000U * static_cast<unsigned>(w + 1));
        if (!store->put(conv_, sample_entry(binary))) return report("not put");
        const std::string found = answer(*store, conv_);
        if (found != incompressible(found.size())) return report("torn");
      }
      report("done");
    }));
  }
  for (auto& writer : writers) EXPECT_EQ(writer->report(), "done");
  EXPECT_EQ(open_store(root_.path())->list()->size(), 1U);
}

TEST_F(SharedFolder, AWriterKilledAtWorkLeavesTheOldEntryOrTheNewOne) {
  ASSERT_TRUE(one_->put(conv_, sample_entry(incompressible(1000))));
  for (int round = 0; round < 10; ++round) {
    fakes::Child writer([this](const fakes::Child::Report& report) {
      const auto store = open_store(root_.path());
      for (std::size_t size = 1000;; size = size % 50'000 + 1000) {
        static_cast<void>(store->put(conv_, sample_entry(incompressible(size))));
        if (size == 3000) report("at work");
      }
    });
    ASSERT_EQ(writer.report(), "at work");
    writer.kill();
    const std::string found = answer(*one_, conv_);
    EXPECT_EQ(found, incompressible(found.size()));
    EXPECT_EQ(one_->list()->size(), 1U);
  }
}

TEST_F(SharedFolder, TheRightToCompileExcludesASecondStore) {
  auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  EXPECT_FALSE(two_->lock(conv_, 0ms));
  EXPECT_FALSE(two_->lock(conv_, 20ms));
  held.reset();
  EXPECT_TRUE(two_->lock(conv_, 0ms));
}

TEST_F(SharedFolder, TheRightToCompileOneKeyExcludesNoOther) {
  const auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  EXPECT_TRUE(two_->lock(gemm_, 0ms));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(two_->lock(sample_key(fakes::numbered("p", i)), 0ms)) << i;
}

TEST_F(SharedFolder, TheRightToCompileForOneDeviceExcludesNoOther) {
  const auto other = open_store(root_.path(), sample_identity(1));
  const auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  EXPECT_TRUE(other->lock(conv_, 0ms));
}

TEST_F(SharedFolder, TheRightToCompileIsHadByTheOneWhoWaits) {
  auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  std::string found;
  std::thread waiter([this, &found] {
    const auto lock = two_->lock(conv_, 60s);
    found = lock ? answer(*two_, conv_) : "no lock";
  });
  ASSERT_TRUE(one_->put(conv_, sample_entry("compiled")));
  held.reset();
  waiter.join();
  EXPECT_EQ(found, "compiled");
}

TEST_F(SharedFolder, TheRightToCompileIsDroppedWithAKilledProcess) {
  fakes::Child other = holder(conv_);
  ASSERT_EQ(other.report(), "held");
  EXPECT_FALSE(one_->lock(conv_, 0ms));
  EXPECT_TRUE(one_->lock(gemm_, 0ms));
  other.kill();
  EXPECT_TRUE(one_->lock(conv_, 0ms));
}

TEST_F(SharedFolder, TheRightToCompileOutlivesTheStore) {
  auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  one_.reset();
  EXPECT_FALSE(two_->lock(conv_, 0ms));
  held.reset();
  EXPECT_TRUE(two_->lock(conv_, 0ms));
}

TEST_F(SharedFolder, TheRightToCompileIsHadInAFolderMadeAgain) {
  { const auto held = one_->lock(conv_, 0ms); }
  std::filesystem::remove_all(root_.path());
  const auto held = one_->lock(conv_, 0ms);
  ASSERT_TRUE(held);
  EXPECT_FALSE(open_store(root_.path())->lock(conv_, 0ms));
}

}  // namespace
}  // namespace kiln::store
