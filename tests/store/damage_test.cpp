#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "base/sha256.hpp"
#include "fakes/damage.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/directory.hpp"
#include "store/samples.hpp"

// Every place at which an entry may be damaged: a get answers with an error, the next put heals, and nothing beside
// it changes.
namespace kiln::store {
namespace {

// The preamble, and the body up to the facts.
constexpr std::size_t entry_header = 64 + 128;

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_->put(conv_, sample_entry("conv")));
    ASSERT_TRUE(store_->put(gemm_, sample_entry("gemm")));
    whole_ = fakes::read_file(entry_path(*store_, conv_));
    meta_ = fakes::read_file(meta_path(*store_, conv_));
    neighbour_ = fakes::read_file(entry_path(*store_, gemm_));
  }

  void expect_healed(const std::string& bytes, const std::string& what) {
    fakes::overwrite(entry_path(*store_, conv_), bytes);
    ASSERT_EQ(code_of_get(*store_, conv_), ErrorCode::damaged) << what;
    if (!sweep_.closely()) return;
    ASSERT_TRUE(store_->put(conv_, sample_entry("conv"))) << what;
    ASSERT_EQ(answer(*store_, conv_), "conv") << what;
    ASSERT_TRUE(fakes::read_file(entry_path(*store_, gemm_)) == neighbour_) << what;
  }
  fakes::Damaged healed() {
    return [this](const std::string& bytes, const std::string& what) { expect_healed(bytes, what); };
  }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
  const Key gemm_ = sample_key("gemm");
  std::string whole_;
  std::string meta_;
  std::string neighbour_;
  fakes::Sweep sweep_;
};

TEST_F(Damage, OfEveryBitIsNoticedAndHealed) {
  fakes::flip_every_bit(whole_, sweep_, healed());
  fakes::report_cases("bit flipped, small entry", sweep_.cases);
}

TEST_F(Damage, OfEveryHeaderByteToEveryValueIsNoticed) {
  fakes::set_every_value(whole_, entry_header, sweep_, [this](const std::string& bytes, const std::string& what) {
    const auto decoded = open_entry(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(!decoded && decoded.error().code() == ErrorCode::damaged) << what;
  });
  fakes::report_cases("header byte set to each other value", sweep_.cases);
}

TEST_F(Damage, ByTruncationAtEveryLengthIsNoticedAndHealed) {
  fakes::cut_at_every_length(whole_, sweep_, healed());
  fakes::report_cases("truncated, small entry", sweep_.cases);
}

TEST_F(Damage, OfEveryBlockIsNoticedAndHealed) {
  ASSERT_TRUE(store_->put(conv_, sample_entry(incompressible(100'000))));
  whole_ = fakes::read_file(entry_path(*store_, conv_));
  for (const std::size_t block : {std::size_t{512}, std::size_t{4096}})
    fakes::zero_every_block(whole_, block, sweep_, healed());
  fakes::report_cases("block of 512 bytes or 4 KiB zeroed, entry of 100 kB", sweep_.cases);
}

TEST_F(Damage, ByAnotherEntryUnderItsNameIsNoticedAndHealed) {
  std::vector<Key> keys;
  for (int i = 0; i < 8; ++i) {
    keys.push_back(sample_key(fakes::numbered("program", i)));
    ASSERT_TRUE(store_->put(keys.back(), sample_entry(keys.back().name)));
  }
  for (const Key& a : keys)
    for (const Key& b : keys) {
      if (a.digest == b.digest || !sweep_.next()) continue;
      const std::string of_b = fakes::read_file(entry_path(*store_, b));
      std::filesystem::rename(entry_path(*store_, a), root_.path() / "aside");
      std::filesystem::rename(entry_path(*store_, b), entry_path(*store_, a));
      std::filesystem::rename(root_.path() / "aside", entry_path(*store_, b));
      for (const Key& key : {a, b}) {
        ASSERT_EQ(code_of_get(*store_, key), ErrorCode::damaged);
        ASSERT_TRUE(store_->put(key, sample_entry(key.name)));
        ASSERT_EQ(answer(*store_, key), key.name);
      }
      ASSERT_TRUE(fakes::read_file(entry_path(*store_, b)) == of_b);
    }
  fakes::report_cases("two entries swapped", sweep_.cases);
}

TEST_F(Damage, ByAnEntryOfAnotherIdentityIsNoticedAndHealed) {
  std::vector<Identity> others;
  for (const auto field :
       {&Identity::api, &Identity::vendor, &Identity::device, &Identity::driver, &Identity::compiler}) {
    Identity other = sample_identity();
    other.*field += "x";
    others.push_back(other);
  }
  for (const std::vector<std::uint32_t>& formats : {std::vector<std::uint32_t>{}, {8}, {7, 8}}) {
    others.push_back(sample_identity());
    others.back().formats = formats;
  }
  for (const Identity& other : others) {
    const auto bytes = seal_entry(label_of(conv_.digest, other), sample_entry("of another device"));
    if (sweep_.next()) expect_healed(fakes::text_of(bytes), "another identity");
  }
  fakes::report_cases("entry of another identity", sweep_.cases);
}

/// The file with a number changed by a writer that had its reasons: the checksum fits.
std::string sealed(std::string file) {
  const Digest digest = base::sha256(std::string_view(file).substr(64));
  std::memcpy(file.data() + 16, digest.bytes.data(), digest.bytes.size());
  return file;
}

TEST_F(Damage, ByAnEntryOfAnotherVersionIsNoticedAndHealed) {
  for (std::uint32_t version = 0; version < 256; ++version) {
    if (version == 3 || !sweep_.next()) continue;
    std::string other = whole_;
    std::memcpy(other.data() + 8, &version, sizeof version);
    expect_healed(sealed(other), "version " + std::to_string(version));
  }
  fakes::report_cases("entry of another version", sweep_.cases);
}

TEST_F(Damage, ByAnEntryOfAnotherEndiannessIsNoticedAndHealed) {
  // The numbers of the header and their sizes: each alone the other way round, and all of them.
  const std::pair<std::size_t, std::size_t> numbers[] = {{8, 4}, {12, 4}, {48, 8}, {176, 8}, {184, 4}};
  const auto turn = [](std::string& file, std::pair<std::size_t, std::size_t> number) {
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(number.first);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(number.second));
  };
  std::string all = whole_;
  for (const auto& number : numbers) turn(all, number);
  if (sweep_.next()) expect_healed(sealed(all), "all numbers turned round");
  if (sweep_.next()) expect_healed(all, "all numbers turned round, with the old checksum");
  for (const auto& number : numbers) {
    std::string one = whole_;
    turn(one, number);
    if (one != whole_ && sweep_.next()) expect_healed(one, "number at " + std::to_string(number.first));
  }
  fakes::report_cases("entry of another endianness", sweep_.cases);
}

}  // namespace
}  // namespace kiln::store
