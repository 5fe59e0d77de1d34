// A kernel of one's own that tunes itself: how large its groups are, and how much each work item does, is found out
// on the device, kept, and used by every later run.
#include <iostream>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>
#include <kiln/kernels/tuner.hpp>

// y = a x + y by groups of `group` work items, each of which takes `each` elements.
kiln::Kernel saxpy(const kiln::Variant& variant) {
  const auto [group, each] = std::pair(variant[0], variant[1]);
  return {.name = "saxpy_g" + std::to_string(group) + "_e" + std::to_string(each),
          .buffers = {{"x"}, {"y"}, {"result", kiln::Type::f32, kiln::Access::write}},
          .scalars = {{"count"}, {"a", kiln::Type::f32}},
          .group_size = {static_cast<std::uint32_t>(group), 1, 1},
          .parameters = {{"EACH", std::to_string(each)}},
          .source = R"(KERNEL {
  for (int e = 0; e < EACH; ++e) {
    int i = (group_id_x * EACH + e) * GROUP_X + local_id_x;
    if (i < count) result[i] = a * x[i] + y[i];
  }
})"};
}

kiln::Tunable tunable(const std::shared_ptr<kiln::Device>& device, std::int64_t count) {
  return {.kernel = "saxpy",
          .sizes = {{"count", count}},
          .parameters = {{"group", {32, 64, 128, 256}}, {"each", {1, 2, 4, 8}}},
          .initial = {64, 1},
          .inputs = {{count}, {count}},
          .call = [=](const kiln::Variant& variant,
                      const std::vector<kiln::Tensor>& in) -> kiln::Result<kiln::Tunable::Call> {
            const kiln::Kernel kernel = saxpy(variant);
            const auto result = kiln::Tensor::empty(device, {count}).value();
            const std::int64_t per_group = std::int64_t{variant[0]} * variant[1];
            const auto scalars = kernel.pack({static_cast<std::int32_t>(count), 2.0F}).value();
            kiln::Step step{.request = kernel.request(*device).value(),
                            .launch = {.groups = {(count + per_group - 1) / per_group},
                                       .group_size = kernel.group_size,
                                       .arguments = {kiln::job_memory(0), kiln::job_memory(1), kiln::job_memory(2),
                                                     kiln::by_value(scalars)}}};
            kiln::Job job{
                .name = "saxpy",
                .memory = {{.buffer = in[0].buffer()}, {.buffer = in[1].buffer()}, {.buffer = result.buffer()}}};
            job.steps.push_back(std::move(step));
            return kiln::Tunable::Call{std::move(job), result};
          }};
}

int main() try {
  const auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu);
  const auto tuner = kiln::Tuner::create(gpu, cache, {.policy = kiln::TunePolicy::exhaustive}).value();
  const kiln::Variant best = tuner->choose(tunable(gpu, 1 << 18));
  std::cout << saxpy(best).name << " is the best of " << tuner->records().front().trials.size() << " on "
            << gpu->info().name << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
