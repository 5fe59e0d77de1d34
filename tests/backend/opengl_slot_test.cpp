#include <cstring>
#include <optional>

#include <epoxy/egl.h>

#include "backend/gl_fixture.hpp"
#include "backend/opengl/device.hpp"
#include "backend/opengl/slot.hpp"

namespace kiln {
namespace {

using fakes::scale;

class GlSlotTest : public fakes::GlTest {
 protected:
  /// One whose staging memory is of this kind.
  std::unique_ptr<Slot> open(opengl::Staging::Kind kind) {
    auto group = dynamic_cast<opengl::GlDevice&>(*device_).group().shared_from_this();
    auto context = group->keep().value();
    const auto visit = context->enter().value();
    return std::make_unique<opengl::GlSlot>(std::move(group), std::move(context), device_->info(), true, kind);
  }
};

TEST_F(GlSlotTest, StagingMemoryThatCannotStayMappedIsCopied) {
  const Compiled compiled = device_->compile(scale(4)).value();
  const auto slot = open(opengl::Staging::Kind::copied);
  for (int round = 0; round < 3; ++round)
    EXPECT_TRUE(scales_in(*slot, *device_, *compiled.module, 4, static_cast<float>(round)));
}

TEST_F(GlSlotTest, WhatWasDownloadedIsUploadedAgainWithinASubmission) {
  for (const auto kind : {opengl::Staging::Kind::mapped, opengl::Staging::Kind::copied}) {
    const auto slot = open(kind);
    const auto from = upload(*device_, std::vector<std::uint32_t>{1, 2, 3, 4}).value();
    const auto to = upload(*device_, std::vector<std::uint32_t>{0, 0, 0, 0}).value();
    const auto staged = slot->staging(16).value();
    std::memset(staged.data(), 0, staged.size());
    slot->download(*from, 4, 4, 8).value();
    slot->upload(*to, 0, 0, 16).value();
    slot->submit().value();
    slot->wait().value();
    EXPECT_EQ(download<std::uint32_t>(*device_, *to).value(), (std::vector<std::uint32_t>{0, 2, 3, 0}));
    std::uint32_t value = 0;
    std::memcpy(&value, staged.data() + 4, sizeof value);
    EXPECT_EQ(value, 2U);
  }
}

TEST_F(GlSlotTest, SlotsOfAThreadShareAContextAndEndInAnyOrder) {
  const Compiled compiled = device_->compile(scale(4)).value();
  auto first = device_->open_slot().value();
  const EGLContext context = eglGetCurrentContext();
  EXPECT_NE(context, EGL_NO_CONTEXT);
  auto second = device_->open_slot().value();
  EXPECT_EQ(eglGetCurrentContext(), context);
  first.reset();
  EXPECT_TRUE(scales_in(*second, *device_, *compiled.module, 4, 1));
  EXPECT_EQ(eglGetCurrentContext(), context);
  second.reset();
  EXPECT_EQ(eglGetCurrentContext(), EGL_NO_CONTEXT);
}

TEST_F(GlSlotTest, SlotsAndLentContextsEndInAnyOrder) {
  const Compiled compiled = device_->compile(scale(4)).value();
  std::optional<opengl::Current> lent(opengl::make_current(*device_).value());
  auto slot = device_->open_slot().value();
  const EGLContext context = eglGetCurrentContext();
  lent.reset();
  EXPECT_TRUE(scales_in(*slot, *device_, *compiled.module, 4, 1));
  lent.emplace(opengl::make_current(*device_).value());
  slot.reset();
  EXPECT_EQ(eglGetCurrentContext(), context);
  lent.reset();
  EXPECT_EQ(eglGetCurrentContext(), EGL_NO_CONTEXT);
}

TEST_F(GlSlotTest, TheApplicationDispatchesInASlotsContextWhileOtherProgramsAreDestroyed) {
  const auto slot = device_->open_slot().value();
  const auto lent = opengl::make_current(*device_).value();
  dispatch_while_others_are_destroyed(*device_);
}

TEST_F(GlSlotTest, ProgramsAreLaunchedWhileOthersAreDestroyed) {
  const Compiled kept = device_->compile(scale(3)).value();
  const auto slot = device_->open_slot().value();
  for (int round = 0; round < 5; ++round) {
    Compiled here = device_->compile(scale(10 + round)).value();
    EXPECT_TRUE(scales_in(*slot, *device_, *here.module, 10 + round, 1));
    EXPECT_TRUE(scales_in(*slot, *device_, *kept.module, 3, 1));
    std::thread([&] {
      here.module.reset();
      const Compiled there = device_->compile(scale(30 + round)).value();
      EXPECT_TRUE(scales(*device_, *there.module, 30 + round, 1));
    }).join();
    EXPECT_TRUE(scales_in(*slot, *device_, *kept.module, 3, 2));
  }
}

}  // namespace
}  // namespace kiln
