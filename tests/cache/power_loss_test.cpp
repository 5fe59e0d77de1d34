#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/files.hpp"
#include "fakes/power_loss.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

using fakes::PowerLoss;
using fakes::request;

/// What is left on disk of programs that were saved when the power is lost.
class PowerIsLost : public fakes::CacheTest, public testing::WithParamInterface<Durability> {
 protected:
  static constexpr int programs = 3;

  struct Left {
    int whole = 0;
    int damaged = 0;
    int missing = 0;
  };

  std::filesystem::path disk_path() const { return place_.path() / "disk"; }
  std::filesystem::path make_disk() const {
    std::filesystem::create_directory(disk_path());
    return disk_path();
  }
  /// A cache on the disk that saves at once.
  auto on(const PowerLoss& disk, Durability durability) {
    CacheOptions options = this->options();
    options.directory = disk_path() / "cache";
    options.durability = durability;
    options.write_queue = 0;
    return fakes::cache_on(disk, backend_, options);
  }

  /// Looks at all that could be left, and that a cache lives with it. The least and the worst of it.
  Left worst_left(const PowerLoss& disk) {
    Left worst{.whole = programs};
    for (const auto unsynced : {PowerLoss::Unsynced::gone, PowerLoss::Unsynced::half, PowerLoss::Unsynced::zeros})
      for (std::size_t kept = 0; kept <= disk.unsynced_changes(); ++kept, ++cases_) {
        const auto where = place_.path() / ("left_" + std::to_string(cases_));
        disk.lose_power(where, kept, unsynced);
        const Left left = look(where);
        worst.whole = std::min(worst.whole, left.whole);
        worst.damaged = std::max(worst.damaged, left.damaged);
        worst.missing = std::max(worst.missing, left.missing);
        heal(where);
        std::filesystem::remove_all(where);
      }
    return worst;
  }

  Left look(const std::filesystem::path& root) const {
    Left left;
    const auto folder = root / "cache" / backend_->identity().folder();
    for (int i = 0; i < programs; ++i) {
      const std::string name = store::entry_file_name(request(i).key());
      if (!std::filesystem::exists(folder / name))
        ++left.missing;
      else if (store::read_entry(folder, name))
        ++left.whole;
      else
        ++left.damaged;
    }
    return left;
  }

  void heal(const std::filesystem::path& root) {
    CacheOptions options = this->options();
    options.directory = root / "cache";
    options.log = {};
    for (int round = 0; round < 2; ++round) {
      Cache cache(backend_, options);
      for (int i = 0; i < programs; ++i)
        EXPECT_EQ(text(cache.get(request(i)).value()), "source of program " + std::to_string(i));
      cache.flush();
      if (round == 1) {
        EXPECT_EQ(cache.stats().compiles, 0U);
      }
    }
    EXPECT_EQ(look(root).whole, programs);
    prune(root / "cache", {}).value();
    for (const auto& item : std::filesystem::recursive_directory_iterator(root))
      EXPECT_FALSE(base::Folder::is_temporary(item.path().filename()));
  }

  const fakes::TemporaryFolder place_{fakes::memory_place()};
  std::size_t cases_ = 0;
};

TEST_P(PowerIsLost, AndWhatWasSavedIsAsTheDurabilitySays) {
  const PowerLoss disk(make_disk());
  const auto cache = on(disk, GetParam());
  for (int i = 0; i < programs; ++i) {
    cache->get(request(i)).value();
    const Left left = worst_left(disk);
    if (GetParam() != Durability::none) {
      EXPECT_EQ(left.damaged, 0);
    }
    if (GetParam() == Durability::fsync) {
      EXPECT_EQ(left.whole, i + 1) << "what was saved is there";
    }
    if (GetParam() == Durability::none) {
      EXPECT_GT(left.damaged, 0) << "nothing was at stake";
    }
  }
  std::cout << cases_ << " states of the disk\n";
}

class PowerIsLostForTwo : public PowerIsLost {};

TEST_F(PowerIsLostForTwo, WhatIsSavedInAFolderThatAnotherMadeIsThere) {
  const PowerLoss disk(make_disk());
  on(disk, Durability::none)->get(request(programs)).value();
  on(disk, Durability::fsync)->get(request(0)).value();
  EXPECT_EQ(worst_left(disk).whole, 1);
}

std::string name_of(const testing::TestParamInfo<Durability>& given) {
  constexpr std::array names = {"none", "rename", "fsync"};
  return names[static_cast<std::size_t>(given.param)];
}

INSTANTIATE_TEST_SUITE_P(With, PowerIsLost,
                         testing::Values(Durability::none, Durability::rename, Durability::fsync), name_of);

}  // namespace
}  // namespace kiln
