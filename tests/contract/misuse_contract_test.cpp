#include <cstring>
#include <future>

#include <kiln/slot.hpp>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"
#include "contract/own_objects.hpp"

// What a careful program does not do, with every API.
namespace kiln::contract {
namespace {

class MisuseContract : public Contract {};

TEST_P(MisuseContract, ASlotAndWhatItWorksOnOutliveTheirDevice) {
  open_own_device();
  Program program;
  std::unique_ptr<Buffer> x;
  std::unique_ptr<Buffer> y;
  std::unique_ptr<Slot> slot;
  {
    Cache cache(device_, options());
    program = cache.get(request(scale(2))).value();
    x = device_->allocate(4000).value();
    y = device_->allocate(4000).value();
    slot = device_->open_slot().value();
    device_.reset();
  }
  const auto staged = slot->staging(8000).value();
  std::vector<float> numbers(1000, 3.0F);
  std::memcpy(staged.data(), numbers.data(), 4000);
  const Launch launch = scale(2).launch({16, 1, 1}, {x.get(), y.get()}, {1000, 0.5F}).value();
  slot->upload(*x, 0, 0, 4000).value();
  slot->launch(program.module(), launch).value();
  slot->download(*y, 0, 4000, 4000).value();
  slot->submit().value();
  slot->wait().value();
  std::memcpy(numbers.data(), staged.data() + 4000, 4000);
  EXPECT_EQ(numbers, std::vector<float>(1000, 6.5F));
}

TEST_P(MisuseContract, WhatOutlivesItsDeviceIsRefusedByTheNextOne) {
  open_own_device();
  Program program;
  std::unique_ptr<Buffer> buffer;
  {
    Cache cache(device_, options());
    program = cache.get(request(scale(2))).value();
    buffer = device_->allocate(4000).value();
  }
  open_own_device();
  std::vector<std::byte> bytes(4);
  EXPECT_EQ(device_->read(*buffer, bytes).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(device_->write(*buffer, bytes).error().code(), ErrorCode::invalid_request);
  const auto x = device_->allocate(4000).value();
  const auto y = device_->allocate(4000).value();
  const Launch launch = scale(2).launch({16, 1, 1}, {x.get(), y.get()}, {1000, 1.0F}).value();
  EXPECT_EQ(device_->launch(program.module(), launch).error().code(), ErrorCode::invalid_request);
  const auto slot = device_->open_slot().value();
  EXPECT_EQ(slot->launch(program.module(), launch).error().code(), ErrorCode::invalid_request);
}

TEST_P(MisuseContract, TheCallersObjectsCanBeAdoptedTwice) {
  open_own_device();
  const auto own = own_objects(device_->info());
  {
    auto first = own->adopt(book_.log()).value();
    auto second = own->adopt(book_.log()).value();
    EXPECT_EQ(first->identity(), second->identity());
    // One cache folder, two devices: the second finds what the first compiled.
    Cache one(first, options());
    const Program compiled = one.get(scale(3).request(*first).value()).value();
    one.flush();
    Cache two(second, options());
    const Program loaded = two.get(scale(3).request(*second).value()).value();
    EXPECT_EQ(loaded.origin(), Origin::disk);
    EXPECT_TRUE(scales(*first, compiled.module(), 3, 1));
    EXPECT_TRUE(scales(*second, loaded.module(), 3, 2));
    const auto foreign = first->allocate(4000).value();
    std::vector<std::byte> bytes(4);
    EXPECT_EQ(second->read(*foreign, bytes).error().code(), ErrorCode::invalid_request);
    first.reset();
    EXPECT_TRUE(scales(*second, loaded.module(), 3, 3)) << "after one of the two";
    EXPECT_TRUE(own->work());
  }
  EXPECT_TRUE(own->work()) << "after both";
}

TEST_P(MisuseContract, ADeviceIsOpenedByItsUuid) {
  const std::string& uuid = device_->info().uuid;
  if (uuid.empty()) GTEST_SKIP() << device_->info().name << " has no UUID";
  EXPECT_EQ(uuid.size(), 36U) << uuid;
  const auto same = open_device(GetParam() + ":" + uuid);
  ASSERT_TRUE(same) << same.error().message();
  EXPECT_EQ((*same)->info().name, device_->info().name);
  EXPECT_EQ((*same)->info().uuid, uuid);
  EXPECT_FALSE(open_device(GetParam() + ":" + uuid + "0"));
  EXPECT_TRUE(open_device(GetParam() + ":" + uuid.substr(0, 8))) << "also if these are digits only";
}

TEST_P(MisuseContract, ACacheDestroyedWithGetsUnderWayAnswersThem) {
  std::vector<Future<Program>> asked;
  {
    Cache cache(device_, options());
    for (int factor = 2; factor < 6; ++factor) asked.push_back(cache.get_async(request(scale(factor))));
  }
  for (int factor = 2; factor < 6; ++factor) {
    const Program program = asked[static_cast<std::size_t>(factor - 2)].get().value();
    EXPECT_TRUE(scales(*device_, program.module(), factor, 1));
  }
  Cache cache(device_, options());
  EXPECT_EQ(cache.get(request(scale(5))).value().origin(), Origin::disk) << "all were saved";
}

INSTANTIATE_TEST_SUITE_P(Apis, MisuseContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
