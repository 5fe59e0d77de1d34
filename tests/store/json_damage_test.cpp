#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fakes/bad_json.hpp"
#include "fakes/damage.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"
#include "store/samples.hpp"

// The files for people and tools: whatever is in them, programs are found, and the next writer sets them right.
namespace kiln::store {
namespace {

class JsonDamage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_->put(conv_, sample_entry("conv")));
    ASSERT_TRUE(store_->save_notes());
    ASSERT_TRUE(add_to_lifetime(root_.path(), some_stats()));
  }

  static LifetimeStats some_stats() {
    LifetimeStats stats{.sessions = 1, .totals = {}};
    stats.totals.requests = 10;
    stats.totals.compiles = 3;
    stats.totals.compile_time = std::chrono::milliseconds(5);
    return stats;
  }

  /// Does everything there is to do to a file, has `look` look at what came of it, and `heal` set it right.
  void damage(const std::filesystem::path& file, const std::string& name, const std::function<void()>& look,
              const std::function<void()>& heal) {
    const std::string whole = fakes::read_file(file);
    fakes::Sweep bits;
    fakes::Sweep lengths;
    fakes::Sweep others;
    fakes::Sweep huge;
    const auto check = [&](const fakes::Sweep& sweep) {
      look();
      if (sweep.closely() || &sweep == &others || &sweep == &huge) heal();
    };
    const auto checked = [&](const fakes::Sweep& sweep) {
      return [&](const std::string& bytes, const std::string& what) {
        fakes::overwrite(file, bytes);
        check(sweep);
        ASSERT_EQ(answer(*store_, conv_), "conv") << what;
        ASSERT_FALSE(HasFailure()) << what;
      };
    };
    fakes::flip_every_bit(whole, bits, checked(bits));
    fakes::report_cases(name + ", bit flipped", bits.cases);
    fakes::cut_at_every_length(whole, lengths, checked(lengths));
    fakes::report_cases(name + ", truncated", lengths.cases);
    for (const std::size_t block : {std::size_t{512}, std::size_t{4096}})
      fakes::zero_every_block(whole, block, others, checked(others));
    for (const std::string& text : fakes::other_json())
      if (others.next()) checked(others)(text, "other JSON");
    if (others.next()) std::filesystem::remove(file);
    check(others);
    fakes::report_cases(name + ", zeroed block, other text or missing", others.cases);
    for (const auto& [what, text] : fakes::bad_json(fakes::damage_all() ? 60'000'000 : 4'000'000)) {
      const auto start = std::chrono::steady_clock::now();
      if (huge.next()) checked(huge)(text, what);
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << what;
    }
    fakes::overwrite(file, whole);
    if (huge.next() && truncate(file.c_str(), off_t{1} << 40) == 0) check(huge);
    fakes::report_cases(name + ", huge or deeply nested", huge.cases);
  }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
};

TEST_F(JsonDamage, OfAMetaFileIsHealedByTheNextPut) {
  const auto file = meta_path(*store_, conv_);
  const std::string whole = fakes::read_file(file);
  damage(
      file, ".meta", [] {},
      [&] {
        ASSERT_TRUE(store_->put(conv_, sample_entry("conv")));
        ASSERT_TRUE(fakes::read_file(file) == whole);
      });
}

TEST_F(JsonDamage, OfAManifestNamesNoOtherDeviceAndIsHealed) {
  const auto file = store_->path() / manifest_name;
  const std::string whole = fakes::read_file(file);
  damage(
      file, "manifest.json",
      [&] {
        const auto folders = device_folders(root_.path());
        ASSERT_TRUE(folders);
        ASSERT_EQ(folders->size(), 1U);
        if (const auto& found = folders->front().identity) {
          ASSERT_EQ(found->digest(), sample_identity().digest());
        }
      },
      [&] {
        ASSERT_TRUE(store_->save_notes());
        ASSERT_TRUE(fakes::read_file(file) == whole);
      });
}

TEST_F(JsonDamage, OfTheStatisticsLosesNothingThatIsAddedLater) {
  LifetimeStats before;
  damage(
      root_.path() / stats_name, "cache_stats.json", [&] { before = read_lifetime(root_.path()); },
      [&] {
        ASSERT_TRUE(add_to_lifetime(root_.path(), some_stats()));
        const LifetimeStats after = read_lifetime(root_.path());
        constexpr std::uint64_t most = std::uint64_t{1} << 61;
        ASSERT_EQ(after.totals.requests, std::min(before.totals.requests + 10, most));
        ASSERT_EQ(after.sessions, std::min(before.sessions + 1, most));
        ASSERT_GE(after.totals.compile_time, std::min(std::chrono::nanoseconds(most), before.totals.compile_time));
      });
}

}  // namespace
}  // namespace kiln::store
